"""A request on its way through the scheduler, and the pieces that it is cut into."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Protocol

import numpy as np

from verifier.attended import Attended
from verifier.model import Batch, BatchResult, Bytes, Column
from verifier.scheduling._ports import Lease

__all__ = ["CUT_ITEMS", "Piece", "Priority", "Work", "cut", "units"]

# Pieces begin at multiples of this, so that their bitmaps are whole bytes and whole words of the request's.
CUT_ITEMS = 32

# Long inputs cost time by the byte: this many bytes count as one more item.
_BYTES_A_UNIT = 1024


class Priority(IntEnum):
    """How urgent a request is; lower numbers go first. The numbers are those of the contract."""

    CONSENSUS = 1
    BLOCK = 2
    POOL = 3
    BULK = 4


def units(items: int, nbytes: int) -> int:
    """What a batch counts for in fairness and in the cost model."""
    return items + nbytes // _BYTES_A_UNIT


def cut(batch: Batch, begin: int, end: int) -> Batch:
    """The items [begin, end) of a batch. Fixed-width columns are views; offsets start at 0 again."""
    if begin == 0 and end == batch.items:
        return batch
    return Batch(batch.key, end - begin, tuple(_cut_column(column, begin, end) for column in batch.inputs))


def _cut_column(column: Column, begin: int, end: int) -> Column:
    if column.offsets is None:
        return Column(column.data[begin * column.stride : end * column.stride], column.stride, None, column.region)
    offsets = column.offsets[begin : end + 1]
    first = offsets[0]
    return Column(column.data[int(first) : int(offsets[-1])], 0, offsets - first, column.region)


class Clock(Protocol):
    """Seconds that never run backwards; `time.monotonic` outside tests."""

    def __call__(self) -> float: ...


@dataclass(slots=True, eq=False, weakref_slot=True)
class Work:
    """A request that was accepted and is not answered yet. Guarded by the scheduler's lock."""

    batch: Batch
    priority: Priority
    caller: str
    deadline: float | None
    accepted: float
    released: Callable[[], None] | None = None
    future: Attended[BatchResult] = field(default_factory=Attended)
    taken: int = 0  # items handed to devices so far
    open_pieces: int = 0
    tag: float = 0.0  # place in the fair order of its class
    started: float | None = None
    lease: Lease | None = None
    closed: bool = False  # nothing more of it is taken: expired, cancelled, or given up
    settled: bool = False  # its outcome is known
    _whole: BatchResult | None = None
    _devices: set[str] = field(default_factory=set)

    @property
    def urgent(self) -> bool:
        """Whether it overtakes what is not."""
        return self.priority is Priority.CONSENSUS

    @property
    def waiting(self) -> int:
        """Items that no device has yet."""
        return self.batch.items - self.taken

    def nbytes_between(self, begin: int, end: int) -> int:
        """Bytes of all columns of the items [begin, end)."""
        if begin == 0 and end == self.batch.items:
            return self.batch.nbytes
        total = 0
        for column in self.batch.inputs:
            if column.offsets is None:
                total += (end - begin) * column.stride
            else:
                total += int(column.offsets[end]) - int(column.offsets[begin]) + 4 * (end - begin + 1)
        return total

    def fitting(self, max_items: int, max_bytes: int, max_units: int) -> int:
        """How many of the items that wait, from the first on, stay within all bounds."""
        begin = self.taken
        count = max(min(self.waiting, max_items), 0)

        def exceeds(items: int) -> bool:
            nbytes = self.nbytes_between(begin, begin + items)
            return nbytes > max_bytes or units(items, nbytes) > max_units

        return bisect_left(range(1, count + 1), True, key=exceeds) if exceeds(count) else count

    def put(self, begin: int, part: BatchResult) -> None:
        """Takes over the result of the items from `begin` on."""
        if part.items == self.batch.items:
            self._whole = part
            return
        if self._whole is None:
            self._whole = BatchResult.undetermined(self.batch.items)
        whole = self._whole
        _paste(whole.valid, begin // 8, part.valid)
        _paste(whole.decided, begin // 8, part.decided)
        whole.codes[begin : begin + part.items] = part.codes
        if part.outputs and not whole.outputs:
            whole.outputs = tuple(np.zeros((whole.items, *o.shape[1:]), np.uint8) for o in part.outputs)
        for target, source in zip(whole.outputs, part.outputs, strict=False):
            target[begin : begin + part.items] = source
        whole.timings.device_ns += part.timings.device_ns
        whole.served_by = part.served_by or whole.served_by
        self._devices.update(name for name in (part.device,) if name)
        whole.device = ",".join(sorted(self._devices))

    def result(self) -> BatchResult:
        """What the pieces gave; items of pieces that never came are not decided."""
        return self._whole or BatchResult.undetermined(self.batch.items)


def _paste(target: Bytes, at: int, source: Bytes) -> None:
    target[at : at + source.size] = source


@dataclass(slots=True, eq=False)
class Piece:
    """Items [begin, end) of a request, as handed to one device."""

    work: Work
    begin: int
    end: int

    @property
    def items(self) -> int:
        return self.end - self.begin

    def batch(self) -> Batch:
        return cut(self.work.batch, self.begin, self.end)
