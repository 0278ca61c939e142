"""The group law, the windows and the exceptions: every point and every pair of scalars of two small curves."""

from __future__ import annotations

import ctypes
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from _build import Plugin, build
from _reference import Curve, Point

from verifier.model import Code

SOURCE = Path(__file__).with_name("toy_curve.cu")
MINUS_3 = Curve("a = -3", 83, -3, 24, (2, 21), 71, b"")
ZERO = Curve("a = 0", 79, 0, 6, (5, 17), 67, b"")
STATE = ["toy_bases", "toy_entries"]


def powers(curve: Curve) -> list[Point]:
    """k G at index k."""
    points: list[Point] = [None]
    for _ in range(1, curve.n):
        points.append(curve.add(points[-1], curve.g))
    assert curve.add(points[-1], curve.g) is None
    return points


def endomorphism(curve: Curve) -> dict[str, int]:
    """lambda and beta with lambda (x, y) = (beta x, y)."""
    points = powers(curve)
    for factor in range(2, curve.n):
        image = points[factor]
        assert image is not None
        beta = image[0] * pow(curve.g[0], -1, curve.p) % curve.p
        if image[1] == curve.g[1] and pow(beta, 3, curve.p) == 1:
            return {"TOY_ENDOMORPHISM": 1, "TOY_LAMBDA": factor, "TOY_BETA": beta}
    raise AssertionError("no endomorphism")


@pytest.fixture(scope="module", params=["minus 3", "zero", "minus 3, flags", "zero, flags"])
def toy(request: pytest.FixtureRequest) -> tuple[Curve, Plugin]:
    curve = MINUS_3 if "minus" in request.param else ZERO
    defines = endomorphism(curve) if curve is ZERO else {}
    if "flags" in request.param:
        defines["TOY_FLAG_EVERY"] = 997
    library: ctypes.CDLL = build(SOURCE, defines=defines)
    return curve, Plugin(library, STATE)


def cases(curve: Curve) -> tuple[np.ndarray, np.ndarray]:
    """Every (u1, u2, Q) as bytes without the target, and the index k of the sum k G."""
    points = np.array([point or (0, 0) for point in powers(curve)], np.uint8)
    u1, u2, d = (axis.ravel() for axis in np.meshgrid(*[np.arange(curve.n)] * 2, np.arange(1, curve.n)))
    items = np.column_stack([u1, u2, points[d]]).astype(np.uint8)
    return items, (u1 + u2 * d) % curve.n


def test_every_sum_is_decided_right(toy: tuple[Curve, Plugin]) -> None:
    curve, plugin = toy
    items, k = cases(curve)
    x = np.array([0 if point is None else point[0] for point in powers(curve)])
    assert any(value >= curve.n for value in x), "the curve must have an x above n"
    for shift in (0, 1):
        target = (x[k] + shift) % curve.n
        result = plugin.run(
            ["toy_prepare", "toy_verify", "toy_finish"], [np.column_stack([items, target]).astype(np.uint8)]
        )
        # x + 1 is never x modulo n: the second round's targets are all wrong.
        expected = np.where((k == 0) | (shift == 1), Code.INVALID, Code.VALID)
        wrong = np.flatnonzero(result.codes != expected)
        assert wrong.size == 0, (items[wrong[0]], target[wrong[0]], result.codes[wrong[0]])


def test_the_fast_stage_leaves_open_what_it_cannot_decide(toy: tuple[Curve, Plugin]) -> None:
    curve, plugin = toy
    items, k = cases(curve)
    target = np.zeros(len(k))
    result = plugin.run(["toy_prepare", "toy_verify"], [np.column_stack([items, target]).astype(np.uint8)])
    seen = Counter(result.codes.tolist())
    assert seen[Code.RETRY]
    assert seen[Code.INVALID]
    assert set(seen) <= {Code.RETRY, Code.INVALID, Code.VALID}
    assert (result.codes[k == 0] == Code.RETRY).all(), "infinity must be left to the finishing stage"
    decided = np.unpackbits(result.decided, bitorder="little")[: len(k)].astype(bool)
    assert (decided == (result.codes != Code.RETRY)).all()


def test_every_point_is_recovered(toy: tuple[Curve, Plugin]) -> None:
    curve, plugin = toy
    items, k = cases(curve)
    result = plugin.run(
        ["toy_prepare", "toy_multiply", "toy_finish_multiply", "toy_result"],
        [np.column_stack([items, np.zeros(len(k))]).astype(np.uint8)],
        outputs=[3],
    )
    assert (result.codes == np.where(k == 0, Code.INVALID, Code.VALID)).all()
    points = np.array([point or (0, 0) for point in powers(curve)])
    x, y, z = result.outputs[0].T.astype(np.int64)
    right = ((points[k, 0] * z * z - x) % curve.p == 0) & ((points[k, 1] * z**3 - y) % curve.p == 0) & (z > 0)
    assert right[k != 0].all()
