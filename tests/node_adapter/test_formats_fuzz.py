"""Readers of files take any bytes: they give records or raise FormatError inside the file, and nothing else."""

import hashlib
import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from node_adapter.errors import FormatError
from node_adapter.formats import bitcoin, chainmaker, ethereum, fabric, fisco, x509
from node_adapter.formats._bitcoin import Input, Output, Transaction
from node_adapter.formats._rules import Rules
from node_adapter.formats._script import hash160

READERS = {
    "bitcoin": bitcoin.records,
    "chainmaker": chainmaker.records,
    "ethereum": ethereum.records,
    "fabric": fabric.records,
    "fisco": fisco.records,
    "x509": lambda data: x509.load(data, "file"),
}
FILES = {
    "bitcoin": "bitcoin-block-413567.raw",
    "ethereum": "ethereum-blockchain.blocks",
    "fabric": "fabric-v2.0-ledger.blockfile",
    "x509": "sm2-certs/sm_node.crt",
}


def read(name, data):
    offset = 0
    try:
        list(READERS[name](data))
    except FormatError as error:
        offset = error.offset
    assert 0 <= offset <= len(data)


@pytest.mark.parametrize("name", READERS)
@settings(max_examples=150, deadline=None, derandomize=True)
@given(data=st.binary(max_size=400))
def test_any_bytes(name, data):
    read(name, data)


@pytest.mark.parametrize("name", FILES)
def test_real_files_with_bytes_changed(name, shared):
    """The first part of a real file, with a few bytes set to values that lengths and tags like."""
    data = (shared / "real" / FILES[name]).read_bytes()[:20_000]
    rng = random.Random(14)
    for _ in range(150):
        spoilt = bytearray(data)
        for _ in range(rng.randint(1, 4)):
            spoilt[rng.randrange(len(spoilt))] = rng.choice((0, 1, 0x30, 0x7F, 0x80, 0xB9, 0xF9, 0xFD, 0xFE, 0xFF))
        read(name, bytes(spoilt[: rng.randint(1, len(spoilt))]))


FIELDS = (
    "chainId",
    "groupId",
    "version",
    "hash",
    "signature",
    "from",
    "nonce",
    "chainID",
    "groupID",
    "to",
    "input",
    "abi",
    "blockLimit",
)
VALUES = st.one_of(
    st.none(), st.integers(), st.text(max_size=9), st.lists(st.integers(), max_size=2), st.floats(allow_nan=False)
)


@given(st.dictionaries(st.sampled_from((*FIELDS, "value", "transactions")), VALUES))
@settings(max_examples=200, deadline=None, derandomize=True)
def test_any_json(found):
    read("fisco", json.dumps(found).encode())


def script():
    """Any operations, with the small numbers and the values that they take."""
    push = st.binary(max_size=6).map(lambda value: bytes([len(value)]) + value)
    number = st.sampled_from([b"\0", *(bytes([code]) for code in (0x4F, *range(0x51, 0x57)))])
    operation = st.integers(0x4C, 0xFF).map(lambda code: bytes([code]))
    return st.lists(st.one_of(push, number, number, operation), max_size=25).map(b"".join)


@given(
    script(), script(), st.lists(st.binary(max_size=40), max_size=4), st.sampled_from(["bare", "hashed", "witness"])
)
@settings(max_examples=200, deadline=None, derandomize=True)
def test_any_scripts(shown, lock, witness, kind):
    """Whatever scripts do, the block is read to its end: an input is signed, unsigned, or named."""
    inner = lock
    if kind == "hashed":
        lock = b"\xa9\x14" + hash160(inner) + b"\x87"
        shown += bytes([len(inner)]) + inner if len(inner) < 76 else b"\x4c" + bytes([len(inner)]) + inner
    if kind == "witness":
        lock, shown, witness = b"\0\x20" + hashlib.sha256(inner).digest(), b"", [*witness, inner]
    name = b"\1" * 32
    coins = {(name, 0): Output(7, lock)}
    spending = Input(name, 0, shown, bytes(4))
    transaction = Transaction(bytes(4), [spending], [Output(1, b"\x51")], [witness], bytes(4))
    record = bitcoin._record(transaction, "transaction 0", coins, Rules.at(2_000_000_000))
    found = (*record.signed, *record.unverifiable, *record.unsigned)
    assert found
    assert all(item.where.startswith("transaction 0 input 0") for item in found)
