"""Runs kernels' GPU branches on the CPU, thread by thread (gpu_shim.h)."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from _build import Bytes, build

from verifier.drivers import BatchStruct
from verifier.drivers._abi import ColumnStruct

SHIM = Path(__file__).with_name("gpu_shim.h")


def run(
    source: Path,
    kernel: str,
    values: Sequence[bytes],
    width: int,
    *,
    threads: int,
    parameters: Sequence[int] = (),
    shift: int = 0,
    flags: Sequence[str] = (),
) -> tuple[Bytes, Bytes]:
    """Codes, and one output of `width` bytes an item.

    `shift`: how far behind a 16-byte boundary the column begins. The column's block ends where its last item ends.
    """
    library = build(source, flags=["-O1", "-include", str(SHIM), "-Wno-pedantic", *flags])
    data, ends = b"".join(values), np.cumsum([0, *map(len, values)]).astype(np.uint32)
    block = np.empty(len(data) + shift, np.uint8)
    assert block.ctypes.data % 16 == 0
    block[shift:] = np.frombuffer(data, np.uint8)
    codes, output = np.zeros(len(values), np.uint8), np.zeros((len(values), width), np.uint8)
    batch = BatchStruct(items=len(values), capacity=(len(values) + 31) // 32 * 32, codes=codes.ctypes.data)
    batch.inputs[0] = ColumnStruct(block.ctypes.data + shift, ends.ctypes.data, 0)
    batch.outputs[0], batch.output_strides[0] = output.ctypes.data, width
    for i, number in enumerate(parameters):
        batch.parameters[i] = number
    function = getattr(library, kernel)
    function.argtypes, function.restype = [BatchStruct], None
    index = {name: ctypes.c_uint32.in_dll(library, name) for name in ("threadIdx", "blockIdx", "gridDim")}
    index["gridDim"].value = 3
    for block_number in range(3):
        index["blockIdx"].value = block_number
        for thread in range(threads):
            index["threadIdx"].value = thread
            function(batch)
    return codes, output
