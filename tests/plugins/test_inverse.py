"""Inversion by division steps against Python's pow."""

from __future__ import annotations

import ctypes
import math
import random

import pytest
from _build import PLUGINS, build

ORDERS = {
    "SM2": 0xFFFFFFFEFFFFFFFFFFFFFFFFFFFFFFFF7203DF6B21C6052B53BBF40939D54123,
    "P-256": 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551,
    "secp256k1": 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141,
    "the largest": 2**256 - 1,
    "of 192 bits": 2**192 - 2**64 - 1,
    "of 17 bits": 65537,
    "three": 3,
}
ROUND_BITS = 30


@pytest.fixture(scope="module")
def inverse():
    probe = build(PLUGINS.parent / "tests" / "plugins" / "probe_inverse.cu", flags=["-O1"])

    def run(a: int, modulus: int) -> int:
        result = (ctypes.c_uint32 * 8)()
        probe.probe_inverse(
            _words(a), _words(modulus), ctypes.c_uint32(-pow(modulus, -1, 1 << 32) % (1 << 32)), result
        )
        return sum(word << 32 * i for i, word in enumerate(result))

    return run


def _words(number: int) -> ctypes.Array:
    return (ctypes.c_uint32 * 8)(*(number >> 32 * i & 0xFFFFFFFF for i in range(8)))


def _numbers(modulus: int, count: int):
    """Small and large ones, powers of two about the ends of limbs and words, halves and thirds, random ones."""
    yield from (0, 1, 2, 3, modulus - 1, modulus - 2, modulus // 2, modulus // 2 + 1, modulus // 3)
    for bit in range(256):
        yield from (1 << bit, (1 << bit) - 1, (1 << bit) + 1, modulus - (1 << bit))
    generator = random.Random(f"inverses modulo {modulus}")
    for _ in range(count):
        yield generator.getrandbits(generator.choice((256, 256, 255, 200, 129, 60, ROUND_BITS, 8)))


@pytest.mark.parametrize("modulus", ORDERS.values(), ids=ORDERS)
def test_inverses(inverse, modulus):
    for number in _numbers(modulus, 3000):
        a = number % modulus
        if a and math.gcd(a, modulus) != 1:
            continue
        assert inverse(a, modulus) == (pow(a, -1, modulus) if a else 0), hex(a)
