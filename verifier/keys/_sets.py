"""Keys named by index: tables that come with a batch, and sets that were registered."""

from __future__ import annotations

import hashlib
import secrets
import threading
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from verifier.errors import CapacityError, NotFoundError, RequestError
from verifier.model import Bytes, Code, Column

__all__ = [
    "INDEX_BYTES",
    "MAX_KEY_BYTES",
    "Indices",
    "KeySet",
    "KeySetLimits",
    "KeySets",
    "Mask",
    "Names",
    "key_codes",
    "key_table",
    "resolve",
]

INDEX_BYTES = 4
MAX_KEY_BYTES = 1024  # of one registered key: an SPKI of these curves has 91 bytes
_RAW_BYTES = 64

Indices = npt.NDArray[np.uint32]
Mask = npt.NDArray[np.bool_]
Names = npt.NDArray[np.uint64]  # a slot, and from bit 32 on its generation; 0: in no table

_NO_NAMES = np.zeros(0, np.uint64)


class TableView(NamedTuple):
    """Where the keys of a set stand in the devices' tables. Replaced as a whole, never changed."""

    names: Names  # one a key, or empty: none of them is in a table
    whole: bool  # every usable key is


@dataclass(frozen=True, eq=False)
class KeySet:
    """Keys as one column in their own encoding, which is the host's copy of what devices have in tables. `usable` is
    false where a key is not one; `first` is for each key the first one of the same bytes. A set that does not last
    comes with one batch, and gets no tables."""

    algorithm: str
    encoding: str
    items: int
    keys: Column
    usable: Mask
    first: npt.NDArray[np.intp]
    lasting: bool = True
    _view: list[TableView] = field(default_factory=lambda: [TableView(_NO_NAMES, False)], init=False, repr=False)

    @classmethod
    def of(cls, algorithm: str, encoding: str, items: int, keys: Column, usable: Mask | None = None) -> KeySet:
        """A set whose keys are usable but where `usable` says otherwise."""
        usable = np.ones(items, np.bool_) if usable is None else usable
        return cls(algorithm, encoding, items, keys, usable, _first_equal(keys, items))

    @property
    def view(self) -> TableView:
        """Where its keys stand now."""
        return self._view[0]

    def publish(self, view: TableView) -> None:
        """Batches that come from now on go by `view`."""
        self._view[0] = view


def _first_equal(column: Column, items: int) -> npt.NDArray[np.intp]:
    if column.offsets is not None or items == 0:
        return np.arange(items, dtype=np.intp)
    rows = np.ascontiguousarray(column.data.reshape(items, column.stride)).view(f"V{column.stride}").ravel()
    _, first, inverse = np.unique(rows, return_index=True, return_inverse=True)
    return first[inverse]


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
    column = Column.fixed("key_table", data, _RAW_BYTES, items)
    first = np.arange(items, dtype=np.intp)
    return KeySet(algorithm, "RAW_XY", items, column, np.ones(items, np.bool_), first, lasting=False)


def resolve(keys: KeySet, indices: Indices, max_bytes: int) -> tuple[Indices, Indices, int]:
    """Indices that are all below keys.items, the items whose index names no usable key, and the named keys' bytes.

    Those items get the first key: their verdict is KEY_INDEX whatever the device says. Raises RequestError where the
    named keys have more than `max_bytes`.
    """
    wrong = indices >= keys.items
    safe = np.where(wrong, np.uint32(0), indices)
    wrong |= ~keys.usable[safe]
    nbytes = keys.keys.stride * safe.size
    if keys.keys.offsets is not None:
        nbytes = int(np.diff(keys.keys.offsets)[safe].sum(dtype=np.int64)) + 4 * (safe.size + 1)
    if nbytes > max_bytes:
        raise RequestError("key", f"the named keys have {nbytes} bytes; the limit of a batch is {max_bytes}")
    return safe, np.flatnonzero(wrong).astype(np.uint32), nbytes


def key_codes(codes: Bytes) -> Mask:
    """Which codes say that the key is wrong."""
    mask: Mask = (codes >= Code.KEY_LENGTH) & (codes <= Code.KEY_SPKI)
    return mask


class _Held:
    def __init__(self, keys: KeySet, digest: bytes) -> None:
        self.keys = keys
        self.digest = digest
        self.handles = 0


class KeySets:
    """What is registered. Thread-safe; bounded in sets and bytes.

    Handles are random, so that a handle from before a restart is unknown and never names another's keys. Sets of the
    same keys in the same order share one copy, and so one set of tables.
    """

    def __init__(self, limits: KeySetLimits) -> None:
        self._limits = limits
        self._lock = threading.Lock()
        self._sets: dict[int, _Held] = {}
        self._by_digest: dict[bytes, _Held] = {}
        self._bytes = 0

    def check_room(self, nbytes: int) -> None:
        """Raises CapacityError where no set of this size can be added now."""
        if len(self._sets) >= self._limits.sets:
            raise CapacityError(f"{self._limits.sets} key sets are registered, which is the limit", 1.0)
        if self._bytes + nbytes > self._limits.bytes:
            raise CapacityError(f"{self._bytes} of {self._limits.bytes} bytes of registered keys are taken", 1.0)

    def add(self, keys: KeySet) -> int:
        """Keeps a set and returns its handle. Raises CapacityError."""
        digest = _digest(keys)
        with self._lock:
            held = self._by_digest.get(digest)
            self.check_room(keys.keys.nbytes if held is None else 0)
            if held is None:
                held = self._by_digest[digest] = _Held(keys, digest)
                self._bytes += keys.keys.nbytes
            handle = secrets.randbits(63) | 1
            while handle in self._sets:
                handle = secrets.randbits(63) | 1
            self._sets[handle] = held
            held.handles += 1
            return handle

    def get(self, handle: int) -> KeySet:
        """Raises NotFoundError."""
        held = self._sets.get(handle)
        if held is None:
            raise NotFoundError("key_set", f"{handle} is not registered")
        return held.keys

    def release(self, handle: int) -> KeySet | None:
        """Lets go of a set; batches that were accepted still have its keys. The set, where this was its last handle.
        Raises NotFoundError."""
        with self._lock:
            self.get(handle)
            held = self._sets.pop(handle)
            held.handles -= 1
            if held.handles:
                return None
            del self._by_digest[held.digest]
            self._bytes -= held.keys.keys.nbytes
            return held.keys


def _digest(keys: KeySet) -> bytes:
    state = hashlib.sha256(f"{keys.algorithm} {keys.encoding} {keys.items} {keys.keys.stride} ".encode())
    state.update(keys.usable.tobytes())
    if keys.keys.offsets is not None:
        state.update(keys.keys.offsets.tobytes())
    state.update(np.ascontiguousarray(keys.keys.data).data)
    return state.digest()
