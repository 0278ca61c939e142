"""Readers of files take any bytes: they give records or raise FormatError inside the file, and nothing else."""

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from node_adapter.errors import FormatError
from node_adapter.formats import bitcoin, chainmaker, ethereum, fabric, fisco, x509

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


FIELDS = ("version", "hash", "signature", "from", "nonce", "chainID", "groupID", "to", "input", "abi", "blockLimit")
VALUES = st.one_of(
    st.none(), st.integers(), st.text(max_size=9), st.lists(st.integers(), max_size=2), st.floats(allow_nan=False)
)


@given(st.dictionaries(st.sampled_from((*FIELDS, "value", "transactions")), VALUES))
@settings(max_examples=200, deadline=None, derandomize=True)
def test_any_json(found):
    read("fisco", json.dumps(found).encode())
