"""The GPU's branches of the cipher kernels on an emulated GPU: known answers of the default builds and the variants.

Votes, barriers, tails of a grid and the layout of shared memory are the real kernels'; only inline PTX is not.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from _answers import BuiltPlugin
from _build import PLUGINS, Bytes
from _emulator import aligned, build_emulated, launch_emulated

from verifier.drivers import BatchStruct
from verifier.drivers._abi import ColumnStruct
from verifier.manifest import Operation, load_manifest
from verifier.model import Column
from verifier.registry._answers import Group, parse_answers

GRID = 2
DEFAULTS = [("aes", ""), ("aria", ""), ("hight", ""), ("kuznyechik", ""), ("skinny", ""), ("sm4", "")]
VARIANTS = [
    (name, variant)
    for name, _ in DEFAULTS
    for variant, described in sorted(load_manifest(PLUGINS / name).variants.items())
    if "gpu" in described.targets
]
# Values of tunables that change what is compiled, not only how it is launched.
TUNED = [
    ("hight", "", {"MULTIPLIED": 0}),
    ("hight", "", {"UNIFORM_MASKS": 1}),
    ("aria", "", {"GHASH_TABLES": 4, "GHASH_THREADS": 1024}),
    ("kuznyechik", "", {"BYTES_A_PASS": 2}),
    ("kuznyechik", "", {"BYTES_A_PASS": 4}),
    ("kuznyechik", "", {"BYTES_A_PASS": 16}),
    ("skinny", "", {"MULTIPLIED": 0}),
    ("skinny", "", {"UNIFORM_MASKS": 1}),
]


class Emulated:
    """A plugin built for the emulator."""

    def __init__(self, name: str, variant: str, tunables: Mapping[str, int]) -> None:
        self.manifest = load_manifest(PLUGINS / name)
        source, defines = self.manifest.build(self.manifest.choice(variant, tunables), "sm_90")
        numbers = {key: int(value) for key, value in defines.items()}
        self.library = build_emulated(PLUGINS / name / source, defines=numbers)
        self.state = aligned(1 << 18)
        for stage in self.manifest.state:
            count = ctypes.c_uint32.in_dll(self.library, f"{stage}_count").value
            self.launch(stage, BatchStruct(items=count, state=self.state.ctypes.data), 128)

    def launch(self, stage: str, batch: BatchStruct, threads: int) -> None:
        launch_emulated(self.library, stage, batch, grid=GRID, threads=threads)

    def threads(self, stage: str) -> int:
        """A block's threads, as the stage's launch bounds."""
        return ctypes.c_uint32.in_dll(self.library, f"{stage}_threads").value

    def ctr(self, key: bytes, data: Bytes, counters: Bytes) -> Bytes:
        """Counter mode of rows of `data` from their first counters."""
        (operation,) = (
            o for o in self.manifest.operations if o.name == "ctr" and o.widths["counter"] == counters.shape[1]
        )
        (output,) = self.run(operation, operation.stages, key, (data, counters))
        return output

    def run(
        self, operation: Operation, stages: Sequence[str], key: bytes, columns: Sequence[Bytes], number: int = 0
    ) -> list[Bytes]:
        """Outputs of stages of a bulk operation over columns of equal rows; `number` is its parameter."""
        items = len(columns[0])
        struct = BatchStruct(items=items, state=self.state.ctypes.data)
        struct.parameters[0] = number
        held = []
        for i, column in enumerate(columns):
            memory = aligned(column.size)
            memory[:] = column.ravel()
            struct.inputs[i] = ColumnStruct(memory.ctypes.data, 0, column.shape[1])
            held.append(memory)
        constant, codes = aligned(len(key)), aligned(items)
        constant[:] = np.frombuffer(key, np.uint8)
        struct.constant, struct.constant_bytes = constant.ctypes.data, len(key)
        struct.codes = codes.ctypes.data
        outputs = [aligned(items * output.bytes) for output in operation.outputs]
        for i, output in enumerate(operation.outputs):
            struct.outputs[i], struct.output_strides[i] = outputs[i].ctypes.data, output.bytes
        for stage in stages:
            self.launch(stage, struct, self.threads(stage))
        assert (codes == 1).all()
        return [output.reshape(items, -1) for output in outputs]

    def check(self, operation: Operation, group: Group, items: int) -> None:
        batch, cases = group.tiled(items)
        struct = BatchStruct(items=items, state=self.state.ctypes.data)
        held = [self._column(struct, i, column) for i, column in enumerate(batch.inputs)]
        key = aligned(len(group.key.constant))
        key[: len(group.key.constant)] = np.frombuffer(group.key.constant, np.uint8)
        struct.constant, struct.constant_bytes = key.ctypes.data, len(group.key.constant)
        for i, number in enumerate(group.key.parameters):
            struct.parameters[i] = number
        codes = aligned(items)
        struct.codes = codes.ctypes.data
        outputs = [aligned(items * output.bytes) for output in operation.outputs]
        for i, output in enumerate(operation.outputs):
            struct.outputs[i], struct.output_strides[i] = outputs[i].ctypes.data, output.bytes
        for stage in operation.stages:
            self.launch(stage, struct, self.threads(stage))
        del held
        assert (codes == group.codes[cases]).all(), (operation.id, group.ids, items)
        for output, (expected, stated) in zip(outputs, group.outputs, strict=True):
            same = (output.reshape(items, -1) == expected[cases]).all(axis=1)
            assert (same | ~stated[cases]).all(), (operation.id, group.ids, items)

    @staticmethod
    def _column(struct: BatchStruct, index: int, column: Column) -> tuple[Bytes, object]:
        data = aligned(column.data.size)
        data[: column.data.size] = column.data
        offsets = None if column.offsets is None else np.ascontiguousarray(column.offsets)
        address = 0 if offsets is None else offsets.ctypes.data
        struct.inputs[index] = ColumnStruct(data.ctypes.data, address, column.stride)
        return data, offsets


def check(name: str, variant: str, **tunables: int) -> None:
    """Two groups of known answers an operation, in batches that end within a warp and within a group of stripes."""
    emulated = Emulated(name, variant, tunables)
    groups = parse_answers(emulated.manifest, (PLUGINS / name / "vectors.json").read_bytes(), name)
    seen: dict[int, int] = {}
    for group in groups:
        index = group.operation_index
        seen[index] = seen.get(index, 0) + 1
        if seen[index] <= 2:
            for items in (1, 33, 70):
                emulated.check(emulated.manifest.operations[index], group, items)
    assert len(seen) == len(emulated.manifest.operations)


@pytest.mark.parametrize(("name", "variant"), DEFAULTS)
def test_default_builds(name, variant):
    check(name, variant)


@pytest.mark.long
@pytest.mark.parametrize(("name", "variant"), VARIANTS)
def test_variants(name, variant):
    check(name, variant)


@pytest.mark.long
@pytest.mark.parametrize(("name", "variant", "tunables"), TUNED)
def test_tunables(name, variant, tunables):
    check(name, variant, **tunables)


@pytest.mark.parametrize(
    ("name", "block", "key_bytes"),
    [
        ("hight", 8, 16),
        pytest.param("kuznyechik", 16, 32, marks=pytest.mark.long),
        pytest.param("skinny", 16, 32, marks=pytest.mark.long),
    ],
)
def test_counters_that_follow_one_another(name, block, key_bytes):
    """The strided forms have a short way for them, up to where a word of the counter overflows."""
    emulated, cpu = Emulated(name, "", {}), BuiltPlugin(name)
    key, stripes = bytes(range(key_bytes)), 70
    data = np.random.default_rng(8).integers(0, 256, (stripes, 32 * block), np.uint8)
    for start in (0, 5, 0x1234_5678_9ABC, (1 << 32) - 1024, (1 << 32) - 1023, (1 << 32) - 1500, (1 << 8 * block) - 9):
        counters = b"".join(((start + 32 * i) % (1 << 8 * block)).to_bytes(block, "big") for i in range(stripes))
        columns = np.frombuffer(counters, np.uint8).reshape(stripes, block)
        found = emulated.ctr(key, data, columns)
        algorithm = {"skinny": "SKINNY_128"}.get(name, name.upper())
        rows = {"data": [row.tobytes() for row in data], "counter": [row.tobytes() for row in columns]}
        wanted = cpu.run("ctr", algorithm, rows, key)
        assert (found == wanted.outputs[0]).all(), hex(start)


@pytest.mark.parametrize("tables", [2, 4])
def test_hashes_of_stripes(tables):
    """GHASH of stripes that end anywhere, and folds, as the CPU has them."""
    emulated, cpu = Emulated("sm4", "", {"GHASH_TABLES": tables}), BuiltPlugin("sm4")
    operations = {operation.name: operation for operation in emulated.manifest.operations}
    rng = np.random.default_rng(tables)
    stripes = 530
    data = rng.integers(0, 256, (stripes, 512), np.uint8)
    counters = rng.integers(0, 256, (stripes, 16), np.uint8)
    lengths = np.concatenate([np.arange(513), [512] * 16, [600]]).astype("<u4").view(np.uint8).reshape(stripes, 4)
    columns = {"data": data, "counter": counters, "bytes": lengths}
    for key in (bytes(16), rng.bytes(16)):
        for name, named in (("gcm_encrypt", columns), ("gcm_decrypt", columns), ("gcm_fold", {"data": data})):
            operation = operations[name]
            number = 3 if name == "gcm_fold" else 0
            found = emulated.run(operation, operation.stages, key, list(named.values()), number)
            rows = {field: [row.tobytes() for row in column] for field, column in named.items()}
            parameters = {"folds": number} if number else {}
            wanted = cpu.run(name, "SM4", rows, key, **parameters)
            for one, other in zip(found, wanted.outputs, strict=True):
                assert (one == other).all(), name
