"""P-256 and secp256k1 through the GPU's arithmetic, run on the CPU: the codes are Python's."""

from __future__ import annotations

import random

import pytest
from _answers import EMULATED, BuiltPlugin
from _ecdsa_cases import chosen, edges
from _reference import P256, SECP256K1, Curve


@pytest.fixture(scope="module")
def emulated() -> BuiltPlugin:
    return BuiltPlugin("ecdsa", EMULATED)


def test_known_answers(emulated):
    """Verification and recovery."""
    assert emulated.check_known_answers() > 500


@pytest.mark.parametrize("curve", [P256, SECP256K1], ids=lambda curve: curve.name)
def test_edges_and_random_scalars(emulated: BuiltPlugin, curve: Curve):
    generator = random.Random(f"emulated {curve.name}")
    items = edges(curve)
    for i in range(40):
        d, u2 = generator.randrange(1, curve.n), generator.randrange(1, curve.n)
        items.append(chosen(curve, f"random {i}", d, generator.randrange(curve.n), u2))
    columns = {
        "input": [item.digest for item in items],
        "signature": [item.signature for item in items],
        "key": [item.key_bytes for item in items],
    }
    codes = emulated.run("verify", curve.name, columns).codes
    assert [item.name for item, code in zip(items, codes, strict=True) if code != item.code] == []
