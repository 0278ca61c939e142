"""How a worker's process is made."""

from __future__ import annotations

import socket
import subprocess
import sys
from multiprocessing.connection import Connection

__all__ = ["spawn"]


def spawn(device_id: str, memory: int) -> tuple[subprocess.Popen[bytes], Connection, Connection]:
    """A fresh interpreter, which inherits nothing but the two pipes and the slots."""
    control, child_control = socket.socketpair()
    batches, child_batches = socket.socketpair()
    fds = (child_control.fileno(), child_batches.fileno(), memory)
    # The parent's own search path, so that the child cannot be of another version.
    code = f"import sys; sys.path[:] = {sys.path}; from verifier.workers._child import main; main(*{fds})"
    with control, batches, child_control, child_batches:
        popen = subprocess.Popen(
            [sys.executable, "-c", code, f"verifier-worker {device_id}"],
            pass_fds=fds,
            stdin=subprocess.DEVNULL,
            process_group=0,  # Ctrl-C is for the parent, which drains
        )
        return popen, Connection(control.detach()), Connection(batches.detach())
