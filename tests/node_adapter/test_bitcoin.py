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
from node_adapter.formats.bitcoin import _hash160, read_spent, records
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
    assert verdicts(client, data) == ([], ["only a signature is shown, and the output with its key is not given"])
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
    assert why == ["the input's script does more than push values"]


@pytest.mark.parametrize(
    ("script", "lock", "why"),
    [
        (push(b"\x30sig", PUBLIC[0]), to_hash(PUBLIC[1]), "does not have the hash"),
        (push(b"script"), to_script_hash(b"other"), "does not have the hash"),
        (push(b"\x30sig"), to_hash(PUBLIC[0]), "1 values for a script"),
        (push(b"a", b"b"), push(PUBLIC[0]) + b"\xac", "2 values for a script"),
        (b"", b"\x51\x20" + bytes(32), "Taproot"),
        (b"\x51", b"\x75\x51", "another kind: 7551"),
        (b"\0" + push(b"s"), multisig(2, PUBLIC[:2]), "2 values for 2 signatures"),
        (b"\0" + push(b"s"), b"\x51" + push(PUBLIC[0]) + b"\x52\xae", "1 signatures of 1 keys"),
        (b"\0\0", push(PUBLIC[0]) + b"\xac", "2 values"),
        (b"\0", push(PUBLIC[0]) + b"\xac", "an empty signature"),
        (push(b"s"), b"\x41\x06" + bytes(64) + b"\xac", "begins with 06"),
        (b"", None, "nothing tells its kind"),
    ],
)
def test_what_is_not_verifiable(client, script, lock, why):
    spent = {(SPENT, 0): Output(7, lock)} if lock is not None else None
    codes, reasons = verdicts(client, block(with_script(transaction(), [script])), spent=spent)
    assert codes == []
    assert why in reasons[0]


def test_old_blocks_are_read_laxly():
    tx = with_script(transaction(), [push(b"\x30sig\1", PUBLIC[0])])
    for time, encoding in ((1_400_000_000, SignatureEncoding.DER_LAX), (1_500_000_000, SignatureEncoding.DER_STRICT)):
        found = list(records(block(tx, time=time)))
        assert found[1].signed[0].scheme.signature_encoding is encoding


def test_a_block_with_other_transactions_than_were_mined(client):
    codes, why = verdicts(client, block(root=bytes(32)))
    assert codes == []
    assert "Merkle root is not that of the transactions" in why[0]


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
