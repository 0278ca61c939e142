"""Keys named by index: tables that come with a batch, and sets that were registered."""

from __future__ import annotations

import secrets
import threading
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from verifier.errors import CapacityError, NotFoundError, RequestError
from verifier.model import Bytes, Code, Column

__all__ = ["INDEX_BYTES", "MAX_KEY_BYTES", "KeySet", "KeySetLimits", "KeySets", "gather", "key_table"]

INDEX_BYTES = 4
MAX_KEY_BYTES = 1024  # of one registered key: an SPKI of these curves has 91 bytes
_RAW_BYTES = 64

Indices = npt.NDArray[np.uint32]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class KeySet:
    """Keys as one column in their own encoding. `usable` is false where a key is not one."""

    algorithm: str
    encoding: str
    items: int
    keys: Column
    usable: Mask


@dataclass(frozen=True, slots=True)
class KeySetLimits:
    """Bounds of what is registered."""

    sets: int = 1024
    bytes: int = 1 << 30  # of all sets together


def key_table(algorithm: str, data: bytes) -> KeySet:
    """The table that comes with a batch: 64 bytes a key, x || y. Raises RequestError."""
    if not data or len(data) % _RAW_BYTES:
        raise RequestError("key_table", f"{len(data)} bytes, which is not one or more keys of {_RAW_BYTES} bytes")
    items = len(data) // _RAW_BYTES
    return KeySet(
        algorithm, "RAW_XY", items, Column.fixed("key_table", data, _RAW_BYTES, items), np.ones(items, np.bool_)
    )


def gather(keys: KeySet, indices: Indices, max_bytes: int) -> tuple[Column, Indices]:
    """The key column that `indices` name, and the items whose index names no usable key.

    Those items get the first key: their verdict is KEY_INDEX whatever the device says. Raises RequestError where the
    column would have more than `max_bytes`.
    """
    wrong = indices >= keys.items
    safe = np.where(wrong, 0, indices)
    wrong |= ~keys.usable[safe]
    refused = np.flatnonzero(wrong).astype(np.uint32)
    column = keys.keys
    if column.offsets is None:
        _check_bytes(indices.size * column.stride, max_bytes)
        rows = column.data.reshape(keys.items, column.stride)
        return Column(rows[safe].reshape(-1), column.stride), refused
    starts = column.offsets[:-1].astype(np.int64)[safe]
    sizes = np.diff(column.offsets).astype(np.int64)[safe]
    offsets = np.zeros(indices.size + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    _check_bytes(int(offsets[-1]), max_bytes)
    source = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], sizes)
    return Column(column.data[source], 0, offsets.astype(np.uint32)), refused


def _check_bytes(nbytes: int, max_bytes: int) -> None:
    if nbytes > max_bytes:
        raise RequestError("key", f"the named keys have {nbytes} bytes; the limit of a batch is {max_bytes}")


def key_codes(codes: Bytes) -> Mask:
    """Which codes say that the key is wrong."""
    mask: Mask = (codes >= Code.KEY_LENGTH) & (codes <= Code.KEY_SPKI)
    return mask


class KeySets:
    """What is registered. Thread-safe; bounded in sets and bytes.

    Handles are random, so that a handle from before a restart is unknown and never names another's keys.
    """

    def __init__(self, limits: KeySetLimits) -> None:
        self._limits = limits
        self._lock = threading.Lock()
        self._sets: dict[int, KeySet] = {}
        self._bytes = 0

    def check_room(self, nbytes: int) -> None:
        """Raises CapacityError where no set of this size can be added now."""
        if len(self._sets) >= self._limits.sets:
            raise CapacityError(f"{self._limits.sets} key sets are registered, which is the limit", 1.0)
        if self._bytes + nbytes > self._limits.bytes:
            raise CapacityError(f"{self._bytes} of {self._limits.bytes} bytes of registered keys are taken", 1.0)

    def add(self, keys: KeySet) -> int:
        """Keeps a set and returns its handle. Raises CapacityError."""
        with self._lock:
            self.check_room(keys.keys.nbytes)
            handle = secrets.randbits(63) | 1
            while handle in self._sets:
                handle = secrets.randbits(63) | 1
            self._sets[handle] = keys
            self._bytes += keys.keys.nbytes
            return handle

    def get(self, handle: int) -> KeySet:
        """Raises NotFoundError."""
        keys = self._sets.get(handle)
        if keys is None:
            raise NotFoundError("key_set", f"{handle} is not registered")
        return keys

    def release(self, handle: int) -> None:
        """Lets go of a set; batches that were accepted still have its keys. Raises NotFoundError."""
        with self._lock:
            keys = self.get(handle)
            del self._sets[handle]
            self._bytes -= keys.keys.nbytes
