"""Enrolled keys by affine additions that share inversions: kernels for many items and for few, on an emulated GPU."""

from __future__ import annotations

import ctypes
import dataclasses
import random
from collections.abc import Sequence
from typing import Any

import _ecdsa_cases
import _sm2_cases
import numpy as np
import pytest
from _build import PLUGINS, Bytes
from _emulator import aligned, build_emulated, launch_emulated
from _enrolled_cases import EVERY_ROW, le32
from _reference import P256, SECP256K1, SM2, Curve

from verifier.drivers import BatchStruct
from verifier.drivers._abi import ColumnStruct, PluginInfo
from verifier.drivers.build import build_image, kernel_usage
from verifier.manifest import load_manifest
from verifier.model import Code, Column
from verifier.registry import PluginSource, common_folder
from verifier.registry._parameters import parameter_number

BLOCKS, GENERATION, SLOTS = 2, 3, 8
PREFIX = {SM2.name: "sm2", P256.name: "p256", SECP256K1.name: "secp256k1"}
THREADS = {"hash": 256, "bases": 32}  # by the end of a stage's name; 128 for all others


@dataclasses.dataclass(frozen=True)
class Build:
    """Windows, of which the parities of the lists of points and sums depend, and what the kernel is built with."""

    curve: Curve
    window_g: int = 10
    window_key: int = 8
    share: int = 2
    threads: int = 128

    @property
    def defines(self) -> dict[str, int]:
        return {
            "WINDOW_G": self.window_g,
            "WINDOW_KEY": self.window_key,
            "ENROLLED_SHARE": self.share,
            "COMB_THREADS": self.threads,
            "KEY_SLOTS": SLOTS,
            "GROUP": 16,
        }

    def coefficients(self, u1: int, u2: int) -> tuple[list[int], list[int]]:
        """The multiples of G, and those of Q, that are added in turn."""
        return digits(self.curve, u1, self.window_g), digits(self.curve, u2, self.window_key)


def digits(curve: Curve, k: int, window: int) -> list[int]:
    """d[i] 2^(w i) for the odd digits d[i] of k, or of k - n where k is even (curve_comb.cuh)."""
    count = -(-256 // window)
    sign, odd = (1, k) if k % 2 else (-1, curve.n - k)
    bits = (odd >> 1) + (1 << (window * count - 1))
    found = [(2 * (bits >> window * i & (1 << window) - 1) + 1 - (1 << window)) << window * i for i in range(count)]
    assert sum(found) == odd
    return [sign * each for each in found]


class Emulated:
    """A plugin on the emulated GPU."""

    def __init__(self, folder, made: Build) -> None:
        self.made = made
        prefix, plugin = PREFIX[made.curve.name], "sm2" if made.curve is SM2 else "ecdsa"
        self.manifest = load_manifest(PLUGINS / plugin)
        self.library = build_emulated(PLUGINS / plugin / f"{plugin}.cu", folder, defines=made.defines)
        self.info = PluginInfo.in_dll(self.library, "plugin_info")
        self.state = aligned(self.info.state_bytes)
        for stage in self.manifest.state:
            if stage.startswith(prefix):
                self.launch(stage, BatchStruct(items=ctypes.c_uint32.in_dll(self.library, f"{stage}_count").value))

    def launch(self, stage: str, batch: BatchStruct) -> None:
        batch.state = self.state.ctypes.data
        by_sums = stage.removesuffix("_few").endswith(("verify_enrolled", "finish_enrolled"))
        threads = self.made.threads if by_sums else THREADS.get(stage.rpartition("_")[2], 128)
        launch_emulated(self.library, stage, batch, grid=BLOCKS, threads=threads)

    def run(self, name: str, columns: Sequence[Sequence[bytes]], few: bool = False) -> tuple[Bytes, Bytes]:
        """The codes before the last stage and after it."""
        operation = self.manifest.operation(name, self.made.curve.name)
        assert operation is not None
        items = len(columns[0])
        capacity = (items + 31) // 32 * 32
        codes, nothing = np.zeros(items, np.uint8), np.zeros(1, np.uint8)
        scratch = aligned(capacity * self.info.scratch_item_bytes)
        lanes = aligned(BLOCKS * 512 * self.info.scratch_lane_bytes)
        scratch[:] = 0xA5  # stages may rely on nothing that they did not write
        lanes[:] = 0xA5
        batch = BatchStruct(
            items=items,
            capacity=capacity,
            constant=nothing.ctypes.data,
            codes=codes.ctypes.data,
            item_scratch=scratch.ctypes.data,
            lane_scratch=lanes.ctypes.data,
        )
        for i, (parameter, values) in enumerate(operation.parameters.items()):
            batch.parameters[i] = parameter_number(parameter, values[0])
        kept = [Column.fixed(str(i), b"".join(each), len(each[0]), items) for i, each in enumerate(columns)]
        for i, column in enumerate(kept):
            batch.inputs[i] = ColumnStruct(column.data.ctypes.data, 0, column.stride)
        before = codes.copy()
        for stage in operation.stages:
            before = codes.copy()
            self.launch(f"{stage}_few" if few and stage.endswith("_verify_enrolled") else stage, batch)
        return before, codes

    def enroll(self, keys: Sequence[bytes]) -> None:
        """Keys in the slots from 0 on."""
        rows = [le32(slot, GENERATION, EVERY_ROW) for slot in range(len(keys))]
        assert set(self.run("tabulate", [rows, keys])[1]) == {Code.VALID}
        assert set(self.run("enroll", [[row[:8] for row in rows], keys])[1]) == {Code.VALID}

    def verify(self, items: Sequence[Any], slots: Sequence[int], few: bool = False) -> tuple[Bytes, Bytes]:
        names = [le32(slot, GENERATION) for slot in slots]
        columns = [[item.digest for item in items], [item.signature for item in items], names]
        return self.run("verify_enrolled", columns, few)


def chosen(curve: Curve, name: str, d: int, u1: int, u2: int) -> Any:
    """A valid item whose verification computes u1 G + u2 Q for Q = d G."""
    if curve is SM2:
        return _sm2_cases.chosen(name, d, u1, u2)
    return _ecdsa_cases.chosen(curve, name, d, u1, u2)


def another_digest(item: Any) -> Any:
    """The same, but invalid."""
    if isinstance(item, _sm2_cases.Item):
        return dataclasses.replace(item, e=item.e ^ 1)
    return dataclasses.replace(item, digest=bytes(31) + b"\1", code=Code.INVALID)


def crafted(made: Build) -> list[tuple[int, int, int, str]]:
    """(d, u1, u2, what): keys for which points, sums of two or sums of all so far are equal or opposite."""
    n, random_ = made.curve.n, random.Random("crafted")
    found = []
    for sign in (1, -1):
        u1, u2 = (random_.randrange(n >> 1, n) for _ in range(2))
        g, q = made.coefficients(u1, u2)
        places = {"points": (g[-1], q[0])} if len(g) % 2 else {}
        if len(g) % 4 == 2:
            places["sums"] = (g[-2] + g[-1], q[0] + q[1])
        if len(g) % 4 == 0:
            places["sum of all"] = (sum(g), sum(q[:4]))
        if sign < 0:
            places["result"] = (sum(g), sum(q))
        found += [
            (sign * a * pow(b, -1, n) % n, u1, u2, f"{'equal' if sign > 0 else 'opposite'} {name}")
            for name, (a, b) in places.items()
        ]
    return found


BUILDS = [
    pytest.param(made, id=f"{made.curve.name} {made.window_g} {made.window_key} {made.share} {made.threads}")
    for made in (
        Build(SM2),
        Build(SM2, window_g=9, share=1),  # 29 + 32 points: the pair in the middle is mixed, one is left over
        Build(SM2, window_g=8, window_key=12, share=4, threads=512),  # 32 + 22
        Build(P256, window_g=9, window_key=5),  # 29 + 52
        Build(SECP256K1, window_g=10, window_key=4),  # 26 + 64
    )
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("emulator")


@pytest.fixture(scope="module", params=BUILDS)
def emulated(request, folder) -> Emulated:
    return Emulated(folder, request.param)


def test_crafted_items_among_others(emulated):
    """What leaves the formulas is left open, and it alone, wherever it stands. Both kernels give the same."""
    curve, random_ = emulated.made.curve, random.Random("others")
    special = crafted(emulated.made)
    keys = [0xD1CE, *[d for d, *_ in special]]
    assert len(keys) < SLOTS
    items, slots = [], []
    for i in range(69):  # lanes end within a warp, and with any share within a lane
        u1, u2 = (random_.randrange(1, curve.n) for _ in range(2))
        slot = random_.randrange(len(keys))
        item = chosen(curve, f"item {i}", keys[slot], u1, u2)
        items.append(item if i % 3 else another_digest(item))
        slots.append(slot)
    left_open = set()
    for turn, (d, u1, u2, name) in enumerate(special):
        for place in (turn, 20 + 3 * turn, 68 - turn):
            items[place], slots[place] = chosen(curve, name, d, u1, u2), 1 + turn
            left_open.add(place)
    expected = [item.code for item in items]
    for place in (11, 33, 52):
        items[place], expected[place] = dataclasses.replace(items[place], r=0), Code.OUT_OF_RANGE
    for place, slot in ((12, SLOTS - 1), (44, 2**32 - 1), (67 - len(special), SLOTS)):
        slots[place], expected[place] = slot, Code.KEY_INDEX
    emulated.enroll([key_bytes(curve, d) for d in keys])
    before, codes = emulated.verify(items, slots)
    assert [(item.name, Code(c)) for item, c, e in zip(items, codes, expected, strict=True) if c != e] == []
    assert set(np.flatnonzero(before == Code.RETRY)) == left_open - {11, 33, 52, 12, 44, 67 - len(special)}
    assert (emulated.verify(items, slots, few=True)[1] == codes).all()


def key_bytes(curve: Curve, d: int) -> bytes:
    x, y = curve.multiply(d, curve.g) or (0, 0)
    return x.to_bytes(32, "big") + y.to_bytes(32, "big")


@pytest.mark.parametrize("count", [1, 2, 31, 65, 129])
def test_batches_of_any_size(emulated, count):
    curve, random_ = emulated.made.curve, random.Random(count)
    emulated.enroll([key_bytes(curve, 0xD1CE)])
    some = [chosen(curve, f"{i}", 0xD1CE, *(random_.randrange(1, curve.n) for _ in range(2))) for i in range(7)]
    items = [another_digest(some[i % 7]) if i % 5 == 2 else some[i % 7] for i in range(count)]
    before, _ = emulated.verify(items, [0] * count)
    assert before.tolist() == [item.code for item in items]


def test_edges(emulated):
    curve = emulated.made.curve
    every = _sm2_cases.edges() if curve is SM2 else _ecdsa_cases.edges(curve)
    most = max({item.key for item in every}, key=lambda key: sum(item.key == key for item in every))
    items = [item for item in every if item.key == most]
    assert len(items) > 10
    emulated.enroll([items[0].key_bytes])
    for few in (False, True):
        _, codes = emulated.verify(items, [0] * len(items), few)
        assert [item.name for item, code in zip(items, codes, strict=True) if code != item.code] == []


@pytest.mark.long
@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_100"])
@pytest.mark.parametrize("plugin", ["sm2", "ecdsa"])
def test_registers(plugin, target, tmp_path):
    """512 threads on a multiprocessor, and no more spilled than what stands in docs/enrolled-keys.md."""
    source = PluginSource.read(PLUGINS / plugin, common_folder())
    start, macros = source.manifest.build(source.manifest.choice("", {"KEY_SLOTS": 16}), target)
    image = build_image(source.reached(start), start, target, macros, cache=tmp_path)
    kernels = [kernel for kernel in kernel_usage(image.log) if "_verify_enrolled" in kernel.name]
    assert len(kernels) == (2 if plugin == "sm2" else 4)
    for kernel in kernels:
        assert kernel.registers <= 128
        assert kernel.spill_stores <= (128 if target == "sm_100" else 64), kernel
