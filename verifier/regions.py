"""Regions: memory that one other process fills with columns, and that workers read where it lies.

A region is a memfd: it has no name to be left behind and can be handed over a Unix socket. Batches that use it
are counted: `retire` takes it out of use, and its memory is let go of when the last of them is done.
"""

from __future__ import annotations

import fcntl
import itertools
import mmap
import os
import threading
from collections.abc import Callable

import numpy as np

from verifier.errors import NotFoundError
from verifier.model import Bytes

__all__ = ["ALIGNMENT", "Region", "aligned", "map_memory"]

ALIGNMENT = 64  # of columns, in regions and in workers' slots

_ids = itertools.count(1)  # 0 is a worker's own slot


def aligned(nbytes: int) -> int:
    """`nbytes` rounded up to the alignment of columns."""
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def map_memory(fd: int, nbytes: int, *, writable: bool = True) -> Bytes:
    """The first `nbytes` behind a descriptor, which stays the caller's. The mapping lives as long as the array."""
    access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
    return np.frombuffer(mmap.mmap(fd, nbytes, access=access), np.uint8)


class Region:
    """One region, seen from the core. Thread-safe.

    `changeable`: whoever fills it may change it while it is used, so nothing read from it twice may be relied on.
    `on_gone` is called once, by whichever thread lets go last.
    """

    def __init__(
        self, fd: int, nbytes: int, *, changeable: bool, on_gone: Callable[[Region], None] | None = None
    ) -> None:
        """Takes `fd` over. Raises OSError or ValueError where it cannot be mapped; the descriptor is closed then."""
        try:
            self.memory = map_memory(fd, nbytes, writable=not changeable)
        except (OSError, ValueError):
            os.close(fd)
            raise
        self.id = next(_ids)
        self.fd = fd
        self.nbytes = nbytes
        self.changeable = changeable
        self.address: int = self.memory.__array_interface__["data"][0]
        self._on_gone = on_gone
        self._lock = threading.Lock()
        self._uses = 0
        self._retired = False

    @classmethod
    def create(cls, nbytes: int, on_gone: Callable[[Region], None] | None = None) -> Region:
        """New memory for a process of ours, which cannot be made smaller under those who read it."""
        fd = os.memfd_create("verifier-region", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.truncate(fd, nbytes)
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        except OSError:
            os.close(fd)
            raise
        return cls(fd, nbytes, changeable=False, on_gone=on_gone)

    @property
    def uses(self) -> int:
        """Batches that use it now."""
        return self._uses

    def offset_of(self, data: Bytes) -> int:
        """Where an array that lies in it begins."""
        begin: int = data.__array_interface__["data"][0]
        return begin - self.address

    def hold(self) -> None:
        """A batch uses it from now on, until `release`. Raises NotFoundError where it is retired."""
        with self._lock:
            if self._retired:
                raise NotFoundError("region", "it is not registered any more")
            self._uses += 1

    def release(self) -> None:
        """The batch is done with it."""
        with self._lock:
            self._uses -= 1
            gone = self._retired and not self._uses
        if gone:
            self._go()

    def retire(self) -> None:
        """Nobody may use it any more; it is gone when the last of its batches is done. Idempotent."""
        with self._lock:
            if self._retired:
                return
            self._retired = True
            gone = not self._uses
        if gone:
            self._go()

    def _go(self) -> None:
        if self._on_gone is not None:
            self._on_gone(self)
        os.close(self.fd)
        self.memory = self.memory[:0].copy()  # unmapped with the last column that lies there
