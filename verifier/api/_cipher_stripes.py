"""Messages as stripes: what the bulk operations of ciphers take and give. No loop runs over messages or stripes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from verifier.ciphers import STRIPE_BLOCKS
from verifier.model import Bytes

__all__ = ["Lengths", "Stripes", "add_to_counters", "compact", "offsets_of"]

Lengths = npt.NDArray[np.int64]


def offsets_of(lengths: Lengths | npt.NDArray[np.bool_]) -> Lengths:
    """Where values of these lengths begin, one behind the other, and where the last one ends."""
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)))


def compact(cells: Bytes, lengths: Lengths) -> Bytes:
    """The first `lengths` bytes of every row of `cells`, one behind the other."""
    width = cells.shape[1]
    if (lengths == width).all():
        return cells.reshape(-1)
    return cells[np.arange(width) < lengths[:, None]]


def add_to_counters(counters: Bytes, numbers: npt.NDArray[np.uint64]) -> Bytes:
    """Counter blocks, (n, 8 or 16), each read as one big-endian number, plus `numbers`; the carry runs through."""
    words = np.ascontiguousarray(counters).view(">u8").astype(np.uint64)
    low = words[:, -1] + numbers
    if words.shape[1] == 2:
        words[:, 0] += low < numbers
    words[:, -1] = low
    return words.astype(">u8").view(np.uint8)


@dataclass(frozen=True, slots=True)
class Stripes:
    """Messages of any lengths, each cut into stripes of `width` bytes, the last of which may be partly filled.

    `first` is each message's first stripe, and the number of stripes at its end; `filled` is how many bytes of every
    stripe are its message's; `message` is every stripe's message, `place` its number in that.
    """

    width: int
    lengths: Lengths
    first: Lengths
    filled: Lengths
    message: npt.NDArray[np.intp]
    place: Lengths

    @classmethod
    def of(cls, lengths: Lengths, width: int) -> Stripes:
        """Stripes of messages of these lengths."""
        counts = -(-lengths // width)
        first = offsets_of(counts)
        message = np.repeat(np.arange(lengths.size), counts)
        place = np.arange(first[-1]) - first[message]
        filled = np.minimum(lengths[message] - width * place, width)
        return cls(width, lengths, first, filled, message, place)

    @property
    def count(self) -> int:
        """All stripes."""
        return int(self.first[-1])

    def fill(self, data: Bytes) -> Bytes:
        """The messages' bytes, (count, width); what a stripe has behind its message's end is zeros."""
        if data.size == self.count * self.width:
            return data.reshape(self.count, self.width)
        cells = np.zeros((self.count, self.width), np.uint8)
        if self.lengths.size == 1:
            cells.reshape(-1)[: data.size] = data
        else:
            cells[np.arange(self.width) < self.filled[:, None]] = data
        return cells

    def compact(self, cells: Bytes) -> Bytes:
        """The messages' bytes of (count, width), one behind the other."""
        if self.lengths.size == 1:
            return cells.reshape(-1)[: int(self.lengths[0])]
        return compact(cells, self.filled)

    def counters(self, initial: Bytes) -> Bytes:
        """The counter of every stripe's first block, given each message's, (messages, block)."""
        return add_to_counters(initial[self.message], (STRIPE_BLOCKS * self.place).astype(np.uint64))

    def previous(self, cells: Bytes, initial: Bytes) -> Bytes:
        """The ciphertext block before every stripe, given the one before each message, (messages, block)."""
        before = np.zeros((self.count, initial.shape[1]), np.uint8)
        before[1:] = cells[:-1, -initial.shape[1] :]
        starts = self.place == 0
        before[starts] = initial[self.message[starts]]
        return before

    def any_in_message(self, marks: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """Of every message, whether any of its stripes is marked."""
        return np.diff(offsets_of(marks)[self.first]) > 0
