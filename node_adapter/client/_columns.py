"""Packing values into columns, and cutting columns into chunks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import countOf
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from node_adapter.client._wire import pb
from node_adapter.errors import RequestError

__all__ = ["Column", "Values", "pack", "take", "unique"]

Values: TypeAlias = "Column | npt.NDArray[np.uint8] | bytes | bytearray | memoryview | Sequence[bytes]"
"""One field of all items: a list of bytes, one buffer or uint8 array of fixed-width values, an (items, width)
array, or a column packed before."""

_WIRE = np.dtype("<u4")  # of offsets

_MANY = 256  # items

# Padding variable values for the comparison may not take more memory than this.
_MAX_UNIQUE_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class Column:
    """All items' values of one field, contiguous: `stride` bytes each, or between `offsets` (items + 1)."""

    data: npt.NDArray[np.uint8]
    items: int
    stride: int = 0
    offsets: npt.NDArray[np.int64] | None = None

    @property
    def nbytes(self) -> int:
        """Bytes on the wire: the last of `ends`."""
        return self.items * self.stride if self.offsets is None else int(self.offsets.item(-1)) + 4 * self.items

    def ends(self) -> npt.NDArray[np.int64]:
        """Bytes on the wire before each item and after the last: items + 1 numbers."""
        if self.offsets is None:
            return np.arange(self.items + 1, dtype=np.int64) * self.stride
        return self.offsets + 4 * np.arange(self.items + 1, dtype=np.int64)

    def cut(self, start: int, stop: int) -> Any:
        """The items from `start` to `stop` as the contract's message."""
        data, offsets = self.parts(start, stop)
        return pb.Column(data=data, offsets=offsets)

    def parts(self, start: int, stop: int) -> tuple[bytes, bytes]:
        """Data and offsets of the items from `start` to `stop`, as the contract has them."""
        data, offsets = self.views(start, stop)
        return data.tobytes(), offsets

    def views(self, start: int, stop: int) -> tuple[npt.NDArray[np.uint8], bytes]:
        """As `parts`, with the data where they are."""
        if self.offsets is None:
            return self.data[start * self.stride : stop * self.stride], b""
        offsets = self.offsets[start : stop + 1]
        first, last = offsets.item(0), offsets.item(-1)
        if first:
            offsets = offsets - first
        return self.data[first:last], offsets.astype(_WIRE).tobytes()


def pack(name: str, values: Values, width: int | None, items: int | None = None) -> Column:
    """Packs the values of one field.

    `width` is the scheme's fixed width, or None. A list may hold values of any length: those of a wrong one are
    found malformed one by one. Raises RequestError naming the field where the values cannot be cut into items or
    are not `items` many.
    """
    column = _pack(name, values, width)
    if items is not None and column.items != items:
        raise RequestError(name, f"{column.items} values, but the batch has {items} items")
    return column


def _pack(name: str, values: Values, width: int | None) -> Column:
    if isinstance(values, Column):
        return values
    if isinstance(values, list):
        return _list(name, values, width)
    if isinstance(values, np.ndarray):
        if values.dtype != np.uint8:
            raise RequestError(name, f"an array of {values.dtype}; it must be uint8")
        if values.ndim == 2:
            return _rows(name, values, width)
        if values.ndim != 1:
            raise RequestError(name, f"an array of {values.ndim} dimensions; it must have 1 or 2")
        return _buffer(name, np.ascontiguousarray(values), width)
    if isinstance(values, bytes | bytearray | memoryview):
        return _buffer(name, np.frombuffer(values, np.uint8), width)
    return _list(name, values, width)


def _buffer(name: str, data: npt.NDArray[np.uint8], width: int | None) -> Column:
    if not width:
        raise RequestError(name, "values of this encoding vary in width: give a list or an (items, width) array")
    if data.size % width:
        raise RequestError(name, f"{data.size} bytes are not a multiple of the encoding's {width}")
    return Column(data, data.size // width, width)


def _rows(name: str, rows: npt.NDArray[np.uint8], width: int | None) -> Column:
    items, given = rows.shape
    data = np.ascontiguousarray(rows).reshape(-1)
    if width is None:
        return Column(data, items, 0, np.arange(items + 1, dtype=np.int64) * given)
    if given != width:
        raise RequestError(name, f"rows of {given} bytes; the encoding takes {width}")
    return Column(data, items, width)


def _list(name: str, values: Sequence[bytes], width: int | None) -> Column:
    items = len(values)
    try:
        data = np.frombuffer(b"".join(values), np.uint8)
    except TypeError as error:
        raise RequestError(name, f"a list must hold bytes: {error}") from None
    # The right total says no before the lengths are looked at, but not yes: 63 and 65 bytes are twice 64, too.
    if width and data.size == items * width and countOf(map(len, values), width) == items:
        return Column(data, items, width)
    offsets = _offsets(values)
    if offsets[-1] != data.size:  # a view of numbers has more bytes than elements
        raise RequestError(name, f"a list must hold bytes: its values have {offsets[-1]} elements, {data.size} bytes")
    return Column(data, items, 0, offsets)


def _offsets(values: Sequence[bytes]) -> npt.NDArray[np.int64]:
    """Where each value begins, and where the last one ends."""
    items = len(values)
    if items < _MANY:  # counted up while they are read: a step of numpy's more costs what a hundred items cost
        return np.fromiter(accumulate(map(len, values), initial=0), np.int64, items + 1)
    offsets = np.zeros(items + 1, np.int64)
    np.cumsum(np.fromiter(map(len, values), np.int64, items), out=offsets[1:])
    return offsets


def _matrix(column: Column) -> npt.NDArray[np.uint8]:
    """One row an item, equal exactly where the values are equal: padded values followed by their lengths."""
    if column.offsets is None:
        return column.data.reshape(column.items, column.stride)
    lengths = np.diff(column.offsets)
    width = int(lengths.max(initial=0))
    rows = np.zeros((column.items, width + 4), np.uint8)
    rows[:, :width][np.arange(width) < lengths[:, None]] = column.data[column.offsets[0] : column.offsets[-1]]
    rows[:, width:] = lengths.astype("<u4").view(np.uint8).reshape(-1, 4)
    return rows


def take(column: Column, chosen: npt.NDArray[np.intp]) -> Column:
    """The chosen items of a column, in the order of `chosen`."""
    if column.offsets is None:
        data = column.data.reshape(column.items, column.stride)[chosen].reshape(-1)
        return Column(data, chosen.size, column.stride)
    lengths = np.diff(column.offsets)[chosen]
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    source = np.arange(offsets[-1]) + np.repeat(column.offsets[:-1][chosen] - offsets[:-1], lengths)
    return Column(column.data[source], chosen.size, 0, offsets)


def unique(
    columns: Sequence[Column],
) -> tuple[list[Column], npt.NDArray[np.intp]] | None:
    """The distinct items of a batch, and for each item its place among them.

    None where nothing is equal, or where comparing would need too much memory.
    """
    items = columns[0].items
    widths = [int(np.diff(c.offsets).max(initial=0)) + 4 if c.offsets is not None else c.stride for c in columns]
    if items == 0 or items * sum(widths) > _MAX_UNIQUE_BYTES:
        return None
    rows = np.ascontiguousarray(np.concatenate([_matrix(column) for column in columns], axis=1))
    keys = rows.view(np.dtype((np.void, rows.shape[1]))).reshape(-1)
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    if first.size == items:
        return None
    return [take(column, first) for column in columns], inverse
