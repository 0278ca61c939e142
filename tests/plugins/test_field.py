"""Field and scalar arithmetic on the CPU's limbs and on the GPU's generated blocks, against Python."""

from __future__ import annotations

import ctypes
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from _build import PLUGINS, Plugin, build
from _field_operations import HALF, OPERATIONS
from _reference import P256, SECP256K1, SM2, Curve

SOURCE = Path(__file__).with_name("field_probe.cu")
CURVES = {"sm2": SM2, "p256": P256, "secp256k1": SECP256K1}
Words = ctypes.c_uint32 * 8
RADIX = 2**256


def words(number: int) -> ctypes.Array[ctypes.c_uint32]:
    return Words(*[number >> (32 * i) & 0xFFFFFFFF for i in range(8)])


def integer(array: ctypes.Array[ctypes.c_uint32]) -> int:
    return sum(word << (32 * i) for i, word in enumerate(array))


@pytest.fixture(scope="module", params=["host", "emulated"])
def library(request: pytest.FixtureRequest) -> tuple[ctypes.CDLL, bool]:
    """The CPU's field, and with the macro the GPU's."""
    emulated = request.param == "emulated"
    return build(SOURCE, flags=["-O1"], defines={"EMULATE_GPU_FIELD": 1} if emulated else {}), emulated


def sample(generator: random.Random, curve: Curve, bound: int) -> int:
    """Below `bound`: random, near 0, near p or n, near a power of two."""
    near = [0, curve.p, curve.n, curve.p // 2, bound, 1 << generator.randrange(256)]
    kind = generator.randrange(3)
    number = generator.randrange(bound) if kind == 0 else generator.choice(near) + generator.randrange(-3, 4)
    return number % bound


# What they are to give, and the canonical form of an element last.
LAZY = [*OPERATIONS, lambda a, b, c, m: a]


@pytest.mark.parametrize("name", CURVES)
def test_lazy_functions(library: tuple[ctypes.CDLL, bool], name: str) -> None:
    dll, emulated = library
    curve = CURVES[name]
    function = getattr(dll, f"lazy_{name}")
    plain = name == "secp256k1"
    radix = 1 if plain else 2**288 if emulated else 2**256
    generator = random.Random(f"lazy {name}")
    bound = RADIX if emulated else curve.p
    half = pow(2, -1, curve.p)
    for index, value in enumerate(LAZY):
        for _ in range(300):
            a, b, c = (sample(generator, curve, bound) for _ in range(3))
            mask = generator.choice((0, 0xFFFFFFFF))
            result = Words()
            flag = function(index, words(a), words(b), words(c), mask, result)
            expected = value(a, b, c, mask)
            if index in (0, 1):
                expected *= pow(radix, -1, curve.p)
            elif index == HALF:
                expected = a * half
            got = integer(result)
            assert flag or (got - expected) % curve.p == 0, (index, hex(a), hex(b), hex(c), mask)
            if not emulated or index == 12:
                assert not flag
                assert got < curve.p
        for a in (0, 1, curve.p - 1, *([curve.p] if emulated else [])):
            result = Words()
            function(14, words(a), words(0), words(0), 0, result)
            assert integer(result) == (radix % curve.p if a % curve.p == 0 else 0)
            function(13, words(a % curve.p), words(0), words(0), 0, result)
            assert (integer(result) - a * radix) % curve.p == 0


@pytest.mark.parametrize("name", CURVES)
def test_exact_functions(library: tuple[ctypes.CDLL, bool], name: str) -> None:
    dll, _ = library
    p = CURVES[name].p
    function = getattr(dll, f"exact_{name}")
    generator = random.Random(f"exact {name}")
    values: list[Callable[[int, int], int]] = [
        lambda a, b: a * b,
        lambda a, b: a * a,
        lambda a, b: a + b,
        lambda a, b: a - b,
        lambda a, b: 3 * a,
        lambda a, b: -a,
        lambda a, b: pow(a, p - 2, p),
        lambda a, b: pow(a, (p + 1) // 4, p),
        lambda a, b: pow(a, b, p),
    ]
    for index, value in enumerate(values):
        roots = 0
        for _ in range(300 if index < 6 else 40):
            a, b = (sample(generator, CURVES[name], p) for _ in range(2))
            result = Words()
            found = function(index, words(a), words(b), result)
            assert integer(result) == value(a, b) % p, (index, hex(a), hex(b))
            if index == 7:
                assert bool(found) == (pow(a, (p - 1) // 2, p) in (0, 1))
                roots += found
        assert index != 7 or 5 < roots < 35, "both answers of sqrt must occur"


@pytest.mark.parametrize("name", CURVES)
def test_scalars(library: tuple[ctypes.CDLL, bool], name: str) -> None:
    dll, _ = library
    curve = CURVES[name]
    function = getattr(dll, f"scalar_{name}")
    generator = random.Random(f"scalar {name}")
    for _ in range(300):
        a, b = sample(generator, curve, RADIX), sample(generator, curve, curve.n)
        result = Words()
        function(0, words(a), words(b), result)
        assert integer(result) == a * b % curve.n
        function(2, words(a), words(0), result)
        assert integer(result) == a % curve.n
        function(3, words(a), words(0), result)
        assert integer(result) == (0 < a < curve.n)
    for a in (0, 1, curve.n - 1, *(generator.randrange(curve.n) for _ in range(20))):
        result = Words()
        function(1, words(a), words(0), result)
        assert integer(result) == pow(a, curve.n - 2, curve.n)


def test_group_inversion_survives_zeros(library: tuple[ctypes.CDLL, bool]) -> None:
    plugin = Plugin(library[0])
    generator = random.Random(7)
    n = SM2.n
    values = [generator.choice((0, 1, n - 1, n, 2**256 - 1, generator.randrange(n))) for _ in range(16 * 6 + 5)]
    values[16:32] = [0] * 16
    result = plugin.run(
        ["probe_prepare", "probe_invert", "probe_result"], [[v.to_bytes(32, "big") for v in values]], outputs=[32]
    )
    for value, row in zip(values, result.outputs[0], strict=True):
        expected = pow(value, -1, n) * RADIX % n if 0 < value < n else value
        assert int.from_bytes(row.tobytes(), "big") == expected


def test_endomorphism_splits(library: tuple[ctypes.CDLL, bool]) -> None:
    factor = 0x5363AD4CC05C30E0A5261C028812645A122E22EA20816678DF02967C1B23BD72
    n = SECP256K1.n
    assert (factor * factor + factor + 1) % n == 0
    generator = random.Random(11)
    extreme = [0, 1, 2, n - 1, n - 2, factor, n - factor, n // 2, n // 2 + 1]
    for k in extreme + [generator.randrange(n) for _ in range(2000)]:
        parts, negative = (Words * 2)(), (ctypes.c_uint32 * 2)()
        library[0].split_secp256k1(words(k), parts, negative)
        first, second = (
            -integer(part) if sign else integer(part) for part, sign in zip(parts, negative, strict=True)
        )
        assert (first + second * factor - k) % n == 0
        assert first % 2 == 1
        assert second % 2 == 1
        assert max(abs(first), abs(second)) < 2**130


def test_generated_blocks_are_current_and_right() -> None:
    script = PLUGINS / "common" / "gen" / "generate.py"
    done = subprocess.run(
        [sys.executable, str(script), "--check", "--rounds", "150"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_generator_sees_a_wrong_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(PLUGINS / "common" / "gen"))
    import generate

    prime = generate.FIELDS[0]
    for operation in generate.operations(prime):
        code = operation.block.code
        # One instruction without its carry must not go unnoticed.
        index = next(
            i for i, (name, _) in enumerate(code) if name.startswith("addc.cc") or name.startswith("subc.cc")
        )
        name, operands = code[index]
        code[index] = (name.replace("c.cc", ".cc"), operands)
        with pytest.raises(AssertionError):
            generate.check(prime, operation, 200, seed=3)
