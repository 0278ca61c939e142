"""The keys that the daemon holds: in memory that is overwritten when a key is deleted, and that no core dump has."""

from __future__ import annotations

import ctypes
import itertools
import math
import mmap
import secrets
import threading
from collections import Counter
from collections.abc import Sequence
from types import TracebackType
from typing import Protocol, Self

import numpy as np
import numpy.typing as npt

from verifier.api._cipher_stripes import compact, offsets_of
from verifier.ciphers import CIPHERS
from verifier.errors import CapacityError, KeyInUseError, NotFoundError, RequestError
from verifier.model import Bytes, Column
from verifier.secret import Secret

__all__ = ["CipherKeys", "HeldKeys", "KeyStore"]

_ROW_BYTES = max(size for cipher in CIPHERS.values() for size in cipher.key_bytes)
_ROW_BITS = 20
_RANDOM_BITS = 43  # a handle has 63 bits, so that every language's integers have it
_ALGORITHMS = tuple(CIPHERS)

Indices = npt.NDArray[np.uint32]


class HeldKeys(Protocol):
    """Keys in use, until `release`: none of them is overwritten before."""

    def constant(self) -> Secret:
        """The first key, for operations that have one key for all items."""

    def column(self, indices: Indices) -> Column:
        """The keys that `indices` name, an item each. Overwritten by `release`."""

    def release(self) -> None:
        """Gives the keys back. Idempotent."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class KeyStore(Protocol):
    """What the service needs of whoever keeps the keys. `owner` is whom a call is from."""

    def create(self, algorithm: str, key: bytes, owner: str) -> int:
        """Keeps a key and returns its handle. Raises CapacityError."""

    def use(self, field: str, handles: Sequence[int], algorithm: str, owner: str) -> HeldKeys:
        """Raises NotFoundError or RequestError naming `field` and the handle."""

    def delete(self, handle: int, owner: str, timeout_s: float) -> None:
        """Raises NotFoundError, KeyInUseError."""


class CipherKeys:
    """The key store of one process. Thread-safe.

    A handle is random but for its last bits, which are the key's row: one from before a restart names nobody's key.
    """

    def __init__(self, max_keys: int, max_keys_a_caller: int | None = None) -> None:
        """`max_keys_a_caller`: of one owner; None: all of them."""
        self._max = max_keys
        self._max_a_caller = max_keys_a_caller or max_keys
        self._rows = _private_memory(max_keys * _ROW_BYTES).reshape(max_keys, _ROW_BYTES)
        self._sizes = np.zeros(max_keys, np.int64)
        self._handles = np.zeros(max_keys, np.uint64)  # 0: free, or deleted and still in use
        self._algorithms = np.zeros(max_keys, np.uint8)
        self._owners = np.zeros(max_keys, np.int64)
        self._uses = np.zeros(max_keys, np.int64)
        self._leaving = np.zeros(max_keys, np.uint64)  # the handle of a key that is deleted and still in use
        self._free = list(range(max_keys - 1, -1, -1))
        self._constants: dict[int, Secret] = {}
        self._owner_numbers: dict[str, int] = {}  # of those who have keys
        self._next_owner = itertools.count()
        self._owned: Counter[str] = Counter()  # their keys, those included that are deleted and still in use
        self._owner_of: dict[int, str] = {}  # by row
        self._changed = threading.Condition()

    def create(self, algorithm: str, key: bytes, owner: str) -> int:
        """Keeps a copy of a key whose length was checked, and returns its handle. Raises CapacityError."""
        with self._changed:
            owned = self._owned[owner]
            if owned >= self._max_a_caller:
                problem = f"this caller has {owned} keys, which is its limit (cipher.max_keys_a_caller): delete some"
                raise CapacityError(problem, 1.0)
            if not self._free:
                raise CapacityError(f"{self._max} keys are held, which is the limit (cipher.max_keys)", 1.0)
            row = self._free.pop()
            handle = 0
            while not handle:
                handle = secrets.randbits(_RANDOM_BITS) << _ROW_BITS | row
            self._rows[row, : len(key)] = np.frombuffer(key, np.uint8)
            self._sizes[row] = len(key)
            self._algorithms[row] = _ALGORITHMS.index(algorithm)
            if owner not in self._owner_numbers:
                self._owner_numbers[owner] = next(self._next_owner)
            self._owners[row] = self._owner_numbers[owner]
            self._owner_of[row] = owner
            self._owned[owner] += 1
            self._handles[row] = handle
            return handle

    def use(self, field: str, handles: Sequence[int], algorithm: str, owner: str) -> _Held:
        """Holds keys. Raises NotFoundError, RequestError."""
        wanted = np.fromiter(handles, np.uint64, len(handles))
        with self._changed:
            rows = self._find(field, wanted, owner)
            other = self._algorithms[rows] != _ALGORITHMS.index(algorithm)
            if other.any():
                at = int(other.argmax())
                have = _ALGORITHMS[self._algorithms[rows[at]]]
                raise RequestError(_name(field, at, wanted), f"{wanted[at]} is a key for {have}, not {algorithm}")
            np.add.at(self._uses, rows, 1)
            return _Held(self, rows, int(wanted[0]))

    def delete(self, handle: int, owner: str, timeout_s: float = math.inf) -> None:
        """Takes a key out of use, waits for those that have it, and overwrites it.

        Raises NotFoundError; KeyInUseError where it is in use for longer than `timeout_s`: the last user's release
        overwrites it then.
        """
        with self._changed:
            row = int(self._find("key", np.array([handle], np.uint64), owner)[0])
            self._handles[row] = 0
            self._leaving[row] = handle
            if not self._uses[row]:
                self._wipe(row)
                return
            timeout = None if math.isinf(timeout_s) else max(timeout_s, 0)
            if not self._changed.wait_for(lambda: self._leaving[row] != handle, timeout):
                raise KeyInUseError(
                    "key",
                    f"{handle} takes no new calls; {self._uses[row]} have it, and it is overwritten when they end",
                )

    def close(self) -> None:
        """Overwrites every key."""
        with self._changed:
            self._rows[:] = 0
            self._handles[:] = 0
            for secret in self._constants.values():
                secret.wipe()

    def __len__(self) -> int:
        return self._max - len(self._free)

    def _find(self, field: str, wanted: npt.NDArray[np.uint64], owner: str) -> npt.NDArray[np.intp]:
        rows = (wanted & np.uint64((1 << _ROW_BITS) - 1)).astype(np.intp)
        inside = rows < self._max
        rows = np.where(inside, rows, 0)
        # Another's key is told from an unknown one by nothing.
        own = self._owners[rows] == self._owner_numbers.get(owner, -1)
        known = inside & own & (wanted != 0) & (self._handles[rows] == wanted)
        if not known.all():
            at = int((~known).argmax())
            raise NotFoundError(
                _name(field, at, wanted),
                f"{wanted[at]} is no key of this caller: it was never created here, was deleted, or is from before "
                "a restart",
            )
        return rows

    def _constant(self, row: int, handle: int) -> Secret:
        with self._changed:
            secret = self._constants.get(row)
            if secret is None:
                secret = self._constants[row] = Secret(self._rows[row, : self._sizes[row]].data, handle)
            return secret

    def _release(self, rows: npt.NDArray[np.intp]) -> None:
        with self._changed:
            np.subtract.at(self._uses, rows, 1)
            left = np.unique(rows[(self._leaving[rows] != 0) & (self._uses[rows] == 0)])
            for row in left.tolist():
                self._wipe(row)

    def _wipe(self, row: int) -> None:
        self._rows[row] = 0
        secret = self._constants.pop(row, None)
        if secret is not None:
            secret.wipe()
        self._leaving[row] = 0
        self._free.append(row)
        self._disown(row)
        self._changed.notify_all()

    def _disown(self, row: int) -> None:
        owner = self._owner_of.pop(row)
        self._owned[owner] -= 1
        if not self._owned[owner]:
            del self._owned[owner], self._owner_numbers[owner]


class _Held:
    def __init__(self, keys: CipherKeys, rows: npt.NDArray[np.intp], first: int) -> None:
        self._keys = keys
        self._rows = rows
        self._first = first
        self._columns: list[Bytes] = []
        self._released = False

    def constant(self) -> Secret:
        return self._keys._constant(int(self._rows[0]), self._first)

    def column(self, indices: Indices) -> Column:
        rows = self._rows[indices]
        sizes = self._keys._sizes[rows]
        width = int(sizes.max(initial=0))
        data = self._keys._rows[rows, :width]
        self._columns.append(data)
        if (sizes == width).all():
            return Column(data.reshape(-1), width)
        packed = compact(data, sizes)
        self._columns.append(packed)
        return Column(packed, 0, offsets_of(sizes).astype(np.uint32))

    def release(self) -> None:
        if self._released:
            return
        self._released = True
        for data in self._columns:
            data[...] = 0
        self._keys._release(self._rows)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def _name(field: str, at: int, wanted: npt.NDArray[np.uint64]) -> str:
    return f"{field}[{at}]" if wanted.size > 1 else field


def _private_memory(nbytes: int) -> Bytes:
    """Zeros that are left out of core dumps, and of swap where the process may lock so much memory."""
    memory = mmap.mmap(-1, nbytes)
    memory.madvise(mmap.MADV_DONTDUMP)
    array = np.frombuffer(memory, np.uint8)
    ctypes.CDLL(None).mlock(ctypes.c_void_p(array.ctypes.data), ctypes.c_size_t(nbytes))  # best effort
    return array
