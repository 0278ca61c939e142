import hashlib
import random

import _ecdsa
import numpy as np
import pytest
from coincurve import PrivateKey

from node_adapter.client import MockVerifier, SignatureEncoding, VerifierClient
from node_adapter.errors import FormatError
from node_adapter.formats import Outcome, Signed, settle, verify_signed
from node_adapter.formats._bitcoin import (
    Input,
    Output,
    Reader,
    Transaction,
    compact,
    double_sha256,
    merkle_root,
    pushes,
)
from node_adapter.formats._script import hash160 as _hash160
from node_adapter.formats._script import run, without
from node_adapter.formats.bitcoin import read_spent, records
from verifier.model import Code

KEYS = [PrivateKey(bytes(31) + bytes([n])) for n in range(1, 5)]
PUBLIC = [key.public_key.format() for key in KEYS]
SPENT = b"p" * 32


@pytest.fixture
def client():
    with MockVerifier(_ecdsa.verify) as daemon, VerifierClient(daemon.target) as client:
        yield client


def push(*values):
    return b"".join((b"\x4c" if len(v) > 75 else b"") + bytes([len(v)]) + v for v in values)


def to_hash(key):
    return b"\x76\xa9\x14" + _hash160(key) + b"\x88\xac"


def to_script_hash(script):
    return b"\xa9\x14" + _hash160(script) + b"\x87"


def multisig(wanted, keys):
    return bytes([0x50 + wanted]) + push(*keys) + bytes([0x50 + len(keys), 0xAE])


def transaction(count=1, outputs=2):
    inputs = [Input(SPENT, number, b"", b"\xfe\xff\xff\xff") for number in range(count)]
    return Transaction(
        b"\2\0\0\0", inputs, [Output(5000 + n, b"\x51") for n in range(outputs)], [[]] * count, bytes(4)
    )


def with_script(tx, scripts, witnesses=None):
    inputs = [Input(i.previous, i.index, script, i.sequence) for i, script in zip(tx.inputs, scripts, strict=True)]
    return Transaction(tx.version, inputs, tx.outputs, witnesses or [[]] * len(inputs), tx.lock_time)


def serialised(tx):
    inputs = b"".join(i.outpoint + compact(len(i.script)) + i.script + i.sequence for i in tx.inputs)
    outputs = b"".join(o.serialised() for o in tx.outputs)
    body = compact(len(tx.inputs)) + inputs + compact(len(tx.outputs)) + outputs
    if not any(tx.witnesses):
        return tx.version + body + tx.lock_time
    witness = b"".join(compact(len(w)) + b"".join(compact(len(v)) + v for v in w) for w in tx.witnesses)
    return tx.version + b"\0\1" + body + witness + tx.lock_time


def block(*transactions, time=1_500_000_000, root=None):
    coinbase = Transaction(
        b"\1\0\0\0", [Input(bytes(32), 0xFFFFFFFF, b"\1\2\3", bytes(4))], [Output(1, b"")], [[]], bytes(4)
    )
    every = [coinbase, *transactions]
    root = merkle_root([tx.id for tx in every]) if root is None else root
    header = bytes(36) + root + time.to_bytes(4, "little") + bytes(8)
    return header + compact(len(every)) + b"".join(map(serialised, every))


def verdicts(client, data, **options):
    found = list(records(data, **options))
    signed = [item for record in found for item in record.signed]
    codes = [v.code for v in settle(signed, verify_signed(client, signed))] if signed else []
    return codes, [item.why for record in found for item in record.unverifiable]


@pytest.mark.parametrize("kind", [1, 2, 3, 0x81, 0x82, 0x83])
@pytest.mark.parametrize("known", [False, True])
def test_pay_to_key_hash_with_every_hash_type(client, kind, known):
    tx = transaction(3)
    scripts = []
    for number in range(3):
        digest = tx.legacy_digest(number, to_hash(PUBLIC[number]), kind)
        scripts.append(push(KEYS[number].sign(digest, hasher=None) + bytes([kind]), PUBLIC[number]))
    spent = {(SPENT, n): Output(7, to_hash(PUBLIC[n])) for n in range(3)} if known else None
    codes, why = verdicts(client, block(with_script(tx, scripts)), spent=spent)
    assert codes == [Code.VALID] * 3
    assert why == []


def test_single_without_its_output_signs_the_number_one():
    digest = transaction(3).legacy_digest(2, b"", 3)
    assert digest == b"\1" + bytes(31)
    assert transaction(3).legacy_digest(1, b"", 3) != digest


def test_bare_keys_need_what_they_spend(client):
    tx = transaction()
    script = push(PUBLIC[0]) + b"\xac"
    signature = KEYS[0].sign(tx.legacy_digest(0, script, 1), hasher=None) + b"\1"
    data = block(with_script(tx, [push(signature)]))
    assert verdicts(client, data) == ([], ["only signatures are shown, and the output with their keys is not given"])
    assert verdicts(client, data, spent={(SPENT, 0): Output(7, script)}) == ([Code.VALID], [])


@pytest.mark.parametrize(
    ("signers", "codes"),
    [
        ((0, 1), [Code.VALID, Code.VALID]),
        ((0, 2), [Code.VALID, Code.VALID]),
        ((1, 2), [Code.VALID, Code.VALID]),
        ((2, 1), [Code.INVALID, Code.VALID]),  # not in the keys' order
        ((1, 1), [Code.VALID, Code.INVALID]),  # one key for two
        ((0, 3), [Code.VALID, Code.INVALID]),
    ],
)
@pytest.mark.parametrize("hashed", [True, False])
def test_multi_signatures(client, signers, codes, hashed):
    tx = transaction()
    script = multisig(2, PUBLIC[:3])
    digest = tx.legacy_digest(0, script, 1)
    signatures = [KEYS[n].sign(digest, hasher=None) + b"\1" for n in signers]
    shown = b"\0" + push(*signatures) + (push(script) if hashed else b"")
    spent = None if hashed else {(SPENT, 0): Output(7, script)}
    assert verdicts(client, block(with_script(tx, [shown])), spent=spent) == (codes, [])


def test_an_undecided_key_leaves_the_signature_undecided():
    def item(signature, key):
        return Signed(f"signature {signature}", None, b"", b"", choice=("input", signature, key))

    items = [item(0, 0), item(0, 1), item(1, 1), item(1, 2)]
    cases = {
        (2, 0, 2, 1): [Code.UNDECIDED, Code.VALID],
        (2, 1, 1, 2): [Code.VALID, Code.INVALID],
        # Whether key 1 is left for the second signature depends on what is undecided about the first.
        (2, 0, 1, 2): [Code.UNDECIDED, Code.UNDECIDED],
        (0, 1, 1, 2): [Code.VALID, Code.UNDECIDED],
        (0, 1, 1, 1): [Code.VALID, Code.VALID],
        (0, 0, 2, 2): [Code.UNDECIDED, Code.INVALID],
    }
    for codes, expected in cases.items():
        assert [v.code for v in settle(items, Outcome(np.array(codes, np.uint8)))] == expected


def test_witness_digest_is_that_of_bip_143():
    # The BIP's first example (native P2WPKH): the second input is signed.
    unsigned = bytes.fromhex(
        "0100000002fff7f7881a8099afa6940d42d1e7f6362bec38171ea3edf433541db4e4ad969f0000000000eeffffff"
        "ef51e1b804cc89d182d279655c3aa89e815b1b309fe287d9b2b55d57b90ec68a0100000000ffffffff"
        "02202cb206000000001976a9148280b37df378db99f66f85c95a783a76ac7a6d5988ac"
        "9093510d000000001976a9143bde42dbee7e4dbe6a21b2d50ce2f0167faa815988ac11000000"
    )
    tx = Transaction.read(Reader(unsigned))
    script = (
        b"\x76\xa9\x14"
        + _hash160(bytes.fromhex("025476c2e83188368da1ff3e292e7acafcdb3566bb0ad253f62fc70f07aeee6357"))
        + b"\x88\xac"
    )
    digest = tx.witness_digest(1, script, 600_000_000, 1)
    assert digest.hex() == "c37af31116d1b27caf68aae9e3ac82f1477929014d5b917657d0eb49478cb670"


@pytest.mark.parametrize("kind", [1, 2, 3, 0x81, 0x82, 0x83])
@pytest.mark.parametrize("nested", [False, True])
def test_witness_inputs(client, kind, nested):
    tx = transaction(2)
    programs = [b"\0\x14" + _hash160(PUBLIC[0]), b"\0\x20" + hashlib.sha256(multisig(2, PUBLIC[:3])).digest()]
    first = tx.witness_digest(0, to_hash(PUBLIC[0]), 900, kind)
    second = tx.witness_digest(1, multisig(2, PUBLIC[:3]), 901, kind)
    witnesses = [
        [KEYS[0].sign(first, hasher=None) + bytes([kind]), PUBLIC[0]],
        [b"", *(KEYS[n].sign(second, hasher=None) + bytes([kind]) for n in (0, 2)), multisig(2, PUBLIC[:3])],
    ]
    scripts = [push(program) if nested else b"" for program in programs]
    data = block(with_script(tx, scripts, witnesses))
    locks = [to_script_hash(program) if nested else program for program in programs]
    spent = {(SPENT, n): Output(900 + n, lock) for n, lock in enumerate(locks)}
    assert verdicts(client, data, spent=spent) == ([Code.VALID] * 3, [])
    wrong = {place: Output(output.amount + 1, output.script) for place, output in spent.items()}
    assert verdicts(client, data, spent=wrong)[0][0] == Code.INVALID
    codes, why = verdicts(client, data)
    assert codes == []
    assert len(why) == 2
    assert all("amount" in text for text in why)


def test_outputs_of_the_same_block_are_known(client):
    first = with_script(transaction(), [b"\x6a"])
    first.outputs[0] = Output(33, push(PUBLIC[0]) + b"\xac")
    second = Transaction(b"\1\0\0\0", [Input(first.id, 0, b"", bytes(4))], [Output(1, b"")], [[]], bytes(4))
    signature = KEYS[0].sign(second.legacy_digest(0, first.outputs[0].script, 1), hasher=None) + b"\1"
    codes, why = verdicts(client, block(first, with_script(second, [push(signature)])))
    assert codes == [Code.VALID]
    assert why == ["its script does more than push values, and the output that is spent is not given"]


@pytest.mark.parametrize(
    ("script", "lock", "why"),
    [
        (push(b"\x30sig", PUBLIC[0]), to_hash(PUBLIC[1]), "a condition of the script is not met"),
        (push(b"script"), to_script_hash(b"other"), "it does not end in true"),
        (push(b"\x30sig"), to_hash(PUBLIC[0]), "a condition of the script is not met"),
        (b"\x61" + push(b"\x51"), to_script_hash(b"\x51"), "does more than push values"),
        (b"", b"\x51\x20" + bytes(32), "Taproot"),
        (b"\x51", b"\0\x14" + bytes(20), "the input's script is not empty"),
        (b"", b"\0\x15" + bytes(21), "with 21 bytes; it has 20 or 32"),
        (b"", b"\0\x14" + bytes(20), "0 witness values"),
        (b"", b"\0\x20" + bytes(32), "does not have the hash"),
        (b"\x51", b"\x75\x51\x6a", "its script fails: OP_RETURN"),
        (b"\0\0", b"\x52" + push(*PUBLIC[:2]) + b"\x52\xae", "a value is missing"),
        (b"\0" + push(b"s"), b"\x52" + push(PUBLIC[0]) + b"\x51\xae", "2 signatures by 1 keys"),
        (b"\0", push(PUBLIC[0]) + b"\xac", "it does not end in true"),
        (push(b"s") + push(PUBLIC[0]) + b"\xac", b"\x51", "own script checks signatures"),
        (b"\x51", b"\x63\x51", "IF without its ENDIF"),
        (b"\x51", b"\x68", "without its IF"),
        (b"\x51", b"\x7e", "0x7e is disabled"),
        (b"\x51", b"\x50", "0x50 is not known"),
        (b"\x51", b"\x61" * 202, "more than 201 operations"),
        (b"\x51" * 1001, b"\x51", "more than 1000 values"),
        (push(b"12345"), b"\x8b", "a number of 5 bytes"),
        (b"\x51", b"\x02a", "runs over the script's end"),
        (b"\x60\x51\x93", b"\xae", "a value is missing"),
        (b"\x51" + push(b"\x15"), b"\xae", "21 keys"),
        (b"", None, "nothing tells its kind"),
        (b"\x61", None, "does more than push values"),
        (push(b"\x51"), None, "checks no signature"),
    ],
)
def test_what_is_not_verifiable(client, script, lock, why):
    spent = {(SPENT, 0): Output(7, lock)} if lock is not None else None
    codes, reasons = verdicts(client, block(with_script(transaction(), [script])), spent=spent)
    assert codes == []
    assert why in reasons[0]


@pytest.mark.parametrize(
    ("script", "lock", "why"),
    [
        (b"", b"\x51", "its script checks no signature"),
        (b"\x57", b"\x57\x9c", "its script checks no signature"),
        (b"", b"\x51\x02\x4e\x73", "version 1 and 2 bytes"),
        (push(b"\x51"), to_script_hash(b"\x51"), "its script checks no signature"),
    ],
)
def test_what_nobody_signs(script, lock, why):
    data = block(with_script(transaction(), [script]))
    record = list(records(data, spent={(SPENT, 0): Output(7, lock)}))[1]
    assert (record.signed, record.unverifiable) == ((), ())
    assert why in record.unsigned[0].why


def test_a_witness_that_looks_like_taproot():
    record = list(records(block(with_script(transaction(), [b""], [[bytes(64)]]))))[1]
    assert "looks like Taproot" in record.unverifiable[0].why


def test_before_bip_16_a_script_hash_is_only_compared():
    spent = {(SPENT, 0): Output(7, to_script_hash(multisig(1, PUBLIC[:1])))}
    tx = with_script(transaction(), [push(multisig(1, PUBLIC[:1]))])
    early, late = (
        list(records(block(tx, time=time), spent=dict(spent)))[1] for time in (1_300_000_000, 1_400_000_000)
    )
    assert early.unsigned[0].why == "its script checks no signature"
    assert "a value is missing" in late.unverifiable[0].why


def signed_with(script, shape, kind=1, key=0):
    """A block that spends `script`, its input's script made by `shape` from a signature; and what it spends."""
    tx = transaction()
    signature = KEYS[key].sign(tx.legacy_digest(0, script, kind), hasher=None) + bytes([kind])
    return block(with_script(tx, [shape(signature)])), {(SPENT, 0): Output(7, script)}


def test_scripts_of_any_other_kind(client):
    digest = hashlib.sha256(b"secret").digest()
    lock = (
        b"\x63\xa8"
        + push(digest)
        + b"\x88"
        + push(PUBLIC[0])
        + b"\x67\x03\1\2\3\xb1\x75"
        + push(PUBLIC[1])
        + b"\x68\xac"
    )
    for key, shape in ((0, lambda s: push(s, b"secret") + b"\x51"), (1, lambda s: push(s) + b"\0")):
        data, spent = signed_with(lock, shape, key=key)
        assert verdicts(client, data, spent=spent) == ([Code.VALID], [])
        data, spent = signed_with(lock, shape, key=1 - key)
        assert verdicts(client, data, spent=spent) == ([Code.INVALID], [])


def test_several_checks_of_one_script_are_named():
    lock = push(PUBLIC[0]) + b"\xad" + push(PUBLIC[1]) + b"\xac"
    data, spent = signed_with(lock, lambda s: push(s, s))
    record = list(records(data, spent=spent))[1]
    assert [item.where.split(" input ")[1] for item in record.signed] == ["0 check 0", "0 check 1"]


def test_a_separator_of_an_old_script(client):
    lock = push(PUBLIC[0]) + b"\xad\xab" + push(PUBLIC[1]) + b"\xac"
    tx = transaction()
    behind = lock[lock.index(b"\xad\xab") + 2 :]
    first = KEYS[0].sign(tx.legacy_digest(0, lock, 1), hasher=None) + b"\1"
    second = KEYS[1].sign(tx.legacy_digest(0, behind, 1), hasher=None) + b"\1"
    assert tx.legacy_digest(0, lock, 1) == tx.legacy_digest(0, lock.replace(b"\xad\xab", b"\xad"), 1)
    data = block(with_script(tx, [push(second, first)]))
    assert verdicts(client, data, spent={(SPENT, 0): Output(7, lock)}) == ([Code.VALID] * 2, [])


def test_hybrid_keys(client):
    point = KEYS[0].public_key.format(compressed=False)
    right = bytes([6 | point[-1] & 1]) + point[1:]
    wrong = bytes([right[0] ^ 1]) + point[1:]
    for key, code in ((right, Code.VALID), (wrong, Code.KEY_NOT_ON_CURVE)):
        data, spent = signed_with(to_hash(key), lambda s, key=key: push(s, key))
        assert verdicts(client, data, spent=spent) == ([code], [])


def test_keys_that_are_none_do_not_spoil_a_multi_signature(client):
    """Data in the place of keys, as Counterparty and others wrote it."""
    for junk in (b"j" * 33, b"\2" + bytes(32), b"short", b"k" * 65):
        lock = b"\x51" + push(junk, PUBLIC[0]) + b"\x52\xae"
        data, spent = signed_with(lock, lambda s: b"\0" + push(s))
        assert verdicts(client, data, spent=spent) == ([Code.VALID], [])


def test_what_is_left_of_a_script():
    signature = b"\x30" * 71
    script = push(signature, b"key") + b"\xac"
    assert without(script, push(signature)) == push(b"key") + b"\xac"
    assert without(push(b"\xab") + b"\xab\xab\xac", b"\xab") == push(b"\xab") + b"\xac"
    assert without(b"\xab\x05ab", b"\xab") == b"\x05ab"
    assert without(script, b"") == script


@pytest.mark.parametrize(
    ("script", "left"),
    [
        (b"\x51\x52\x6d", []),
        (b"\x51\x52\x6e", [b"\1", b"\2", b"\1", b"\2"]),
        (b"\x51\x52\x53\x6f", [b"\1", b"\2", b"\3"] * 2),
        (b"\x51\x52\x53\x54\x70", [b"\1", b"\2", b"\3", b"\4", b"\1", b"\2"]),
        (b"\x51\x52\x53\x54\x55\x56\x71", [b"\3", b"\4", b"\5", b"\6", b"\1", b"\2"]),
        (b"\x51\x52\x53\x54\x72", [b"\3", b"\4", b"\1", b"\2"]),
        (b"\x51\x6b\x52\x6c\x73\0\x73", [b"\2", b"\1", b"\1", b""]),
        (b"\x51\x52\x77\x74", [b"\2", b"\1"]),
        (b"\x51\x52\x78\x7b", [b"\2", b"\1", b"\1"]),
        (b"\x51\x52\x53\x7c\x7d", [b"\1", b"\2", b"\3", b"\2"]),
        (b"\x51\x52\x53\x52\x79", [b"\1", b"\2", b"\3", b"\1"]),
        (b"\x51\x52\x53\x52\x7a", [b"\2", b"\3", b"\1"]),
        (b"\x4f\x90\x8f\x8c", [b"\x82"]),
        (b"\x60\x82", [b"\x10", b"\1"]),
        (b"\x02\xff\0\x8b", [b"\0\1"]),
        (b"\x51\x52\x94\x91\x92", [b""]),
        (b"\x51\0\x9a\x51\0\x9b", [b"", b"\1"]),
        (b"\x51\x52\x9f\x51\x52\xa0\x51\x51\xa1\x51\x52\xa2\x9e", [b"\1", b"", b"\1"]),
        (b"\x51\x52\xa3\x51\x52\xa4", [b"\1", b"\2"]),
        (b"\x51\x51\x52\xa5\x52\x51\x52\xa5", [b"\1", b""]),
        (b"\x51\x51\x9d\0\x64\x52\x67\x53\x68", [b"\2"]),
        (b"\0\x63\x63\x51\x67\x52\x68\x67\x53\x68", [b"\3"]),
        (b"\x51\xa7\x82", [hashlib.sha1(b"\1").digest(), b"\x14"]),
        (b"\x51\xaa", [double_sha256(b"\1")]),
        (b"\x51\xa9", [_hash160(b"\1")]),
    ],
)
def test_operations_of_scripts(script, left):
    stack = []
    assert run(script, stack) == []
    assert stack == left


def test_a_nodes_own_file_holds_many_blocks(client):
    tx = with_script(transaction(), [push(b"\x30sig\1", PUBLIC[0])])
    one, two = block(tx), block()
    magic = bytes.fromhex("f9beb4d9")
    data = b"".join(magic + len(b).to_bytes(4, "little") + b for b in (one, two)) + bytes(100)
    found = list(records(data))
    assert [record.name.split(" transaction")[0] for record in found] == ["block 0", "block 0", "block 1"]
    with pytest.raises(FormatError, match="a block begins with the magic") as caught:
        list(records(data[:-100] + b"rubbish!"))
    assert caught.value.offset == len(data) - 100
    with pytest.raises(FormatError, match="a block of 4294967295 bytes, but") as caught:
        list(records(data[:-100] + magic + b"\xff" * 4))
    assert caught.value.offset == len(data) - 96
    with pytest.raises(FormatError, match="1 bytes behind the block"):
        list(records(magic + (len(two) + 1).to_bytes(4, "little") + two + b"!"))


def test_outputs_are_handed_on_from_file_to_file(client):
    first = transaction()
    first.outputs[0] = Output(33, push(PUBLIC[0]) + b"\xac")
    second = Transaction(b"\1\0\0\0", [Input(first.id, 0, b"", bytes(4))], [Output(1, b"")], [[]], bytes(4))
    signature = KEYS[0].sign(second.legacy_digest(0, first.outputs[0].script, 1), hasher=None) + b"\1"
    coins = {}
    list(records(block(first), spent=coins))
    assert verdicts(client, block(with_script(second, [push(signature)])), spent=coins) == ([Code.VALID], [])


def test_old_blocks_are_read_laxly():
    tx = with_script(transaction(), [push(b"\x30sig\1", PUBLIC[0])])
    for time, encoding in ((1_400_000_000, SignatureEncoding.DER_LAX), (1_500_000_000, SignatureEncoding.DER_STRICT)):
        found = list(records(block(tx, time=time)))
        assert found[1].signed[0].scheme.signature_encoding is encoding


def test_a_block_with_other_transactions_than_were_mined(client):
    codes, why = verdicts(client, block(root=bytes(32)))
    assert codes == []
    assert "Merkle root mismatch" in why[0]
    assert bytes(32).hex() in why[0]


def test_merkle_roots():
    # Main-net block 100,000.
    names = [
        bytes.fromhex(name)[::-1]
        for name in (
            "8c14f0db3df150123e6f3dbbf30f8b955a8249b62ac1d1ff16284aefa3d06d87",
            "fff2525b8931402dd09222c50775608f75787bd2b87e56995a7bdd30f79702c4",
            "6359f0868171b1d194cbee1af2f16ea598ae8fad666d9b012c8ed2b79a236ec4",
            "e9a66845e05d5abc0ad04ec80f774a7e585c6e8db975962d069a522137b80c1d",
        )
    ]
    assert merkle_root(names)[::-1].hex() == "f3e94742aca4b5ef85488dc37c06c3282295ffec960994b2c0d5ac2a25a95766"
    pair = double_sha256(names[0] + names[1])
    assert merkle_root(names[:3]) == double_sha256(pair + double_sha256(names[2] + names[2]))
    assert merkle_root(names[:1]) == names[0]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda d: d[:79], "block header of 80 bytes, but 79"),
        (lambda d: d + b"!", "1 bytes behind the block"),
        (lambda d: d[:-1], "lock time of 4 bytes, but 3"),
        (lambda d: d[:80] + b"\xfd\2\0" + d[81:], "not minimal"),
        (lambda d: d[:80] + b"\xff" + b"\xff" * 8, "are left"),
    ],
)
def test_broken_blocks(change, text):
    data = block(with_script(transaction(), [push(b"\x30sig\1", PUBLIC[0])]))
    with pytest.raises(FormatError, match=text):
        list(records(change(data)))


def test_what_came_before_a_cut_stays():
    data = block(*(with_script(transaction(), [push(b"\x30sig\1", PUBLIC[0])]) for _ in range(3)))
    found = records(data[:-10])
    assert [len(next(found).signed) for _ in range(3)] == [0, 1, 1]
    with pytest.raises(FormatError):
        next(found)


def test_pushes():
    assert pushes(b"\0\x51\x60\x02ab\x4c\x01c\x4d\x01\0d\x4e\x01\0\0\0e") == [
        b"",
        b"\1",
        b"\x10",
        b"ab",
        b"c",
        b"d",
        b"e",
    ]
    assert pushes(b"\x02a") is None
    assert pushes(b"\x76") is None


def test_spent_outputs_from_text():
    coins = read_spent(f"{bytes(range(32)).hex()}:3 77 5151\n\n")
    assert coins == {(bytes(range(32))[::-1], 3): Output(77, b"\x51\x51")}
    with pytest.raises(FormatError, match="txid:index") as caught:
        read_spent(f"{bytes(32).hex()}:3 77 5151\nnothing\n")
    assert caught.value.offset == 75


def test_spent_outputs_as_a_node_prints_them():
    name = bytes(range(32))
    prevout = '{"value": 0.00000077, "scriptPubKey": {"hex": "5151"}}'
    vin = f'[{{"coinbase": "00"}}, {{"txid": "{name.hex()}", "vout": 3, "prevout": {prevout}}}]'
    assert read_spent(f'{{"tx": [{{"vin": {vin}}}]}}') == {(name[::-1], 3): Output(77, b"\x51\x51")}
    for text, why in (
        ('{"tx": [', "not JSON"),
        (f'{{"tx": [{{"vin": [{{"txid": "{name.hex()}", "vout": 3}}]}}]}}', "no block with its prevouts: KeyError"),
        (f'{{"tx": [{{"vin": {vin.replace("0.00000077", "0.000000077")}}}]}}', "no amount of bitcoin"),
    ):
        with pytest.raises(FormatError, match=why):
            read_spent(text)


def test_the_real_block(shared, client):
    data = (shared / "real" / "bitcoin-block-413567.raw").read_bytes()
    found = list(records(data))
    assert sum(record.transactions for record in found) == 1557
    signed = [item for record in found for item in record.signed]
    settled = settle(signed, verify_signed(client, signed))
    assert len(settled) == 5815
    # One signature of the file is not valid, and the file says why: it is not the block that was mined.
    assert [v.where.split()[1:] for v in settled if v.code is not Code.VALID] == [
        ["513", "5c2830d2178a94769b91beff5eb482c069a620cd7feb038aae0c7aea48734a90", "input", "44"]
    ]
    assert [item.where for record in found for item in record.unverifiable] == ["block header"]


def test_a_flipped_bit_changes_exactly_the_verdicts_that_depend_on_it(client):
    txs = []
    for number in range(3):
        tx = transaction(2)
        scripts = [
            push(KEYS[n].sign(tx.legacy_digest(n, to_hash(PUBLIC[n]), kind), hasher=None) + bytes([kind]), PUBLIC[n])
            for n, kind in ((0, 1), (1, (1, 0x81, 3)[number]))
        ]
        txs.append(with_script(tx, scripts))
    data = block(*txs)
    good = [item for record in records(data) for item in record.signed]
    rng = random.Random(13)
    changed = kept = 0
    for _ in range(200):
        bit = rng.randrange(8 * 81, 8 * len(data))
        spoilt = bytearray(data)
        spoilt[bit // 8] ^= 1 << bit % 8
        items = []
        try:
            for record in records(bytes(spoilt)):
                items += record.signed
        except FormatError:
            pass
        if not items:
            continue
        for item, code in zip(items, verify_signed(client, items).codes, strict=True):
            same = any((item.input, item.signature, item.key) == (g.input, g.signature, g.key) for g in good)
            assert same == (code == Code.VALID), f"bit {bit}, {item.where}"
            changed += not same
            kept += same
    assert changed
    assert kept
