"""Columns with offsets: whatever lies beside an item, its answer is that of the item alone."""

from __future__ import annotations

import random

import _corpus
import pytest
from _answers import BuiltPlugin
from _ecdsa_cases import be32
from _hashes import HASHES
from _reference import P256, SECP256K1, verify_code
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st


@pytest.fixture(scope="module")
def keccak() -> BuiltPlugin:
    return BuiltPlugin("keccak")


@pytest.fixture(scope="module")
def ecdsa() -> BuiltPlugin:
    return BuiltPlugin("ecdsa")


@settings(max_examples=200, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.lists(st.binary(max_size=300), min_size=1, max_size=70))
def test_digests_of_any_split(keccak, messages):
    for algorithm in ("KECCAK256", "SHA3_256"):
        result = keccak.run("digest", algorithm, {"input": messages})
        assert [row.tobytes() for row in result.outputs[0]] == [HASHES[algorithm](message) for message in messages]


@pytest.mark.parametrize("curve", [P256, SECP256K1], ids=lambda curve: curve.name)
@pytest.mark.parametrize("signature_encoding", ["RAW_RS", "DER_STRICT", "DER_LAX"])
def test_mutated_items(ecdsa, curve, signature_encoding):
    """Good and mutated signatures and keys mixed; every code is straight Python's."""
    seed = 17
    generator = random.Random(seed)
    for key_encoding in ("RAW_XY", "SEC1_UNCOMPRESSED", "SEC1_COMPRESSED", "SPKI"):
        count = 150
        rows = list(
            zip(
                [be32(i % 5) for i in range(count)],
                _corpus.signatures(curve, signature_encoding, count, generator),
                _corpus.keys(curve, key_encoding, count, generator),
                strict=True,
            )
        )
        columns = {name: [row[i] for row in rows] for i, name in enumerate(("input", "signature", "key"))}
        result = ecdsa.run(
            "verify",
            curve.name,
            columns,
            signature_encoding=signature_encoding,
            key_encoding=key_encoding,
        )
        for i, row in enumerate(rows):
            wanted = verify_code(curve, *row, signature_encoding=signature_encoding, key_encoding=key_encoding)
            assert result.codes[i] == wanted, (seed, i, wanted.name, [part.hex() for part in row])
