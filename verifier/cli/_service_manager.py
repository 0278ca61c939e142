"""What a service manager is told (systemd's sd_notify protocol): that the daemon is ready, and that it stops."""

from __future__ import annotations

import os
import socket

__all__ = ["notify"]


def notify(state: str) -> bool:
    """Sends "READY=1" or the like to the manager that started this process; whether there is one."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return False
    if address.startswith("@"):  # Linux's abstract names begin with a zero byte
        address = "\0" + address[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as manager:
        try:
            manager.connect(address)
            manager.sendall(state.encode())
        except OSError:
            return False
    return True
