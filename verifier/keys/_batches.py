"""Batches whose keys are named, and what is put together of several batches' results."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from verifier.gather import gather
from verifier.keys._sets import Indices, KeySet
from verifier.model import Batch, BatchKey, BatchResult, Bytes, Code, Column, Timings, bits_of

__all__ = ["NamedBatch", "Positions", "joined", "not_in_a_table", "some_of"]

Positions = npt.NDArray[np.intp]

_KEY_INDEX = int(Code.KEY_INDEX)
_NO_ITEMS: Positions = np.empty(0, np.intp)


@dataclass(frozen=True, slots=True)
class NamedBatch:
    """A batch whose keys are members of a set. It is no Batch: who runs it decides how its keys come to the device.

    `inputs` are the columns in the manifest's order, the one at `key_at` absent. `indices` are below keys.items, and
    `refused` the items whose index names no key: they have key 0, and a verdict that nobody reads.
    """

    key: BatchKey  # of the operation that takes keys in the set's encoding
    items: int
    inputs: tuple[Column, ...]
    key_at: int
    keys: KeySet
    indices: Indices
    refused: Indices

    def gathered(self) -> Batch:
        """The same with every item's key in its column."""
        column = gather(self.keys.keys, self.indices)
        return Batch(self.key, self.items, (*self.inputs[: self.key_at], column, *self.inputs[self.key_at + 1 :]))


def some_of(batch: Batch, positions: Positions) -> Batch:
    """The named items of a batch, in their order."""
    return Batch(batch.key, positions.size, tuple(gather(column, positions) for column in batch.inputs))


def joined(items: int, pieces: list[tuple[Positions | None, BatchResult]]) -> BatchResult:
    """One result of several, each of the items at its positions; None: of all. Later ones replace earlier ones.

    Bits of `valid` count only where `decided` is set, as ever. Who served is the first, times are the longest.
    """
    first = pieces[0][1]
    if len(pieces) == 1 and pieces[0][0] is None:
        return first
    codes = np.zeros(items, np.uint8)
    valid, decided = np.zeros(items, np.bool_), np.zeros(items, np.bool_)
    for positions, result in pieces:
        where = slice(None) if positions is None else positions
        codes[where] = result.codes
        decided[where] = bits_of(result.decided, result.items)
        valid[where] = bits_of(result.valid, result.items)
    results = [result for _, result in pieces]
    served = next((result for result in results if result.served_by), first)
    return BatchResult(
        items,
        np.packbits(valid & decided, bitorder="little"),
        np.packbits(decided, bitorder="little"),
        codes,
        served_by=served.served_by,
        device=served.device,
        timings=Timings(
            max(result.timings.queue_ns for result in results),
            sum(result.timings.device_ns for result in results),
            max(result.timings.total_ns for result in results),
        ),
    )


def not_in_a_table(codes: Bytes, refused: Indices | Positions) -> Positions:
    """The items that a device had no table for, but those whose index names no key at all."""
    if _KEY_INDEX not in codes.tobytes():  # a scan of the memory, in a tenth of what follows
        return _NO_ITEMS
    open_items = codes == _KEY_INDEX
    open_items[refused] = False
    return np.flatnonzero(open_items)
