"""Reading answers: bitmaps and columns whose sizes must fit the question, and that must not contradict each other."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from node_adapter.client._results import Digests, Served, Verdicts
from node_adapter.errors import AnswerError
from verifier.model import Code, bitmap_bytes

__all__ = [
    "no_digests",
    "no_verdicts",
    "read_bits",
    "read_codes",
    "read_digests",
    "read_outputs",
    "read_served",
    "read_verdicts",
]

Bytes = npt.NDArray[np.uint8]

# As plain numbers: numpy takes an enum's member several times as slowly.
_VALID, _INVALID, _UNDECIDED = int(Code.VALID), int(Code.INVALID), int(Code.UNDECIDED)


def read_verdicts(response: Any, items: int) -> Verdicts:
    """The verdicts in an answer to Verify. Raises AnswerError."""
    return Verdicts(read_codes(response, items), (read_served(response, items),))


def no_verdicts(items: int) -> Verdicts:
    """Nothing is decided."""
    return Verdicts(np.zeros(items, np.uint8))


def read_digests(response: Any, items: int) -> Digests:
    """The hashes in an answer to Digest. Raises AnswerError."""
    decided = read_bits("decided", response.decided, items)
    codes = np.multiply(decided, _VALID, dtype=np.uint8)
    return Digests(codes, (read_served(response, items),), (), read_outputs("digests", response.digests, items, 32))


def no_digests(items: int) -> Digests:
    """No message is hashed."""
    return Digests(np.zeros(items, np.uint8), (), (), np.zeros((items, 32), np.uint8))


def read_served(response: Any, items: int) -> Served:
    """Who answered, and in which time."""
    times = response.timings
    return Served(items, response.served_by, response.device, times.queue_ns, times.device_ns, times.total_ns)


def read_bits(name: str, bitmap: bytes, items: int) -> npt.NDArray[np.bool_]:
    """A bitmap as one bool an item. Raises AnswerError where it is not that of `items` items."""
    if len(bitmap) != bitmap_bytes(items):
        raise AnswerError(f"{name}: {len(bitmap)} bytes; {items} items are {bitmap_bytes(items)}")
    if items % 8 and bitmap[-1] >> items % 8:
        raise AnswerError(f"{name}: a bit behind the last of {items} items is set")
    return np.unpackbits(np.frombuffer(bitmap, np.uint8), count=items, bitorder="little").view(np.bool_)


def _all_set(items: int) -> bytes:
    """The bitmap of `items` items that are all set."""
    return b"\xff" * (items // 8) + (b"" if items % 8 == 0 else bytes(((1 << items % 8) - 1,)))


def read_outputs(name: str, data: bytes, items: int, width: int) -> Bytes:
    """Values of `width` bytes as rows. Raises AnswerError where they are not `items` many."""
    if len(data) != items * width:
        raise AnswerError(f"{name}: {len(data)} bytes; {items} items are {items * width}")
    return np.frombuffer(data, np.uint8).reshape(items, width)


def read_codes(response: Any, items: int) -> Bytes:
    """One code an item, from bitmaps and problems that must not contradict each other."""
    indices, told = response.problems.index, response.problems.code
    if not indices and not told and response.valid == response.decided == _all_set(items):  # most answers
        codes = np.empty(items, np.uint8)
        codes.fill(_VALID)
        return codes
    valid = read_bits("valid", response.valid, items)
    decided = read_bits("decided", response.decided, items)
    valid &= decided
    codes = np.multiply(decided, _INVALID, dtype=np.uint8)
    codes -= valid  # VALID is one less than INVALID
    if len(indices) != 4 * len(told):
        raise AnswerError(f"problems: {len(indices)} bytes of indices for {len(told)} codes")
    if not told:
        return codes
    index = np.frombuffer(indices, "<u4").astype(np.int64)
    code = np.frombuffer(told, np.uint8)
    if index[-1] >= items or (np.diff(index) <= 0).any():
        raise AnswerError(f"problems.index: not rising, or beyond the last of {items} items")
    if (valid[index] | (decided[index] == (code == _UNDECIDED))).any():
        raise AnswerError("problems: they contradict the bitmaps")
    codes[index] = code
    return codes
