"""Memory that a daemon on this host reads where it lies, so that columns cross no socket."""

from __future__ import annotations

import fcntl
import mmap
import os
import select
import socket
import struct
import threading
from contextlib import suppress
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from node_adapter.client._wire import pb
from node_adapter.errors import CapacityError, RefusedError, UnavailableError

__all__ = ["SharedMemory"]

_RESOURCE_EXHAUSTED = 8
_ANSWER_S = 10.0


class SharedMemory:
    """A region of shared memory, registered with a daemon at `unix:/path` (its `shared_memory.listen`).

        memory = SharedMemory("unix:/run/verifier/memory.sock", 64 << 20)
        with VerifierClient("localhost:50051", shared_memory=memory) as client:
            signatures = memory.array[: 64 * items].reshape(items, 64)
            ...                                  # fill it
            client.verify(scheme, digests, signatures, keys)

    Columns that lie in `array` are sent as their places; others as bytes. What lies there must not be changed before
    the verdicts are there: the daemon does not copy it. When the daemon has been restarted the memory is registered
    again; until that succeeds columns are sent as bytes. Raises UnavailableError, RefusedError, CapacityError.
    """

    def __init__(self, address: str, nbytes: int) -> None:
        self._path = address.removeprefix("unix:")
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._region = 0
        self._fd = os.memfd_create("verifier-client", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.truncate(self._fd, nbytes)
            fcntl.fcntl(self._fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
            self.array: npt.NDArray[np.uint8] = np.frombuffer(mmap.mmap(self._fd, nbytes), np.uint8)
            self._begin: int = self.array.__array_interface__["data"][0]
            self._register()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> SharedMemory:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the registration. The array lives on."""
        with self._lock:
            self._disconnect()
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1

    def place_of(self, data: npt.NDArray[np.uint8]) -> Any:
        """A SharedBytes that names where a contiguous array lies; None where it is not in this memory."""
        begin = data.__array_interface__["data"][0] - self._begin
        if not data.size or begin < 0 or begin + data.size > self.array.size:
            return None
        region = self._registered()
        return pb.SharedBytes(region=region, offset=begin, bytes=data.size) if region else None

    def _registered(self) -> int:
        """The region's number; 0 where no daemon knows it now."""
        with self._lock:
            if self._socket is not None and not _readable(self._socket):
                return self._region
            self._disconnect()  # a daemon never speaks first: its end is what can be read
            if self._fd >= 0:
                with suppress(UnavailableError, RefusedError, CapacityError):
                    self._register()
            return self._region

    def _disconnect(self) -> None:
        self._region = 0
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _register(self) -> None:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.settimeout(_ANSWER_S)
            connection.connect(self._path)
            body = pb.SharedMemoryRequest(register_bytes=self.array.size).SerializeToString()
            socket.send_fds(connection, [struct.pack("<I", len(body)) + body], [self._fd])
            (size,) = struct.unpack("<I", _exactly(connection, 4))
            answer = pb.SharedMemoryAnswer.FromString(_exactly(connection, size))
        except OSError as error:
            connection.close()
            raise UnavailableError(f"no shared memory at {self._path}: {error}") from None
        if answer.code:
            connection.close()
            if answer.code == _RESOURCE_EXHAUSTED:
                raise CapacityError(answer.message)
            raise RefusedError("SHARED_MEMORY", answer.message)
        self._socket, self._region = connection, answer.region


def _readable(connection: socket.socket) -> bool:
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(0))


def _exactly(connection: socket.socket, nbytes: int) -> bytes:
    data = b""
    while len(data) < nbytes:
        more = connection.recv(nbytes - len(data))
        if not more:
            raise ConnectionResetError("the daemon ended the connection")
        data += more
    return data
