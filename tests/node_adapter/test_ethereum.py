import re
from collections import Counter
from pathlib import Path

import _ecdsa
import cramjam
import pytest
from coincurve import PrivateKey

from node_adapter.client import LowS, MockVerifier, VerifierClient
from node_adapter.errors import FormatError
from node_adapter.formats import settle, verify_signed
from node_adapter.formats._rlp import encode_list, read
from node_adapter.formats._trie import transactions_root
from node_adapter.formats.ethereum import records

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "chain.rlp"
KEY = PrivateKey(bytes(31) + b"\7")
ADDRESS = _ecdsa.keccak256(KEY.public_key.format(False)[1:])[-20:]


def rlp(value):
    if isinstance(value, list):
        return encode_list(b"".join(map(rlp, value)))
    if isinstance(value, int):
        value = value.to_bytes((value.bit_length() + 7) // 8, "big")
    if len(value) == 1 and value[0] < 0x80:
        return value
    if len(value) < 56:
        return bytes([0x80 + len(value)]) + value
    size = len(value).to_bytes((len(value).bit_length() + 7) // 8, "big")
    return bytes([0xB7 + len(size)]) + size + value


def sign(message):
    """y parity, r, s."""
    raw = KEY.sign_recoverable(_ecdsa.keccak256(message), hasher=None)
    return [raw[64], int.from_bytes(raw[:32], "big"), int.from_bytes(raw[32:64], "big")]


def parts(*transactions, number=5, more=()):
    """A header that holds the root over these transactions, and the body."""
    raw = [rlp(t) if isinstance(t, list) else t for t in transactions]
    header = [*[bytes(32)] * 4, transactions_root(raw), *[bytes(32)] * 3, number, 0, 0, 0, b"", *more]
    return header, [list(transactions), []]


def block(*transactions, number=5, more=()):
    header, body = parts(*transactions, number=number, more=more)
    return rlp([header, *body])


LEGACY = [9, 10**9, 21_000, b"t" * 20, 10**18, b"data" * 20]


def legacy(chain=None):
    if chain is None:
        parity, r, s = sign(rlp(LEGACY))
        return [*LEGACY, 27 + parity, r, s]
    parity, r, s = sign(rlp([*LEGACY, chain, 0, 0]))
    return [*LEGACY, 35 + 2 * chain + parity, r, s]


def typed(kind, chain=1, authorisations=()):
    access = [[b"a" * 20, [bytes(32)]]]
    fees = [2, 3] if kind > 1 else [2]
    fields = [chain, 4, *fields_of(fees), b"t" * 20, 5, b"payload", access]
    if kind == 3:
        fields += [6, [b"\1" * 32]]
    if kind == 4:
        fields.append(list(authorisations))
    return bytes([kind]) + rlp([*fields, *sign(bytes([kind]) + rlp(fields))])


def with_blobs(transaction, *version):
    """A transaction of type 3 as nodes hand it on (EIP-4844, and EIP-7594 with a version)."""
    sidecar = [*version, [b"blob" * 99], [b"c" * 48], [b"p" * 48]]
    return b"\3" + encode_list(transaction[1:] + b"".join(map(rlp, sidecar)))


def fields_of(fees):
    return [*fees, 100_000]


def authorisation(chain):
    fields = [chain, b"d" * 20, 8]
    return [*fields, *sign(b"\5" + rlp(fields))]


@pytest.fixture
def client():
    with MockVerifier(recover=_ecdsa.recover) as daemon, VerifierClient(daemon.target) as client:
        yield client


def test_every_type_of_transaction_leads_to_its_sender(client):
    kinds = [legacy(), legacy(1), legacy(1 << 40), *(typed(k, authorisations=()) for k in (1, 2, 3, 4))]
    kinds.append(typed(4, authorisations=[authorisation(1), authorisation(0)]))
    (record,) = records(block(*kinds))
    assert record.transactions == 8
    assert record.unverifiable == ()
    outcome = verify_signed(client, record.signed)
    assert len(record.signed) == 10
    assert set(outcome.addresses.values()) == {ADDRESS}
    assert [v.address for v in settle(record.signed, outcome)] == [ADDRESS] * 10


def test_the_example_has_a_transaction_of_every_type(client):
    blocks = [
        block(legacy(1), legacy(1337), number=1),
        block(typed(1), typed(2), typed(3), number=2),
        block(typed(4, authorisations=[authorisation(1)]), number=3),
    ]
    assert EXAMPLE.read_bytes() == b"".join(blocks)
    found = [signed for record in records(EXAMPLE.read_bytes()) for signed in record.signed]
    outcome = verify_signed(client, found)
    assert [verdict.address for verdict in settle(found, outcome)] == [ADDRESS] * 7


def test_low_s_is_required_wherever_the_fork_is_certain():
    (record,) = records(block(legacy(), legacy(1), typed(2)))
    assert [item.scheme.low_s for item in record.signed] == [LowS.ACCEPT_ANY, LowS.REQUIRE, LowS.REQUIRE]


@pytest.mark.parametrize(
    ("options", "chain_id", "low_s"),
    [
        ({"number": 1_149_999}, 1, LowS.ACCEPT_ANY),
        ({"number": 1_150_000}, 1, LowS.REQUIRE),
        ({"number": 1_150_000}, None, LowS.REQUIRE),
        ({"number": 7}, 61, LowS.ACCEPT_ANY),
        ({"number": 7}, 5, LowS.REQUIRE),
        ({"number": 7, "more": (b"", b"", 8)}, None, LowS.REQUIRE),
    ],
)
def test_a_high_s_is_no_longer_allowed_since_homestead(options, chain_id, low_s):
    (record,) = records(block(legacy(), **options), chain_id=chain_id)
    assert [item.scheme.low_s for item in record.signed] == [low_s]


@pytest.mark.parametrize("version", [(), (1,)])
def test_transactions_with_their_blobs(client, version):
    alone = typed(3)
    header, body = parts(alone, legacy())
    body[0][0] = with_blobs(alone, *version)
    (record,) = records(rlp([header, *body]))
    assert record.unverifiable == ()
    assert set(verify_signed(client, record.signed).addresses.values()) == {ADDRESS}


def test_what_is_signed_for_another_chain():
    transactions = (
        legacy(),
        legacy(5),
        typed(2, 5),
        typed(4, 1, [authorisation(5), authorisation(0), authorisation(1)]),
    )
    (record,) = records(block(*transactions), chain_id=1)
    assert [item.where for item in record.unverifiable] == [
        "block 5 transaction 1",
        "block 5 transaction 2",
        "block 5 transaction 3 authorisation 0",
    ]
    assert all(re.fullmatch(r"signed for chain 5 at byte \d+, not for 1", item.why) for item in record.unverifiable)
    assert len(record.signed) == 4


@pytest.mark.parametrize(
    ("transaction", "why"),
    [
        (b"\x07" + rlp([1]), "transaction type 7 at byte"),
        ([*LEGACY, 29, 1, 1], "v is 29"),
        (b"\1" + rlp([1, 2, 3, 4, b"", 5, b"", [], 2, 1, 1]), "y parity is 2"),
    ],
)
def test_what_is_not_verifiable(transaction, why):
    (record,) = records(block(transaction, legacy()))
    assert len(record.signed) == 1
    assert why in record.unverifiable[0].why


@pytest.mark.parametrize(
    ("transaction", "text"),
    [
        (b"", "empty transaction"),
        ([*LEGACY, 27, 1], "8 fields; it has 9"),
        (b"\2" + rlp([1, 2]), "2 fields; it has 12"),
        (b"\2" + rlp([1, 2]) + b"!", "1 bytes behind a transaction"),
        ([*LEGACY, 27, b"\0\1", 1], "leading zero"),
        ([*LEGACY, 27, b"r" * 33, 1], "33 bytes; at most 32"),
        ([*LEGACY, 27, [1], 1], "a string is expected"),
        (typed(4, authorisations=[[1, 2]]), "authorisation with 2 fields"),
        (typed(4, authorisations=[[1, b"d" * 19, 0, 0, 1, 1]]), "19 bytes; 20 are expected"),
        ([b"\0\1", *LEGACY[1:], 27, 1, 1], "leading zero"),
        ([*LEGACY[:3], b"t" * 19, *LEGACY[4:], 27, 1, 1], "19 bytes; 20 are expected"),
        ([*LEGACY[:4], b"v" * 33, b"", 27, 1, 1], "33 bytes; at most 32"),
        ([*LEGACY[:5], [b"data"], 27, 1, 1], "a string is expected"),
        (b"\1" + rlp([1, 2, 3, 4, b"", 5, b"", [[b"a" * 20]], 0, 1, 1]), "access to 1 items"),
        (b"\1" + rlp([1, 2, 3, 4, b"", 5, b"", [[b"a" * 20, [b"s"]]], 0, 1, 1]), "1 bytes; 32 are expected"),
        (b"\3" + rlp([1, 2, 3, 4, 5, b"", 6, b"", [], 7, [], 0, 1, 1]), "0 bytes; 20 are expected"),
    ],
)
def test_broken_transactions_after_a_good_block(transaction, text):
    good = block(legacy())
    found = records(good + block(transaction))
    assert len(next(found).signed) == 1
    with pytest.raises(FormatError, match=text) as caught:
        next(found)
    assert caught.value.offset >= len(good)


@pytest.mark.parametrize(
    ("data", "offset", "text"),
    [
        ("", 0, "an item is expected"),
        ("83aabb", 0, "runs 1 bytes over the end"),
        ("8101", 0, "needs no prefix"),
        ("b801aa", 0, "not minimal"),
        ("b90038" + "00" * 56, 0, "not minimal"),
        ("f8", 0, "inside a length"),
        ("ffffffffffffffffff", 0, "over the end"),
    ],
)
def test_rlp_that_is_none(data, offset, text):
    with pytest.raises(FormatError, match=text) as caught:
        read(bytes.fromhex(data))
    assert caught.value.offset == offset


def test_a_header_of_other_transactions():
    header, body = parts(legacy(), legacy(1))
    (record,) = records(rlp([header, body[0][:1], body[1]]))
    assert len(record.signed) == 1
    assert [item.where for item in record.unverifiable] == ["block 5 header"]
    assert record.unverifiable[0].why.startswith("transactions root mismatch")


def test_roots():
    # The empty trie's; real blocks have all others.
    assert transactions_root([]).hex() == "56e81f171bcc55a6ff8345e692c0f86e5b48e01b996cadc001622fb5e363b421"
    many = [bytes([n % 7 + 1]) * (n % 60 + 1) for n in range(300)]
    assert transactions_root(many) != transactions_root(many[::-1])


def record_of(kind, content=b""):
    return kind + len(content).to_bytes(4, "little") + b"\0\0" + content


def era1(*blocks):
    """A history file of (header, body)s."""
    data = record_of(b"\x65\x32")
    for header, body in blocks:
        for kind, value in ((b"\3\0", header), (b"\4\0", body), (b"\5\0", [])):
            data += record_of(kind, bytes(cramjam.snappy.compress(rlp(value))))
        data += record_of(b"\6\0", bytes(32))
    return data + record_of(b"\7\0", bytes(32)) + record_of(b"\x66\x32", bytes(24))


def test_history_files_hold_the_same_blocks():
    blocks = [((legacy(), typed(2)), 8), ((), 9), ((typed(4, authorisations=[authorisation(0)]),), 10)]
    history = list(records(era1(*(parts(*transactions, number=number) for transactions, number in blocks))))
    assert history == list(records(b"".join(block(*transactions, number=number) for transactions, number in blocks)))
    assert [record.name for record in history] == ["block 8", "block 9", "block 10"]


def test_headers_may_stand_before_all_bodies():
    pairs = [parts(legacy(), number=number) for number in (1, 2)]
    data = record_of(b"\x65\x32")
    for kind, which in ((b"\3\0", 0), (b"\4\0", 1)):
        data += b"".join(record_of(kind, bytes(cramjam.snappy.compress(rlp(pair[which])))) for pair in pairs)
    assert [record.name for record in records(data)] == ["block 1", "block 2"]


@pytest.mark.parametrize(
    ("change", "offset", "text"),
    [
        (lambda d, end: d[:end] + bytes(7), 0, "7 bytes are left; a record begins with 8"),
        (lambda d, end: d[:end] + b"\3\0\xff\xff\xff\xff\0\0", 2, "a record of 4294967295 bytes, but 0 are left"),
        (lambda d, end: d[:end] + b"\3\0\0\0\0\0\1\0", 6, "0100 in a record"),
        (lambda d, end: d[:end] + b"\x65\x32\1\0\0\0\0\0!", 2, "a version record of 1 bytes"),
        (lambda d, end: d[:end] + record_of(b"\4\0", b""), 0, "a body without its header"),
        (lambda d, end: d[:end] + record_of(b"\3\0", b"abc"), 8, "not framed Snappy"),
        (lambda d, end: d[:end] + record_of(b"\3\0", bytes(cramjam.snappy.compress(b""))), None, "1 headers"),
        (lambda d, end: d[:end] + pair(rlp([]), rlp([[], []])), None, "at byte 0 of what it uncompresses to"),
        (lambda d, end: d[:end] + pair(rlp(parts()[0]), rlp([[], []]) + b"!"), None, "1 bytes behind an item"),
    ],
)
def test_broken_history_files(change, offset, text):
    good = era1(parts(legacy()))
    found = records(change(good, len(good)))
    assert len(next(found).signed) == 1
    with pytest.raises(FormatError, match=text) as caught:
        next(found)
    assert caught.value.offset >= len(good)
    if offset is not None:
        assert caught.value.offset == len(good) + offset


def test_a_history_file_without_blocks_is_none():
    consensus = record_of(b"\x65\x32") + record_of(b"\1\0", b"block") + record_of(b"\x69\x32", bytes(24))
    for data, types in ((consensus, "0100, 6532, 6932"), (record_of(b"\x65\x32"), "6532")):
        with pytest.raises(FormatError, match=f"no block of Ethereum, but records of types {types}"):
            list(records(data))


def pair(header, body):
    return b"".join(
        record_of(kind, bytes(cramjam.snappy.compress(value))) for kind, value in ((b"\3\0", header), (b"\4\0", body))
    )


def test_rlp_reads_back_what_was_written():
    for value in (b"", b"\0", b"\x7f", b"\x80", b"a" * 55, b"a" * 56, b"a" * 70_000):
        assert read(rlp(value)).string() == value
    nested = rlp([b"a", [b"b" * 60, []], b""])
    assert [item.is_list for item in read(nested).children()] == [False, True, False]


@pytest.mark.parametrize(
    ("name", "blocks", "kinds", "sender"),
    [
        (
            "ethereum-chain.rlp",
            600,
            {"transactions": 603, "authorisations": 1},
            "7435ed30a8b4aeb0877cef0c6e8cffe834eb865f",
        ),
        (
            "ethereum-blockchain.blocks",
            33,
            {"transactions": 32, "authorisations": 0},
            "a94f5374fce5edbc8e2a8697c15331677e6ebf0b",
        ),
    ],
)
def test_real_blocks(shared, client, name, blocks, kinds, sender):
    found = list(records((shared / "real" / name).read_bytes()))
    assert len(found) == blocks
    assert sum(record.transactions for record in found) == kinds["transactions"]
    assert not any(record.unverifiable for record in found)
    signed = [item for record in found for item in record.signed]
    outcome = verify_signed(client, signed)
    assert outcome.valid.all()
    by = Counter(("authorisation" in item.where, outcome.addresses[place].hex()) for place, item in enumerate(signed))
    assert by[False, sender] == kinds["transactions"]
    assert sum(count for (kind, _), count in by.items() if kind) == kinds["authorisations"]
