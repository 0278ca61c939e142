"""The field of eight elements against Python: every operation, elements up to its bound, each lane its own."""

from __future__ import annotations

import ctypes
import random
from pathlib import Path

import numpy as np
import pytest
from _build import build
from _field_operations import HALF, OPERATIONS
from _lanes import LANE_FLAGS
from _reference import P256, SECP256K1, SM2

SOURCE = Path(__file__).with_name("probe_field_lanes.cu")
CURVES = {"sm2": SM2, "p256": P256, "secp256k1": SECP256K1}
LANES, LIMBS = 8, 5
MASK = (1 << 52) - 1
RADIX = 2**260


@pytest.fixture(scope="module", params=LANE_FLAGS)
def library(request) -> ctypes.CDLL:
    return build(SOURCE, flags=LANE_FLAGS[request.param], defines={"ITEM_LANES": LANES})


class Aligned(np.ndarray):
    """Memory at a vector's boundary."""

    @classmethod
    def of(cls, limbs: int) -> np.ndarray:
        memory = np.zeros(limbs * LANES + 8, np.uint64)
        begin = -memory.ctypes.data % 64 // 8
        return memory[begin : begin + limbs * LANES].reshape(limbs, LANES)


def put(numbers: list[int], limbs: int = LIMBS, width: int = 52) -> np.ndarray:
    memory = Aligned.of(limbs)
    for lane, number in enumerate(numbers):
        for i in range(limbs):
            memory[i, lane] = number >> (width * i) & ((1 << width) - 1)
    return memory


def take(memory: np.ndarray, width: int = 52) -> list[int]:
    return [sum(int(memory[i, lane]) << (width * i) for i in range(len(memory))) for lane in range(LANES)]


def pointer(memory: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(memory.ctypes.data)


def sample(generator: random.Random, p: int) -> int:
    """An element: any integer below 5/4 p, often at an edge."""
    bound = 5 * p // 4
    edges = [0, 1, p - 1, p, p + 1, bound - 1, 2**256 - 1, 2**256, 2**256 + 2**230 - 1, MASK, p >> 1, 1 << 208]
    number = generator.choice(edges) if generator.random() < 0.4 else generator.randrange(bound)
    return min(number, bound - 1)


@pytest.mark.parametrize("operation", range(len(OPERATIONS)))
@pytest.mark.parametrize("name", CURVES)
def test_operations_stay_below_their_bound(library, name, operation):
    p, generator = CURVES[name].p, random.Random(f"{name} {operation}")
    over = pow(RADIX, -1, p) if name != "secp256k1" and operation < 2 else 1
    for _ in range(300):
        a, b, c = ([sample(generator, p) for _ in range(LANES)] for _ in range(3))
        masks = [generator.choice((0, 2**64 - 1)) for _ in range(LANES)]
        out = Aligned.of(LIMBS)
        mask = put(masks, 1, 64)
        given = [put(numbers) for numbers in (a, b, c)]
        getattr(library, f"run_{name}")(operation, *map(pointer, given), pointer(mask), pointer(out))
        assert (out <= MASK).all()
        for got, *numbers in zip(take(out), a, b, c, masks, strict=True):
            assert got < 5 * p // 4
            wanted = OPERATIONS[operation](*numbers) * over
            assert ((2 * got if operation == HALF else got) - wanted) % p == 0, [hex(n) for n in numbers]


@pytest.mark.parametrize("name", CURVES)
def test_zero_is_known_in_both_forms(library, name):
    p = CURVES[name].p
    numbers, out = put([0, p, 1, p - 1, p + 1, 2**256, 5 * p // 4 - 1, p >> 52 << 52]), Aligned.of(LIMBS)
    getattr(library, f"run_{name}")(12, *[pointer(numbers)] * 4, pointer(out))
    assert [int(lane) for lane in out[0]] == [2**64 - 1] * 2 + [0] * 6


@pytest.mark.parametrize("name", CURVES)
def test_conversions(library, name):
    p, generator = CURVES[name].p, random.Random(name)
    radix = 1 if name == "secp256k1" else RADIX
    host_radix = 1 if name == "secp256k1" else 2**256
    convert = getattr(library, f"convert_{name}")
    out = Aligned.of(LIMBS)
    getattr(library, f"run_{name}")(13, *[pointer(put([0] * LANES))] * 4, pointer(out))
    assert take(out) == [radix % p] * LANES
    for _ in range(300):
        plain = [
            generator.choice((0, 1, p - 1, generator.randrange(p), generator.randrange(p))) for _ in range(LANES)
        ]
        for operation, factor in ((0, radix), (1, radix * pow(host_radix, -1, p))):
            convert(operation, pointer(put(plain, 4, 64)), pointer(out))
            assert (out <= MASK).all()
            for got, number in zip(take(out), plain, strict=True):
                assert got < 5 * p // 4
                assert (got - number * factor) % p == 0
        elements = [sample(generator, p) for _ in range(LANES)]
        back = Aligned.of(4)
        convert(2, pointer(put(elements)), pointer(back))
        assert take(back, 64) == [number * pow(radix, -1, p) % p for number in elements]
