"""Ways of spending an output: by keys, hashes of them, scripts and witnesses; and what is not verifiable."""

import hashlib

import numpy as np
import pytest
from _bitcoin_blocks import (
    KEYS,
    PUBLIC,
    SPENT,
    block,
    multisig,
    push,
    signed_with,
    to_hash,
    to_script_hash,
    transaction,
    verdicts,
    with_script,
)

from node_adapter.formats import Outcome, Signed, settle
from node_adapter.formats._bitcoin import Input, Output, Reader, Transaction
from node_adapter.formats._script import hash160
from node_adapter.formats.bitcoin import records
from verifier.model import Code


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
        + hash160(bytes.fromhex("025476c2e83188368da1ff3e292e7acafcdb3566bb0ad253f62fc70f07aeee6357"))
        + b"\x88\xac"
    )
    digest = tx.witness_digest(1, script, 600_000_000, 1)
    assert digest.hex() == "c37af31116d1b27caf68aae9e3ac82f1477929014d5b917657d0eb49478cb670"


@pytest.mark.parametrize("kind", [1, 2, 3, 0x81, 0x82, 0x83])
@pytest.mark.parametrize("nested", [False, True])
def test_witness_inputs(client, kind, nested):
    tx = transaction(2)
    programs = [b"\0\x14" + hash160(PUBLIC[0]), b"\0\x20" + hashlib.sha256(multisig(2, PUBLIC[:3])).digest()]
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
        (b"\x51", b"\0\x14" + bytes(20), "the input's script is not empty"),
        (b"", b"\0\x15" + b"\1" * 21, "with 21 bytes; it has 20 or 32"),
        (b"", b"\0\x14" + b"\1" * 20, "0 witness values"),
        (b"", b"\0\x20" + b"\1" * 32, "does not have the hash"),
        (b"\x51", b"\x75\x51\x6a", "its script fails: OP_RETURN"),
        (b"\0\0", b"\x52" + push(*PUBLIC[:2]) + b"\x52\xae", "a value is missing"),
        (b"\0" + push(b"s"), b"\x52" + push(PUBLIC[0]) + b"\x51\xae", "2 signatures by 1 keys"),
        (b"\0", push(PUBLIC[0]) + b"\xac", "it does not end in true"),
        (b"\x51", b"\x63\x51", "IF without its ENDIF"),
        (b"\x51", b"\x68", "without its IF"),
        (b"\x51", b"\x7e", "0x7e is disabled"),
        (b"\x51", b"\x50", "0x50 is not known"),
        (b"\x51", b"\x61" * 202, "more than 201 operations"),
        (b"\0" * 23, b"\x61" * 181 + b"\x01\x14" + b"\0" * 19 + b"\x01\x14\xae", "more than 201 operations"),
        (b"\x51" * 1001, b"\x51", "more than 1000 values"),
        (push(b"12345"), b"\x8b", "a number of 5 bytes"),
        (b"\x51", b"\x02a", "runs over the script's end"),
        (b"\x60\x51\x93", b"\xae", "a value is missing"),
        (b"\x51" + push(b"\x15"), b"\xae", "21 keys"),
        (push(b"s" * 9), push(PUBLIC[0]) + b"\xac\x91", "it does not end in true, if its signatures are valid"),
        (push(b"s" * 9), push(PUBLIC[0]) + b"\xad\x6a", "OP_RETURN, if the signatures that it has checked"),
        (b"\x4d\x09\x02" + bytes(521), b"\x51", "a value of 521 bytes; at most 520"),
        (b"", b"\0\x63\x4d\x09\x02" + bytes(521) + b"\x68\x51", "a value of 521 bytes; at most 520"),
        (b"", b"\x61" * 10_001, "a script of 10001 bytes; at most 10000"),
        (b"", b"\x52\x02\0\0", "a witness program of zeros"),
        (push(b"\x6a"), None, "is not given; spent as it looks, its script fails: OP_RETURN"),
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
        (b"", b"\x51\x20" + b"\1" * 32, "version 1 and 32 bytes"),  # before Taproot
        (push(b"\x51\x20" + b"\1" * 32), to_script_hash(b"\x51\x20" + b"\1" * 32), "version 1 and 32 bytes"),
        # By what has no form of a key nothing is valid, as this script wants.
        (push(bytes.fromhex("300602010102010101")), push(b"no key") + b"\xac\x91", "checks no signature"),
        (b"\0" + push(b"unasked") + b"\0", b"\x52" + push(*PUBLIC[:2]) + b"\x52\xae\x91", "checks no signature"),
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
