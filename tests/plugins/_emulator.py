"""Kernels' GPU branches on the CPU, the threads of a block taking turns (gpu_emulator.h)."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from _build import Bytes, build, compile_by
from _builds import BUILDS, alone

from verifier.drivers import BatchStruct

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


def aligned(nbytes: int) -> Bytes:
    """Memory at a 64-byte boundary, at least a byte."""
    raw = np.zeros(nbytes + 64, np.uint8)
    return raw[-raw.ctypes.data % 64 :][: max(nbytes, 1)]
