"""SM2's kernel of four lanes an item, which TEAM_ITEMS builds: its GPU branches on an emulated GPU."""

from __future__ import annotations

import ctypes
import dataclasses
import itertools
import random
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from _build import PLUGINS, Bytes, build
from _emulator import SM2_FEW, EmulatedPlugin
from _reference import SM2
from _sm2_cases import Item, N, P, chosen, edges, exceptional

from verifier.drivers.build import build_image, kernel_usage
from verifier.manifest import load_manifest
from verifier.model import Code, Column
from verifier.registry import PluginSource, common_folder
from verifier.registry._answers import parse_answers
from verifier.registry._parameters import parameter_number

THREADS = {
    "sm2_table_bases": 32,
    "sm2_table_entries": 128,
    "sm2_prepare": 128,
    "sm2_verify_few": 256,
    "sm2_verify": 512,
    "sm2_finish": 512,
}
TWIST_ORDER = 2 * P + 2 - N


class EmulatedSm2(EmulatedPlugin):
    """The plugin's stages of `verify` on the emulated GPU."""

    def __init__(self, **defines: int) -> None:
        state = ("sm2_table_bases", "sm2_table_entries")
        super().__init__(PLUGINS / "sm2" / "sm2.cu", THREADS, state, SM2_FEW | defines)

    def verify(
        self,
        items: int,
        columns: Sequence[Column],
        parameters: Sequence[int],
        constant: bytes = b"",
        verify: str = "sm2_verify_few",
    ) -> tuple[Bytes, Bytes]:
        """The codes that `verify` leaves, and those of `finish`."""
        _, left, codes = self.run(("sm2_prepare", verify, "sm2_finish"), items, columns, parameters, constant)
        return left, codes

    def items(self, items: Sequence[Item], verify: str = "sm2_verify_few") -> tuple[Bytes, Bytes]:
        """The same of raw items."""
        return self.verify(len(items), raw_columns(items), PARAMETERS, verify=verify)


OPERATION = load_manifest(PLUGINS / "sm2").operation("verify", "SM2")
assert OPERATION is not None
PARAMETERS = [parameter_number(name, values[0]) for name, values in OPERATION.parameters.items()]


def raw_columns(items: Sequence[Item]) -> list[Column]:
    values = {
        "input": [item.digest for item in items],
        "signature": [item.signature for item in items],
        "key": [item.key_bytes for item in items],
    }
    return [Column.fixed(name, b"".join(v), len(v[0]), len(items)) for name, v in values.items()]


def codes_of(items: Sequence[Item]) -> Bytes:
    return np.array([item.code for item in items], np.uint8)


def wrong(items: Sequence[Item], codes: Bytes) -> list[tuple[str, str]]:
    return [(i.name, Code(code).name) for i, code in zip(items, codes, strict=True) if code != i.code]


def at_target(name: str, x: int) -> Item:
    """An item whose verdict is whether x(s G + t Q) is `x`, which it is not."""
    generator = random.Random(name)
    base = chosen(name, *(generator.randrange(1, N) for _ in range(3)))
    return dataclasses.replace(base, e=(base.r - x) % N)


def twist_point_of_order(order: int) -> int:
    """x of a point of that order on the curve's quadratic twist, as `target` names it."""
    generator = random.Random(order)
    while True:
        x = generator.randrange(P)
        v = (x**3 + SM2.a * x + SM2.b) % P
        if pow(v, (P - 1) // 2, P) == 1:
            continue
        # (x v, v^2) is on y^2 = x^3 + a v^2 x + b v^3, which is isomorphic to the twist.
        twist = dataclasses.replace(SM2, a=SM2.a * v * v % P, b=SM2.b * v**3 % P)
        point = twist.multiply(TWIST_ORDER // order, (x * v % P, v * v % P))
        if point is not None:
            assert twist.multiply(order, point) is None
            return point[0] * pow(v, -1, P) % P


@pytest.fixture(scope="module")
def few() -> EmulatedSm2:
    return EmulatedSm2()


def random_items(count: int, seed: str) -> list[Item]:
    """Half valid, half with another digest, which half of the time names an x of no point."""
    generator = random.Random(seed)
    items = []
    for i in range(count):
        item = chosen(f"random {i}", *(generator.randrange(1, N) for _ in range(3)))
        items.append(item if i % 2 else dataclasses.replace(item, e=(item.e + generator.randrange(1, N)) % N))
    return items


def test_random_items_are_decided_by_the_team_itself(few):
    items = random_items(120, "team")
    left, codes = few.items(items)
    assert (left == codes_of(items)).all()
    assert (codes == left).all()
    assert set(codes) == {Code.VALID, Code.INVALID}


def test_edges_and_items_that_leave_the_formulas(few):
    items = [*edges(), *exceptional()]
    left, codes = few.items(items)
    assert wrong(items, codes) == []
    by_name = {item.name: code for item, code in zip(items, left, strict=True)}
    for name in ("s G = -t Q", "x(R) is above n", f"t is {2**255:x}"):
        assert by_name[name] == Code.RETRY, name


def test_the_verdicts_are_those_of_a_lane_an_item(few):
    items = [*edges(), *exceptional()[::3], *random_items(20, "both")]
    assert (few.items(items)[1] == few.items(items, verify="sm2_verify")[1]).all()


def test_targets_that_name_points_of_small_order_on_the_twist(few):
    items = [at_target(f"a point of order {order}", twist_point_of_order(order)) for order in (7, 443, 7 * 443)]
    left, codes = few.items(items)
    assert left[0] == Code.RETRY  # its table has no seventh multiple
    assert (codes == Code.INVALID).all()


def test_targets_that_stand_for_two_integers_are_left_open(few):
    """Below p - n the target and the target plus n are both possible; from there on one is."""
    items = [at_target(f"{x - (P - N):+d}", x) for x in (P - N - 1, P - N, P - N + 1)]
    left, codes = few.items(items)
    assert list(left) == [Code.RETRY, Code.INVALID, Code.INVALID]
    assert (codes == Code.INVALID).all()


@pytest.mark.parametrize("count", [1, 7, 8, 9, 33, 65])
def test_batches_that_end_within_a_warp(few, count):
    items = random_items(count, f"{count} items")
    assert wrong(items, few.items(items)[0]) == []


@pytest.mark.parametrize("defines", [{"WINDOW_G": 10}, {"TEAM_CALLS": 1}], ids=str)
def test_other_builds(defines: Mapping[str, int]):
    """A window of 10 has 26 digits, which four lanes cannot share evenly."""
    emulated = EmulatedSm2(**defines)
    items = [*random_items(24, "builds"), *edges()]
    assert wrong(items, emulated.items(items)[1]) == []


def test_known_answers(few):
    manifest = load_manifest(PLUGINS / "sm2")
    seen = 0
    for group in parse_answers(manifest, (PLUGINS / "sm2" / "vectors.json").read_bytes(), "sm2"):
        if manifest.operations[group.operation_index].id != "verify/SM2":
            continue
        batch, cases = group.tiled(len(group.codes))
        _, codes = few.verify(batch.items, batch.inputs, group.key.parameters, group.key.constant)
        assert (codes == group.codes[cases]).all(), group.ids
        seen += len(codes)
    assert seen > 150


@pytest.mark.long
@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_100"])
def test_it_compiles_for_gpus_without_spills(target):
    source = PluginSource.read(PLUGINS / "sm2", common_folder())
    start, macros = source.manifest.build(source.manifest.choice("", {"TEAM_ITEMS": 64}), target)
    image = build_image(source.reached(start), start, target, {**macros, "KEY_SLOTS": 16})
    (usage,) = (kernel for kernel in kernel_usage(image.log) if kernel.name == "sm2_verify_few")
    assert usage.registers <= 255
    assert usage.spill_stores == 0


def words(number: int) -> ctypes.Array[ctypes.c_uint32]:
    return (ctypes.c_uint32 * 8)(*(number >> 32 * i & 0xFFFFFFFF for i in range(8)))


def half_scalars(t: int) -> tuple[int, int] | None:
    """(a, b) with a = b t mod n, b signed; None where there is no result."""
    probe = build(PLUGINS.parent / "tests" / "plugins" / "probe_half_scalar.cu", flags=["-O1"])
    result = (ctypes.c_uint32 * 10)()
    probe.probe_half_scalars(words(t), words(N), result)
    a, b = (sum(result[4 * k + i] << 32 * i for i in range(4)) for k in range(2))
    return (a, -b if result[8] else b) if result[9] else None


def test_scalars_are_halved():
    generator = random.Random("halves")
    for t in itertools.chain(
        (1, 2, 3, N - 1, N - 2, 2**128 - 1, N - 2**128 + 1, N // 2, N // 3),
        (generator.randrange(1, N) for _ in range(3000)),
        (N // q + d for q in (2, 5, 2**16, 2**20, 2**31 - 1) for d in (-1, 0, 1)),
    ):
        found = half_scalars(t)
        assert found is not None, hex(t)
        a, b = found
        assert (a - b * t) % N == 0, hex(t)
        assert 0 < a < 2**128, hex(t)
        assert 0 < abs(b) < 2**128, hex(t)


def test_scalars_with_a_quotient_of_32_bits_are_not_halved():
    for t in (2**128, 2**128 + 1, N - 2**128, *(N >> bits for bits in (33, 34, 40, 64, 100, 127))):
        assert half_scalars(t) is None, hex(t)
