"""Kernels' GPU branches on the CPU, the threads of a block taking turns (gpu_emulator.h)."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from _build import Bytes, build, compile_by
from _builds import BUILDS, alone

from verifier.drivers import BatchStruct
from verifier.drivers._abi import ColumnStruct, PluginInfo
from verifier.model import Column

HERE = Path(__file__).parent


def _emulator() -> Path:
    target = BUILDS / "gpu_emulator.o"
    with alone(target.name):
        if not target.exists():
            compile_by("g++", "-O1", "-fPIC", "-c", str(HERE / "gpu_emulator.cpp"), target=target)
    return target


def build_emulated(
    source: Path, *, flags: Sequence[str] = (), defines: Mapping[str, int] | None = None
) -> ctypes.CDLL:
    """A source with the emulator in it."""
    common = ["-Og", "-w", "-fno-strict-aliasing", "-include", str(HERE / "gpu_emulator.h")]
    return build(source, flags=[*common, *flags, "-x", "none", str(_emulator()), "-x", "c++"], defines=defines)


def launch_emulated(library: ctypes.CDLL, kernel: str, batch: BatchStruct, *, grid: int, threads: int) -> None:
    """Runs a kernel to its end, and fails where its threads wait for one another for ever."""
    function = ctypes.cast(getattr(library, kernel), ctypes.c_void_p)
    assert library.emulated_launch(function, ctypes.byref(batch), grid, threads) == 0, f"{kernel} hangs"


# A build of SM2 with which every launch is one over few items, for all tests of those.
SM2_FEW = {"TEAM_ITEMS": 1 << 20, "COMB_TEAM_ITEMS": 1 << 20, "KEY_SLOTS": 16, "WINDOW_KEY": 4, "WINDOW_G": 8}


class EmulatedPlugin:
    """A plugin's kernels, and its state once the stages `state` have made it."""

    BLOCKS = 2

    def __init__(
        self,
        source: Path,
        threads: Mapping[str, int],
        state: Sequence[str],
        defines: Mapping[str, int],
    ) -> None:
        """`threads`: of a block of each stage."""
        self.library = build_emulated(source, defines=defines)
        self.info = PluginInfo.in_dll(self.library, "plugin_info")
        self.state = aligned(self.info.state_bytes)
        self._threads = threads
        for stage in state:
            count = ctypes.c_uint32.in_dll(self.library, f"{stage}_count").value
            self._launch(stage, BatchStruct(items=count, state=self.state.ctypes.data))

    def _launch(self, stage: str, batch: BatchStruct) -> None:
        launch_emulated(self.library, stage, batch, grid=self.BLOCKS, threads=self._threads[stage])

    def run(
        self,
        stages: Sequence[str],
        items: int,
        columns: Sequence[Column],
        parameters: Sequence[int],
        constant: bytes = b"",
    ) -> list[Bytes]:
        """The codes that each stage leaves."""
        capacity = (items + 31) // 32 * 32
        codes, shared = np.zeros(items, np.uint8), np.frombuffer(constant or b"\0", np.uint8)
        scratch = aligned(capacity * self.info.scratch_item_bytes)
        lanes = aligned(self.BLOCKS * 512 * self.info.scratch_lane_bytes)
        scratch[:] = 0xA5  # stages may rely on nothing that they did not write
        lanes[:] = 0xA5
        batch = BatchStruct(
            items=items,
            capacity=capacity,
            constant=shared.ctypes.data,
            constant_bytes=len(constant),
            codes=codes.ctypes.data,
            state=self.state.ctypes.data,
            item_scratch=scratch.ctypes.data,
            lane_scratch=lanes.ctypes.data,
        )
        for i, number in enumerate(parameters):
            batch.parameters[i] = number
        for i, c in enumerate(columns):
            offsets = 0 if c.offsets is None else c.offsets.ctypes.data
            batch.inputs[i] = ColumnStruct(c.data.ctypes.data, offsets, c.stride)
        left = []
        for stage in stages:
            self._launch(stage, batch)
            left.append(codes.copy())
        return left


def aligned(nbytes: int) -> Bytes:
    """Memory at a 64-byte boundary, at least a byte."""
    raw = np.zeros(nbytes + 64, np.uint8)
    return raw[-raw.ctypes.data % 64 :][: max(nbytes, 1)]
