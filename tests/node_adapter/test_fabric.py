import hashlib
from collections import Counter

import pytest

from node_adapter.client import LowS, SignatureEncoding
from node_adapter.errors import FormatError
from node_adapter.formats import verify_signed
from node_adapter.formats._protobuf import Span, varint
from node_adapter.formats.fabric import _Block, _key, _record, _stored, records


@pytest.fixture
def ledger(shared):
    return (shared / "real" / "fabric-v2.0-ledger.blockfile").read_bytes()


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


def field(tag, content):
    size, prefix = len(content), bytearray()
    while size > 127:
        prefix.append(size & 127 | 128)
        size >>= 7
    return bytes([tag << 3 | 2]) + bytes(prefix) + bytes([size]) + content


def number(tag, value):
    return bytes([tag << 3, value])


def stored(envelopes, metadata=(), data_hash=None, previous=b""):
    """A block of a block file."""

    def sized(content):
        return _varint(len(content)) + content

    data_hash = hashlib.sha256(b"".join(envelopes)).digest() if data_hash is None else data_hash
    block = b"\0" + sized(data_hash) + sized(previous)
    for entries in (envelopes, metadata):
        block += _varint(len(entries)) + b"".join(map(sized, entries))
    return sized(block)


def _varint(value):
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes(out) + bytes([value])


def envelope(kind, data, creator=b"", signature=b"signature"):
    header = field(1, number(1, kind)) + field(2, field(1, creator))
    return field(1, field(1, header) + field(2, data)) + field(2, signature)


@pytest.fixture
def message(ledger):
    """The first block again, as the Block message that a peer delivers."""
    length, start = varint(ledger, 0, len(ledger))
    block = _stored(ledger, start, start + length)
    body = b"".join(field(1, span.content) for span in block.envelopes)
    metadata = b"".join(field(1, span.content) for span in block.metadata)
    header = field(2, block.previous_hash.content) + field(3, block.data_hash.content)
    return field(1, header) + field(2, body) + field(3, metadata)


def test_a_block_message_is_read_as_one(ledger, message):
    (record,) = records(message)
    assert record == next(records(ledger))
    assert record.unverifiable == ()


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda m: m[:-1], "runs over the end of its message"),
        (lambda m: m + b"\0\0", "field number 0"),
        (lambda m: m + field(4, b"more"), "field 4 does not occur"),
        (lambda m: m + b"\x0a\xff\xff\xff\xff\x0f", "runs over the end"),
    ],
)
def test_broken_block_messages(message, change, text):
    with pytest.raises(FormatError, match=text) as caught:
        list(records(change(message)))
    assert caught.value.offset > 0


def test_headers_of_other_envelopes_and_of_other_blocks(ledger):
    (record,) = records(stored([envelope(0, b"")], data_hash=bytes(32)))
    assert record.unverifiable[-1].why.startswith("data hash mismatch")
    length, start = varint(ledger, 0, len(ledger))
    first = _stored(ledger, start, start + length)
    second = _Block(1, first.data_hash, first.data_hash, first.envelopes, first.metadata)
    assert [item.why.split(":")[0] for item in _record(second, first).unverifiable] == ["previous hash mismatch"]


def test_updates_and_what_orderers_wrapped_have_their_signatures(ledger):
    length, start = varint(ledger, 0, len(ledger))
    configuration = _stored(ledger, start, start + length).envelopes[0].one(1)
    alone = configuration.one(2, 2).content
    (record,) = records(stored([alone]))
    names = [item.where.removeprefix("block 0 transaction 0 ") for item in record.signed]
    assert names[0] == "(configuration update) creator"
    assert names[1:] == [f"signature {n}" for n in range(len(names) - 1)]
    wrapped = envelope(4, alone, configuration.one(1, 2, 1).content)
    (record,) = records(stored([wrapped]))
    assert [item.where for item in record.signed if "inner" in item.where] == [
        f"block 0 transaction 0 inner {name}" for name in names
    ]


def test_another_channel(ledger):
    whole = next(records(ledger))
    channel = _stored(ledger, *_first(ledger)).envelopes[0].one(1).one(1, 1, 4).content.decode()
    assert next(records(ledger, chain_id=channel)) == whole
    other = next(records(ledger, chain_id="other"))
    assert other.unverifiable[0].why.startswith(f"signed for channel {channel!r} at byte ")
    assert not any("transaction" in item.where for item in other.signed)


def _first(ledger):
    length, start = varint(ledger, 0, len(ledger))
    return start, start + length


def test_orderers_that_are_numbers_are_named():
    metadata = field(1, b"value") + field(2, field(2, b"signature") + field(3, number(1, 2)))
    (record,) = records(stored([], [metadata]))
    assert record.unverifiable[0].why.startswith("the signer is a number in the channel's configuration")


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


def test_a_channels_first_configuration_is_signed_by_nobody():
    """As configtxgen writes it. Other blocks, and other envelopes, are signed."""
    configuration = envelope(1, b"", signature=b"")
    (record,) = records(stored([configuration]))
    assert (record.signed, record.unverifiable) == ((), ())
    assert "first configuration" in record.unsigned[0].why
    message = field(1, number(1, 5) + field(3, hashlib.sha256(configuration).digest())) + field(
        2, field(1, configuration)
    )
    for data in (message + field(3, b""), stored([envelope(3, b"", signature=b"")])):
        (record,) = records(data)
        assert record.unsigned == ()
        assert record.unverifiable[0].why == "neither signed nor by anybody"


def test_of_several_certificates_of_an_identity_the_first_counts(ledger):
    creator = _stored(ledger, *_first(ledger)).envelopes[0].one(1, 1, 2, 1).one(2).content
    assert len(_key(creator)) == 65
    assert _key(creator + creator) == _key(creator + b"more") == _key(creator)
    assert _key(creator.replace(b"CERTIFICATE", b"")) == _key(creator)  # as version 1.0 wrote it
    for spoilt, why in (
        (creator.replace(b"\nM", b"\n!", 1), "base64 of a certificate"),
        (creator[:-60], "a certificate begins here and does not end"),
        (b"-----BEGIN -----\nMAAA\n-----END -----", "1 bytes behind the certificate"),
        (b"-----BEGIN -----\nAAAA\n-----END -----", "0x30 is expected"),
    ):
        assert why in _key(spoilt)


def test_an_identity_without_a_certificate_is_named():
    (record,) = records(stored([envelope(3, b"", field(2, b"no certificate"))]))
    assert record.signed == ()
    assert "no X.509 certificate" in record.unverifiable[0].why
