import random
from collections import Counter

import _ecdsa
import pytest

from node_adapter.client import LowS, MockVerifier, SignatureEncoding, VerifierClient
from node_adapter.errors import FormatError
from node_adapter.formats import verify_signed
from node_adapter.formats._protobuf import Span, varint
from node_adapter.formats.fabric import records
from verifier.model import Code


@pytest.fixture
def ledger(shared):
    return (shared / "real" / "fabric-v2.0-ledger.blockfile").read_bytes()


@pytest.fixture
def client():
    with MockVerifier(_ecdsa.verify) as daemon, VerifierClient(daemon.target) as client:
        yield client


def kind(item):
    return " ".join(word for word in item.where.split() if not word.isdigit())


def test_the_real_ledger(ledger, client):
    found = list(records(ledger))
    assert [record.name for record in found] == [f"block {number}" for number in range(20)]
    assert sum(record.transactions for record in found) == 20
    assert not any(record.unverifiable for record in found)
    signed = [item for record in found for item in record.signed]
    assert Counter(map(kind, signed)) == {
        "block transaction (configuration) creator": 5,
        "block transaction (endorser transaction) creator": 15,
        "block transaction action endorsement": 21,
        "block transaction last update creator": 5,
        "block transaction last update signature": 8,
        "block orderer signatures": 19,
    }
    assert {(item.scheme.low_s, item.scheme.signature_encoding) for item in signed} == {
        (LowS.REQUIRE, SignatureEncoding.DER_STRICT)
    }
    assert verify_signed(client, signed).valid.all()


def test_a_flipped_bit_changes_exactly_the_verdicts_that_depend_on_it(ledger, client):
    good = {item.where: item for record in records(ledger) for item in record.signed}
    rng = random.Random(12)
    changed = kept = 0
    for _ in range(60):
        bit = rng.randrange(8 * len(ledger))
        spoilt = bytearray(ledger)
        spoilt[bit // 8] ^= 1 << bit % 8
        items = []
        try:
            for record in records(bytes(spoilt)):
                items += record.signed
        except FormatError:
            pass
        if not items:
            continue
        codes = verify_signed(client, items).codes
        for item, code in zip(items, codes, strict=True):
            before = good.get(item.where)
            same = before and (item.input, item.signature, item.key) == (before.input, before.signature, before.key)
            assert bool(same) == (code == Code.VALID), f"bit {bit}, {item.where}"
            changed += not same
            kept += bool(same)
    assert changed
    assert kept


def test_a_block_message_is_read_as_one(ledger, client):
    """The first block again, as the Block message that a peer delivers."""
    length, start = varint(ledger, 0, len(ledger))
    at = start
    number, at = varint(ledger, at, start + length)

    def take():
        nonlocal at
        size, at = varint(ledger, at, start + length)
        at += size
        return ledger[at - size : at]

    def field(tag, content):
        size, prefix = len(content), bytearray()
        while size > 127:
            prefix.append(size & 127 | 128)
            size >>= 7
        return bytes([tag << 3 | 2]) + bytes(prefix) + bytes([size]) + content

    data_hash, previous = take(), take()
    count, at = varint(ledger, at, start + length)
    body = b"".join(field(1, take()) for _ in range(count))
    count, at = varint(ledger, at, start + length)
    metadata = b"".join(field(1, take()) for _ in range(count))
    header = bytes([8, number]) + field(2, previous) + field(3, data_hash)
    (record,) = records(field(1, header) + field(2, body) + field(3, metadata))
    assert record.signed == next(records(ledger)).signed


def _collect(source, found):
    for record in source:
        found.append(record)


@pytest.mark.parametrize("cut", [1, 2, 1000, 200_000])
def test_a_truncated_file_gives_what_came_before(ledger, cut):
    found = []
    with pytest.raises(FormatError) as caught:
        _collect(records(ledger[: len(ledger) - cut]), found)
    assert len(found) < 20
    whole = list(records(ledger))
    assert found == whole[: len(found)]
    assert caught.value.offset <= len(ledger) - cut


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\0", "a block of no bytes"),
        (b"\x06\0\0\0\0\0\0", "1 bytes behind block 0"),
        (b"\xff" * 11, "varint over 64 bits"),
        (b"\x05", "a block of 5 bytes, but 0 are left"),
        (b"\x06\0\x7f\0\0\0\0", "127 bytes announced"),
    ],
)
def test_files_that_are_none(data, text):
    with pytest.raises(FormatError, match=text):
        list(records(data))


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\x0a\x05ab", "5 bytes runs over the end"),
        (b"\x08\x01", "bytes are expected"),
        (b"\x0b", "wire type 3"),
        (b"\x02\x00", "field number 0"),
        (b"\x0a", "cut short inside a varint"),
    ],
)
def test_protobuf_that_is_none(data, text):
    with pytest.raises(FormatError, match=text):
        Span(data, 0, len(data)).all(1)


def test_an_identity_without_a_certificate_is_named():
    def field(tag, content):
        return bytes([tag << 3 | 2, len(content)]) + content

    creator = field(2, b"no certificate")
    payload = field(1, field(1, b"\x08\x03") + field(2, field(1, creator)))
    envelope = field(1, payload) + field(2, b"signature")
    stored = b"\0\0\0\1" + bytes([len(envelope)]) + envelope + b"\0"
    (record,) = records(bytes([len(stored)]) + stored)
    assert record.signed == ()
    assert "no X.509 certificate" in record.unverifiable[0].why
