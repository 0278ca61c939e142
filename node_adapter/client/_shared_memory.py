"""Memory that a daemon on this host reads where it lies, so that columns cross no socket."""

from __future__ import annotations

import fcntl
import mmap
import os
import select
import socket
import struct
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from node_adapter.client._wire import pb
from node_adapter.errors import CapacityError, RefusedError, UnavailableError
from verifier.errors import CapacityError as NoRoomError
from verifier.places import Places
from verifier.regions import aligned

__all__ = ["Loan", "SharedMemory"]

_RESOURCE_EXHAUSTED = 8
_ANSWER_S = 10.0
_LEAST_LENT_BYTES = 512 << 10  # below, a copy more costs a caller what gRPC would


class Loan(NamedTuple):
    """Copies of columns, and what gives their place back when the call has ended, whatever came of it. A daemon that
    still reads for a call that was given up then reads another's columns, for verdicts that nobody waits for."""

    columns: list[npt.NDArray[np.uint8]]
    end: Callable[[], None]


class SharedMemory:
    """A region of shared memory, registered with a daemon at `unix:/path` (its `shared_memory.listen`).

        memory = SharedMemory("unix:/run/verifier/memory.sock", 64 << 20)
        with VerifierClient("localhost:50051", shared_memory=memory) as client:
            signatures = memory.array[: 64 * items].reshape(items, 64)
            ...                                  # fill it
            client.verify(scheme, digests, signatures, keys)

    Columns that lie in `array` are sent as their places. What lies there must not be changed before the verdicts are
    there: the daemon does not copy it. Others are copied into `room` bytes more that are the client's own, and sent
    as bytes while there is no room for them. When the daemon has been restarted the memory is registered again; until
    that succeeds all columns are sent as bytes. Raises UnavailableError, RefusedError, CapacityError.
    """

    def __init__(self, address: str, nbytes: int, *, room: int = 0) -> None:
        self._path = address.removeprefix("unix:")
        self._own_begin = aligned(nbytes)
        self._own = Places(room)
        whole = self._own_begin + room if room else nbytes
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._region = 0
        self._fd = os.memfd_create("verifier-client", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.truncate(self._fd, whole)
            fcntl.fcntl(self._fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
            self._memory: npt.NDArray[np.uint8] = np.frombuffer(mmap.mmap(self._fd, whole), np.uint8)
            self.array = self._memory[:nbytes]
            self._begin: int = self._memory.__array_interface__["data"][0]
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
        begin = self._offset_of(data)
        if begin is None or not data.size:
            return None
        region = self._registered()
        return pb.SharedBytes(region=region, offset=begin, bytes=data.size) if region else None

    def lend(self, columns: Sequence[npt.NDArray[np.uint8]]) -> Loan | None:
        """Copies of arrays in the client's own part; None where they lie in this memory already, there is no room, or
        they are so small that a message carries them as well."""
        sizes = [aligned(column.size) if self._offset_of(column) is None else 0 for column in columns]
        if sum(sizes) < _LEAST_LENT_BYTES or not self._registered():
            return None
        try:
            place = self._own.take(sum(sizes))
        except NoRoomError:
            return None
        at, copies = self._own_begin + place[0], []
        for column, size in zip(columns, sizes, strict=True):
            copy = self._memory[at : at + column.size] if size else column
            if size:
                np.copyto(copy, column)
            copies.append(copy)
            at += size
        return Loan(copies, partial(self._own.give_back, place))

    @property
    def lent_bytes(self) -> int:
        """How much of the client's own part calls under way have."""
        return self._own.taken

    def _offset_of(self, data: npt.NDArray[np.uint8]) -> int | None:
        """Where an array lies in this memory; None where it does not."""
        begin: int = data.__array_interface__["data"][0] - self._begin
        return begin if 0 <= begin <= begin + data.size <= self._memory.size else None

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
            body = pb.SharedMemoryRequest(register_bytes=self._memory.size).SerializeToString()
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
