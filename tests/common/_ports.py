from __future__ import annotations

import socket


def free_port() -> int:
    """A port of the loopback that nobody has just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
