"""What tests of front ends and shared memory look at: processes, mappings, and raw registrations."""

from __future__ import annotations

import fcntl
import os
import socket
import struct
from pathlib import Path

from _daemon_process import DaemonProcess

from verifier.bench.processes import children
from verifier.v1 import verifier_pb2 as pb

TIMEOUT_S = 60
MEMORY = 8 << 20
SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW


def front_ends(daemon: DaemonProcess) -> list[int]:
    return children(daemon.process.pid, "verifier.frontend")


def mappings(pid: int, name: str) -> int:
    """How often memory of this name is mapped."""
    return Path(f"/proc/{pid}/maps").read_text().count(name)


def memfd(nbytes: int, seals: int = SEALS, flags: int = os.MFD_ALLOW_SEALING) -> int:
    fd = os.memfd_create("verifier-test", os.MFD_CLOEXEC | flags)
    os.truncate(fd, nbytes)
    if seals:
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


class Registrar:
    """A connection to the daemon's socket for shared memory, without the client's care."""

    def __init__(self, address: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(TIMEOUT_S)
        self.socket.connect(address.removeprefix("unix:"))

    def ask(self, fds: tuple[int, ...] = (), **fields) -> pb.SharedMemoryAnswer:
        body = pb.SharedMemoryRequest(**fields).SerializeToString()
        frame = struct.pack("<I", len(body)) + body
        if fds:
            socket.send_fds(self.socket, [frame], list(fds))
        else:
            self.socket.sendall(frame)
        (size,) = struct.unpack("<I", self._exactly(4))
        return pb.SharedMemoryAnswer.FromString(self._exactly(size))

    def _exactly(self, nbytes: int) -> bytes:
        data = b""
        while len(data) < nbytes:
            more = self.socket.recv(nbytes - len(data))
            if not more:
                raise ConnectionResetError
            data += more
        return data

    def close(self) -> None:
        self.socket.close()


def shared_memory(tmp_path) -> tuple[str, ...]:
    """Settings of a daemon that takes clients' memory."""
    return (
        "shared_memory.enabled=true",
        f"shared_memory.listen=unix:{tmp_path}/memory.sock",
        "shared_memory.max_regions=6",
        f"shared_memory.max_bytes={8 * MEMORY}",
        f"shared_memory.max_region_bytes={5 * MEMORY}",
        "shared_memory.user_share=0.5",
    )
