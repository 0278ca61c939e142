"""Rules that blocks of Bitcoin keep since some time: what passed before fails since, and is named."""

import hashlib

import pytest
from _bitcoin_blocks import (
    KEYS,
    PUBLIC,
    SPENT,
    block,
    multisig,
    push,
    serialised,
    to_script_hash,
    transaction,
    verdicts,
    with_script,
)

from node_adapter.formats._bitcoin import Input, Output, Transaction, merkle_root
from node_adapter.formats._rules import Rules
from node_adapter.formats._script import number, strictly_encoded
from node_adapter.formats.bitcoin import records
from verifier.model import Code

BY_LOCK_TIME, BY_SEQUENCE, NULL_DUMMY, TAPROOT = 1_450_200_000, 1_467_800_000, 1_503_600_000, 1_636_900_000


def why(lock, script=b"", time=2_000_000_000, *, version=2, lock_time=0, sequence=0, witness=()):
    """Why spending `lock` is not verifiable: nothing where it is."""
    spending = [Input(SPENT, 0, script, sequence.to_bytes(4, "little"))]
    tx = Transaction(
        version.to_bytes(4, "little"),
        spending,
        [Output(1, b"\x51")],
        [list(witness)],
        lock_time.to_bytes(4, "little"),
    )
    record = list(records(block(tx, time=time), spent={(SPENT, 0): Output(7, lock)}))[1]
    return record.unverifiable[0].why if record.unverifiable else None


@pytest.mark.parametrize(
    ("told", "lock_time", "sequence", "text"),
    [
        (100, 100, 0, None),
        (100, 99, 0, "locked until 100; the transaction's lock time is 99"),
        (100, 500_000_000, 0, "of which one is a height"),
        (500_000_000, 500_000_001, 0xFFFFFFFE, None),
        (500_000_000, 500_000_001, 0xFFFFFFFF, "switches lock times off"),
        (1 << 32, 0xFFFFFFFF, 0, "locked until 4294967296"),
    ],
)
def test_lock_times(told, lock_time, sequence, text):
    options = {"lock_time": lock_time, "sequence": sequence}
    lock = push(number(told)) + b"\xb1\x75\x51"
    assert text in why(lock, **options) if text else why(lock, **options) is None
    assert why(lock, time=BY_LOCK_TIME - 1, **options) is None


@pytest.mark.parametrize(
    ("told", "sequence", "version", "text"),
    [
        (5, 5, 2, None),
        (6, 5, 2, "locked for 6; the input's sequence is 5"),
        (5, 1 << 22 | 5, 2, "of which one counts blocks"),
        (1 << 22 | 5, 1 << 22 | 9, 2, None),
        (5, 5, 1, "no relative lock time"),
        (5, 1 << 31 | 5, 2, "no relative lock time"),
        (1 << 31 | 5, 0, 1, None),
        (5, 1 << 16 | 5, 0xFFFFFFFF, None),
    ],
)
def test_relative_lock_times(told, sequence, version, text):
    options = {"sequence": sequence, "version": version}
    lock = push(number(told)) + b"\xb2\x75\x51"
    assert text in why(lock, **options) if text else why(lock, **options) is None
    assert why(lock, time=BY_SEQUENCE - 1, **options) is None


@pytest.mark.parametrize(
    ("value", "text"),
    [(b"\x81", "a lock time of -1"), (bytes(6), "a number of 6 bytes"), (None, "a value is missing")],
)
@pytest.mark.parametrize("code", [0xB1, 0xB2])
def test_lock_times_that_are_none(code, value, text):
    lock = (b"" if value is None else push(value)) + bytes([code, 0x51])
    assert text in why(lock)


def test_the_value_below_the_signatures_is_empty_since_bip_147(client):
    lock = multisig(1, PUBLIC[:1])
    tx = transaction()
    signature = KEYS[0].sign(tx.legacy_digest(0, lock, 1), hasher=None) + b"\1"
    tx = with_script(tx, [b"\x51" + push(signature)])
    old, new = (
        verdicts(client, block(tx, time=time), spent={(SPENT, 0): Output(7, lock)})
        for time in (NULL_DUMMY - 1, NULL_DUMMY)
    )
    assert old == ([Code.VALID], [])
    assert new == ([], ["its script fails: the value below the signatures is not empty (BIP 147)"])


def test_taproot_is_named_since_it_holds():
    program = b"\x51\x20" + b"\1" * 32
    assert why(program, time=TAPROOT - 1) is None
    assert "a Taproot input" in why(program, time=TAPROOT)
    assert why(to_script_hash(program), push(program)) is None  # behind a hash it has no rules yet


def test_signatures_that_are_not_asked_about_are_in_strict_der_since_bip_66():
    for script, lock in (
        (push(b"s"), push(b"no key") + b"\xac\x91"),
        (b"\0\0" + push(b"s"), multisig(2, PUBLIC[:2]) + b"\x91"),
    ):
        assert why(lock, script, time=1_400_000_000) is None
        assert "not in strict DER (BIP 66)" in why(lock, script)
    assert why(multisig(2, PUBLIC[:2]) + b"\x91", b"\0" + push(b"s") + b"\0") is None  # the empty one comes first


@pytest.mark.parametrize(
    ("signature", "strict"),
    [
        ("300602010102010101", True),
        ("3008020200ff020200ff01", True),
        ("300702020001020101" + "01", False),
        ("300602018102010101", False),
        ("30050200020101" + "01" * 2, False),
        ("300602010102010aff", True),
        ("300603010102010101", False),
        ("30060201010201010101", False),
        ("3006020101020101", False),
        ("30440220" + "11" * 32 + "0220" + "11" * 32 + "01", True),
        ("30460222" + "11" * 34 + "0220" + "11" * 32 + "01", True),
        ("30480222" + "11" * 34 + "0222" + "11" * 34 + "01", False),
        ("", False),
    ],
)
def test_strict_der(signature, strict):
    assert strictly_encoded(bytes.fromhex(signature)) == strict


def test_witnesses_where_they_do_not_belong():
    lock = b"\0\x20" + hashlib.sha256(b"\x51").digest()
    assert why(lock, witness=[b"\x51"]) is None
    assert "spends no witness program" in why(b"\x51", witness=[b"\1"])
    assert why(to_script_hash(lock), push(lock), witness=[b"\x51"]) is None
    assert "does more than push it" in why(to_script_hash(lock), b"\x51" + push(lock), witness=[b"\x51"])
    assert "leaves 2 values" in why(lock, witness=[b"\1", b"\x51"])
    drop = b"\0\x20" + hashlib.sha256(b"\x75\x51").digest()
    assert why(drop, witness=[bytes(520), b"\x75\x51"]) is None
    assert "a witness value of 521 bytes" in why(drop, witness=[bytes(521), b"\x75\x51"])


def test_rules_come_one_after_the_other():
    counts = [
        sum(getattr(Rules.at(time), name) for name in Rules.__slots__)
        for time in (0, 1_333_238_400, 1_436_000_000, BY_LOCK_TIME, BY_SEQUENCE, NULL_DUMMY, TAPROOT)
    ]
    assert counts == list(range(7))


def test_new_money_is_made_once():
    coinbase = Transaction(
        b"\1\0\0\0", [Input(bytes(32), 0xFFFFFFFF, b"\4", bytes(4))], [Output(9, b"")], [[]], bytes(4)
    )
    (_, record) = records(block(coinbase))
    assert "it spends nothing" in record.unverifiable[0].why
    first = with_script(transaction(), [b"\x51"])
    data = block(first)
    only = data[:36] + first.id + data[68:80] + b"\1" + data[-_length(first) :]
    assert [item.why for item in list(records(only))[-1].unverifiable] == ["the first transaction is no coinbase"]


def _length(tx):
    return len(block(tx)) - len(block())


def test_a_doubled_transaction_has_the_same_root():
    one, two = (with_script(transaction(outputs=n), [push(b"\x30sig\1", PUBLIC[0])]) for n in (1, 2))
    data, doubled = block(one, two), block(one, two, two)
    assert data[:80] == doubled[:80]
    assert len(list(records(data))) == 3
    assert "a transaction stands twice" in list(records(doubled))[-1].unverifiable[0].why


def test_witnesses_are_those_that_the_coinbase_commits_to(client):
    tx = with_script(transaction(), [b""], [[b"\1" * 64, b"witness"]])
    why = [item.why for record in records(block(tx)) for item in record.unverifiable]
    assert len(why) == 1
    data = block(tx)
    changed = data.replace(b"witness", b"Witness")
    assert "witness commitment mismatch" in list(records(changed))[-1].unverifiable[0].why
    bare = list(records(block(tx, commitment=False)))[-1]
    assert bare.unverifiable[0].why == "transactions have witnesses, but the coinbase does not commit to them"
    reserved = data.replace(b"\1\x20" + bytes(32), b"\1\x1f" + bytes(31))
    assert "not one value of 32 bytes" in list(records(reserved))[-1].unverifiable[0].why


def test_a_block_without_its_witnesses_is_not_at_fault():
    """As nodes give it to those who know no witnesses: its coinbase tells."""
    lock = b"\0\x14" + b"\1" * 20
    tx = with_script(transaction(), [b""], [[b"s", PUBLIC[0]]])
    data = block(tx)
    bare = block(with_script(transaction(), [b""]))
    commitment = data[data.index(bytes.fromhex("6a24aa21a9ed")) :][:38]
    first = Transaction(
        b"\1\0\0\0", [Input(bytes(32), 0xFFFFFFFF, b"\1\2\3", bytes(4))], [Output(0, commitment)], [[]], bytes(4)
    )
    head = data[:36] + merkle_root([first.id, tx.id]) + data[68:81]
    stripped = head + serialised(first) + bare[-_length(with_script(transaction(), [b""])) :]
    record, *rest = list(records(stripped, spent={(SPENT, 0): Output(7, lock)}))[1:]
    assert [item.why for item in record.unverifiable] == [
        "its witness is not given: the block was written without witnesses"
    ]
    assert rest == []


def test_long_signatures_are_left_out_of_what_they_sign():
    """What a lax reading takes may be longer than any push with one byte of length."""
    long = bytes(300) + b"\1"
    lock = b"\x4d" + len(long).to_bytes(2, "little") + long + push(PUBLIC[0]) + b"\xac"
    tx = transaction()
    (signed,) = list(records(block(tx, time=1_400_000_000), spent={(SPENT, 0): Output(7, lock)}))[1].signed
    assert signed.input == tx.legacy_digest(0, push(PUBLIC[0]) + b"\xac", 1)
