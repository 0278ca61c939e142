"""Slots: shared memory that parent and child both map, one slot a batch in flight.

The memory has no name: it is a memfd whose descriptor the child inherits. So there is nothing to unlink, and the
kernel frees it when both processes have let go, whichever way they end.
"""

from __future__ import annotations

import os

from verifier.regions import map_memory

__all__ = ["Slots"]


class Slots:
    """`count` slots of `nbytes` bytes each. `memory` is all of them, `slots` each one."""

    def __init__(self, fd: int, count: int, nbytes: int) -> None:
        """Maps the memory behind `fd`, which stays the caller's."""
        self.memory = map_memory(fd, count * nbytes)
        self.slots = [self.memory[i * nbytes : (i + 1) * nbytes] for i in range(count)]

    @staticmethod
    def create(count: int, nbytes: int) -> int:
        """New memory for slots: a descriptor that the caller closes."""
        fd = os.memfd_create("verifier-slots")
        os.truncate(fd, count * nbytes)
        return fd
