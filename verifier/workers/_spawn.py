"""How a worker's process is made."""

from __future__ import annotations

import socket
import subprocess
from contextlib import ExitStack
from multiprocessing.connection import Connection
from typing import NamedTuple

from verifier.spawn import spawn

__all__ = ["Spawned", "spawn_worker"]


class Spawned(NamedTuple):
    """A process, and the parent's ends of its pipes."""

    popen: subprocess.Popen[bytes]
    control: Connection
    batches: Connection
    urgent: Connection


def spawn_worker(device_id: str, memory: int) -> Spawned:
    """`memory`: the slots, which stay the caller's. Raises OSError."""
    with ExitStack() as ends:
        pairs = [[ends.enter_context(end) for end in socket.socketpair()] for _ in range(3)]
        fds = (*(theirs.fileno() for _, theirs in pairs), memory)
        popen = spawn("verifier.workers._child", f"verifier-worker {device_id}", fds)
        return Spawned(popen, *(Connection(ours.detach()) for ours, _ in pairs))
