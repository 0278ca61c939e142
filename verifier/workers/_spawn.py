"""How a worker's process is made."""

from __future__ import annotations

import socket
import subprocess
from multiprocessing.connection import Connection

from verifier.spawn import spawn

__all__ = ["spawn_worker"]


def spawn_worker(device_id: str, memory: int) -> tuple[subprocess.Popen[bytes], Connection, Connection]:
    """The process, and the parent's ends of its two pipes. `memory`: the slots, which stay the caller's."""
    control, child_control = socket.socketpair()
    batches, child_batches = socket.socketpair()
    with control, batches, child_control, child_batches:
        fds = (child_control.fileno(), child_batches.fileno(), memory)
        popen = spawn("verifier.workers._child", f"verifier-worker {device_id}", fds)
        return popen, Connection(control.detach()), Connection(batches.detach())
