"""Where a batch lies in its slot, and how its parts' columns are written there.

A slot holds the columns, the constant, then the results: codes, outputs, and the two bitmaps in whole words.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from verifier.drivers._abi import MAX_INPUTS, MAX_OUTPUTS
from verifier.model import Batch, BatchKey, Bytes, Column
from verifier.regions import ALIGNMENT, aligned
from verifier.secret import Secret

__all__ = ["Layout", "Place", "bound", "lay_out", "secrets", "wipe", "write_parts"]

_REGIONS = 2 * MAX_INPUTS + 1 + 1 + MAX_OUTPUTS + 2


class Place(NamedTuple):
    """A column in a slot: byte offsets into the slot."""

    data: int
    nbytes: int
    stride: int
    offsets: int  # -1: fixed width


class Layout(NamedTuple):
    """A batch in a slot: byte offsets into the slot."""

    items: int
    inputs: tuple[Place, ...]
    constant: int
    constant_bytes: int
    codes: int  # the inputs end here
    outputs: tuple[int, ...]
    output_bytes: tuple[int, ...]  # an item's
    valid: int  # codes and outputs end here
    decided: int
    nbytes: int

    @property
    def bitmap_words_bytes(self) -> int:
        """Bytes of one bitmap in words of 32 items."""
        return (self.items + 31) // 32 * 4


def bound(items: int, nbytes: int, output_bytes: int = 0) -> int:
    """Bytes of a slot that any batch of `items` items with `nbytes` of columns and constant needs at most.

    Counts every column as one whose parts are of mixed width and must have offsets written.
    """
    offsets = MAX_INPUTS * 4 * (items + 1)
    results = items * (1 + output_bytes) + 2 * ((items + 31) // 32 * 4)
    return nbytes + offsets + results + _REGIONS * ALIGNMENT


def lay_out(parts: Sequence[Batch], constant_bytes: int, output_bytes: tuple[int, ...]) -> Layout:
    """Places `parts`, one behind the other, in a slot."""
    columns = []
    for those in zip(*[part.inputs for part in parts], strict=True):
        stride = those[0].stride
        fixed = all(column.offsets is None and column.stride == stride for column in those)
        columns.append((sum(column.data.size for column in those), stride if fixed else -1))
    return _lay_out(sum(part.items for part in parts), tuple(columns), constant_bytes, output_bytes)


@lru_cache(256)  # callers' batches have few shapes, and come one after the other
def _lay_out(
    items: int, columns: tuple[tuple[int, int], ...], constant_bytes: int, output_bytes: tuple[int, ...]
) -> Layout:
    """Columns are their bytes and their width, -1 where there are offsets."""
    end = 0

    def take(nbytes: int) -> int:
        nonlocal end
        begin, end = end, aligned(end + nbytes)
        return begin

    inputs = []
    for nbytes, stride in columns:
        offsets = -1 if stride >= 0 else take(4 * (items + 1))
        inputs.append(Place(take(nbytes), nbytes, max(stride, 0), offsets))
    constant = take(constant_bytes)
    codes = take(items)
    outputs = tuple(take(items * width) for width in output_bytes)
    words = (items + 31) // 32 * 4
    valid = take(words)
    decided = take(words)
    return Layout(items, tuple(inputs), constant, constant_bytes, codes, outputs, output_bytes, valid, decided, end)


def secrets(layout: Layout, key: BatchKey) -> tuple[tuple[int, int], ...]:
    """Where keys lie in the slot: byte offsets and lengths."""
    columns = tuple((layout.inputs[i].data, layout.inputs[i].nbytes) for i in key.secret_inputs)
    if isinstance(key.constant, Secret):
        return (*columns, (layout.constant, layout.constant_bytes))
    return columns


def wipe(slot: Bytes, places: Sequence[tuple[int, int]]) -> None:
    """Overwrites these places of a slot."""
    for begin, nbytes in places:
        slot[begin : begin + nbytes] = 0


def write_parts(
    slot: Bytes,
    layout: Layout,
    parts: Sequence[Batch],
    constant: bytes | bytearray,
    borrowed: Collection[int] = frozenset(),
) -> None:
    """Writes the parts' columns and the constant to their places, but not what begins at a place in `borrowed`."""
    for place, columns in zip(layout.inputs, zip(*(part.inputs for part in parts), strict=True), strict=True):
        data = slot[place.data : place.data + place.nbytes]
        _write_data(data, [column.data for column in columns], place.data, borrowed)
        if place.offsets >= 0:
            ends = slot[place.offsets : place.offsets + 4 * (layout.items + 1)].view(np.uint32)
            _write_offsets(ends, columns, [part.items for part in parts])
    if constant:
        slot[layout.constant : layout.constant + len(constant)] = np.frombuffer(constant, np.uint8)


def _write_data(target: Bytes, parts: list[Bytes], at: int, borrowed: Collection[int]) -> None:
    if not borrowed:
        if len(parts) == 1:
            target[:] = parts[0]
        else:
            np.concatenate(parts, out=target)
        return
    begin = 0
    for part in parts:
        if at + begin not in borrowed or not part.size:
            target[begin : begin + part.size] = part
        begin += part.size


def _write_offsets(
    target: np.ndarray[tuple[int], np.dtype[np.uint32]], columns: Sequence[Column], items: list[int]
) -> None:
    """Offsets of all parts in one column: each part's ends, moved by what lies before the part."""
    target[0] = 0
    ends = [
        column.offsets[1:]
        if column.offsets is not None
        else np.arange(1, count + 1, dtype=np.uint32) * np.uint32(column.stride)
        for column, count in zip(columns, items, strict=True)
    ]
    np.concatenate(ends, out=target[1:])
    if len(columns) > 1:
        sizes = np.array([column.data.size for column in columns], np.uint32)
        target[1:] += np.repeat(np.cumsum(sizes, dtype=np.uint32) - sizes, items)
