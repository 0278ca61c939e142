"""Items picked out of a column. No loop runs over items."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from verifier.model import Bytes, Column

__all__ = ["gather"]

_GATHERED_BYTES = 1 << 20  # at once


def gather(column: Column, items: npt.NDArray[np.integer]) -> Column:
    """The column of the named items, in their order."""
    if column.offsets is None:
        if not column.stride:
            return column
        return Column(column.data.reshape(-1, column.stride)[items].reshape(-1), column.stride)
    starts = column.offsets[:-1].astype(np.int64)[items]
    sizes = np.diff(column.offsets).astype(np.int64)[items]
    offsets = np.zeros(items.size + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    return Column(_gathered(column.data, starts, offsets), 0, offsets.astype(np.uint32))


def _gathered(source: Bytes, starts: npt.NDArray[np.int64], offsets: npt.NDArray[np.int64]) -> Bytes:
    """Values from `starts` on, each put at its offset. Some at a time: the index of a byte takes eight bytes."""
    found = np.empty(int(offsets[-1]), np.uint8)
    begin = 0
    while begin < starts.size:
        end = max(int(np.searchsorted(offsets, offsets[begin] + _GATHERED_BYTES, side="right")) - 1, begin + 1)
        at, to = int(offsets[begin]), int(offsets[end])
        if end == begin + 1:
            found[at:to] = source[int(starts[begin]) : int(starts[begin]) + to - at]
        else:
            shift = np.repeat(starts[begin:end] - offsets[begin:end], np.diff(offsets[begin : end + 1]))
            found[at:to] = source[np.arange(at, to) + shift]
        begin = end
    return found
