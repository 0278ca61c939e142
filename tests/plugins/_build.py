"""Builds a plugin's source and calls its stages directly, for tests of the kernels themselves.

Nothing is built twice in a run: its processes wait for what another of them is building.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from _builds import BUILDS, alone
from _lanes import PORTABLE

from verifier.drivers._abi import BatchStruct, ColumnStruct, PluginInfo
from verifier.drivers.build import build_image, host_target
from verifier.manifest import Choice
from verifier.registry import PluginSource
from verifier.registry._providers import build_files

ROOT = Path(__file__).resolve().parents[2]
PLUGINS = ROOT / "plugins"
Bytes = npt.NDArray[np.uint8]
Values = Sequence[bytes] | Bytes


def build(source: Path, *, flags: Sequence[str] = (), defines: Mapping[str, int] | None = None) -> ctypes.CDLL:
    """A shared library of one source by g++."""
    options = ["-O2", "-fPIC", "-shared", "-x", "c++", "-std=c++17", "-Wall", "-Wno-unknown-pragmas"]
    options += [f"-I{PLUGINS / 'common'}", f"-I{source.parent}"]
    options += [f"-D{name}={number}" for name, number in (defines or {}).items()] + list(flags)
    name = hashlib.sha256(repr((str(source), options)).encode()).hexdigest()[:16]
    library = BUILDS / f"{name}.so"
    with alone(name):
        if not library.exists():
            compile_by("g++", *options, str(source), target=library)
    return ctypes.CDLL(str(library))


def compile_by(*command: str, target: Path) -> None:
    """Runs a compiler. What it leaves is whole, or not there."""
    unfinished = target.with_suffix(".unfinished")
    done = subprocess.run([*command, "-o", str(unfinished)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    unfinished.replace(target)


@contextlib.contextmanager
def daemons_build(name: str, choice: Choice, defines: Mapping[str, int]) -> Iterator[None]:
    """Around a build of the plugin `name` by the verifier's own means, into the cache of all tests."""
    usual = os.environ["CXXFLAGS"]
    if "LANES_PORTABLE" in defines:
        os.environ["CXXFLAGS"] = PORTABLE
    try:
        with alone(" ".join((name, choice.text, *sorted(defines)))):
            yield
    finally:
        os.environ["CXXFLAGS"] = usual


def daemons(name: str, choice: Choice | None = None, defines: Mapping[str, int] | None = None) -> ctypes.CDLL:
    """The library that a daemon builds of a plugin of the repository for this CPU, with macros beside its own."""
    source, target = PluginSource.read(PLUGINS / name, PLUGINS / "common"), host_target()
    choice, defines = choice or Choice(), defines or {}
    start, macros = source.manifest.build(choice, target)
    files = build_files(source, choice, target)
    with daemons_build(name, choice, defines):
        image = build_image(files, start, target, {**macros, **defines})
    with alone(image.digest):
        library = BUILDS / f"{image.digest}.so"
        if not library.exists():
            library.write_bytes(image.data)
    return ctypes.CDLL(str(library))


def fixed(values: Sequence[bytes]) -> tuple[Bytes, None, int]:
    """A column of values that all have one width."""
    width = len(values[0])
    assert all(len(value) == width for value in values)
    return np.frombuffer(b"".join(values) or b"\0", np.uint8), None, width


def variable(values: Sequence[bytes]) -> tuple[Bytes, npt.NDArray[np.uint32], int]:
    """A column with offsets."""
    ends = np.cumsum([0] + [len(value) for value in values]).astype(np.uint32)
    return np.frombuffer(b"".join(values) or b"\0", np.uint8), ends, 0


def column(values: Values) -> tuple[Bytes, npt.NDArray[np.uint32] | None, int]:
    """Fixed where all have one width, else with offsets. An array is (items, width)."""
    if isinstance(values, np.ndarray):
        return np.ascontiguousarray(values).reshape(-1), None, values.shape[1]
    return fixed(values) if len({len(value) for value in values}) == 1 else variable(values)


@dataclass
class Result:
    """What the stages left."""

    codes: Bytes
    valid: Bytes
    decided: Bytes
    outputs: list[Bytes]


class Plugin:
    """A built plugin with its state."""

    def __init__(self, library: ctypes.CDLL, state: Sequence[str] = ()) -> None:
        self.library = library
        self.info = PluginInfo.in_dll(library, "plugin_info")
        assert self.info.batch_bytes == ctypes.sizeof(BatchStruct)
        self.state = _aligned(self.info.state_bytes)
        batch = BatchStruct(state=self.state.ctypes.data)
        for stage in state:
            self._call(stage, batch, ctypes.c_uint32.in_dll(library, f"{stage}_count").value)

    def run(
        self,
        stages: Sequence[str],
        inputs: Sequence[Values],
        *,
        parameters: Sequence[int] = (),
        constant: bytes = b"",
        outputs: Sequence[int] = (),
    ) -> Result:
        """Runs the stages, then publish, over all items in one call each. `outputs` are bytes an item."""
        items = len(inputs[0])
        columns = [column(values) for values in inputs]
        words = (items + 31) // 32
        result = Result(
            np.zeros(items, np.uint8),
            np.full(4 * words, 0xA5, np.uint8),
            np.full(4 * words, 0xA5, np.uint8),
            [np.zeros((items, width), np.uint8) for width in outputs],
        )
        shared = np.frombuffer(constant or b"\0", np.uint8)
        item_scratch = _aligned(32 * words * self.info.scratch_item_bytes)
        lane_scratch = _aligned(self.info.scratch_lane_bytes)
        item_scratch[:] = 0xA5  # stages may rely on nothing that they did not write
        lane_scratch[:] = 0xA5
        batch = BatchStruct(
            items=items,
            capacity=32 * words,
            constant=shared.ctypes.data,
            constant_bytes=len(constant),
            valid=result.valid.ctypes.data,
            decided=result.decided.ctypes.data,
            codes=result.codes.ctypes.data,
            state=self.state.ctypes.data,
            item_scratch=item_scratch.ctypes.data,
            lane_scratch=lane_scratch.ctypes.data,
        )
        for i, number in enumerate(parameters):
            batch.parameters[i] = int(number)
        for i, (data, offsets, stride) in enumerate(columns):
            batch.inputs[i] = ColumnStruct(data.ctypes.data, 0 if offsets is None else offsets.ctypes.data, stride)
        for i, array in enumerate(result.outputs):
            batch.outputs[i] = array.ctypes.data
            batch.output_strides[i] = array.shape[1]
        for stage in [*stages, "publish"]:
            self._call(stage, batch, items)
        return result

    def _call(self, stage: str, batch: BatchStruct, end: int) -> None:
        function = getattr(self.library, stage)
        function.argtypes = [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_uint32]
        function.restype = None
        function(ctypes.addressof(batch), 0, end, 0)


def _aligned(nbytes: int) -> Bytes:
    """Memory at a 64-byte boundary, as devices give it."""
    raw = np.zeros(nbytes + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + nbytes]
