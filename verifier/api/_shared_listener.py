"""The socket where clients on this host register memory.

A client hands over a memfd that it made itself, and that nobody can make smaller any more: reading it then never ends
in SIGBUS. What it registered is gone when it unregisters it, or its connection ends, whichever way the client ends.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import stat
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import structlog
from google.protobuf.message import DecodeError

from verifier.api._listeners import somebody_listens
from verifier.api._shared import SharedRegions
from verifier.api.status import status_of
from verifier.errors import CapacityError, ConfigError, DeniedError, RequestError
from verifier.regions import Region
from verifier.v1 import verifier_pb2 as pb

__all__ = ["SharedMemoryListener", "check_memory"]

_log = structlog.get_logger(__name__)

_MOST_MESSAGE_BYTES = 256
_MESSAGE_S = 10.0  # for the rest of a message that has begun
_AFTER_FAULT_S = 0.1
_CONNECTIONS = 256
_USER_CONNECTIONS = 128
_TMPFS_MAGIC = 0x01021994


def check_memory(fd: int, nbytes: int, uid: int) -> None:
    """Raises RequestError or DeniedError where memory of the user `uid` cannot be read safely."""
    try:
        seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
    except OSError:
        raise RequestError("memory", "it is not a memfd (memfd_create with MFD_ALLOW_SEALING)") from None
    if not seals & fcntl.F_SEAL_SHRINK:
        raise RequestError("memory", "it can be made smaller: seal it with F_SEAL_SHRINK first")
    found = os.fstat(fd)  # after the seal was seen: a size from before it may be one that is no more
    if found.st_uid != uid:
        raise DeniedError("the memory belongs to another user than the one who registers it")
    if not stat.S_ISREG(found.st_mode) or _file_system(fd) != _TMPFS_MAGIC:
        # A huge page that is missing when it is touched ends the reader, sealed or not.
        raise RequestError("memory", "it is of huge pages, which are not taken")
    if not 1 <= nbytes <= found.st_size:
        raise RequestError("register_bytes", f"{nbytes}, but the memory has {found.st_size} bytes")


def _file_system(fd: int) -> int:
    """f_type of fstatfs(2), the first word of its result."""
    buffer = (ctypes.c_long * 32)()
    if ctypes.CDLL(None, use_errno=True).fstatfs(fd, buffer):
        raise OSError(ctypes.get_errno(), "fstatfs")
    return int(buffer[0])


class SharedMemoryListener:
    """`on_gone` is called with a region that nobody uses any more."""

    def __init__(self, path: Path, mode: int, regions: SharedRegions, on_gone: Callable[[Region], None]) -> None:
        """Listens. Raises ConfigError."""
        self._regions = regions
        self._on_gone = on_gone
        self._path = path
        self._lock = threading.Lock()
        self._connections: dict[socket.socket, int] = {}  # and their users
        self._closing = False
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
            if somebody_listens(path):
                raise ConfigError(f"shared_memory.listen: {path} cannot be opened: another process answers there")
            if path.is_socket():  # what else is there is not ours to remove, and `bind` says so
                path.unlink()
            # Nobody can connect before `listen`, and by then the mode is right.
            self._socket.bind(str(path))
            path.chmod(mode)
            self._socket.listen(16)
        except OSError as error:
            self._socket.close()
            raise ConfigError(f"shared_memory.listen: {path} cannot be opened: {error.strerror}") from None
        self._thread = threading.Thread(target=self._accept, name="shared memory", daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        """As clients write it."""
        return f"unix:{self._path}"

    def close(self) -> None:
        """Ends every connection; their regions go when their batches are done."""
        with self._lock:
            self._closing = True
            connections = list(self._connections)
        for connection in (self._socket, *connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()
        self._path.unlink(missing_ok=True)

    def _accept(self) -> None:
        while not self._closing:
            try:
                connection, _ = self._socket.accept()
            except OSError as error:
                if not self._closing:  # no descriptor is left, for instance: that passes
                    _log.error("shared_memory_not_accepted", error=str(error))
                    time.sleep(_AFTER_FAULT_S)
                continue
            try:
                self._begin(connection)
            except RuntimeError as error:  # no thread is left
                _log.error("shared_memory_not_accepted", error=str(error))
                self._end(connection)

    def _begin(self, connection: socket.socket) -> None:
        _, uid, _ = _peer(connection)
        with self._lock:
            users = list(self._connections.values())
            full = len(users) >= _CONNECTIONS or users.count(uid) >= _USER_CONNECTIONS
            refused = self._closing or full
            if not refused:
                self._connections[connection] = uid
        if refused:
            connection.close()
        else:
            threading.Thread(target=self._serve, args=(connection,), name="shared memory", daemon=True).start()

    def _end(self, connection: socket.socket) -> None:
        with self._lock:
            self._connections.pop(connection, None)
        connection.close()

    def _serve(self, connection: socket.socket) -> None:
        pid, uid, _ = _peer(connection)
        mine: set[int] = set()
        try:
            while (received := _receive(connection)) is not None:
                body = self._answer(*received, uid, mine).SerializeToString()
                connection.sendall(struct.pack("<I", len(body)) + body)
        except (OSError, DecodeError, ValueError) as error:
            _log.info("shared_memory_connection_lost", pid=pid, uid=uid, problem=str(error))
        finally:
            for handle in mine:
                self._regions.remove(handle)
            self._end(connection)

    def _answer(
        self, request: pb.SharedMemoryRequest, fds: list[int], uid: int, mine: set[int]
    ) -> pb.SharedMemoryAnswer:
        try:
            if request.WhichOneof("request") == "register_bytes":
                handle = self._register(request.register_bytes, fds, uid)
                mine.add(handle)
            else:
                handle = request.unregister_region
                if handle not in mine:
                    raise RequestError("unregister_region", f"{handle} is not a region of this connection")
                mine.remove(handle)
                self._regions.remove(handle)
        except Exception as error:
            status = status_of(error)
            return pb.SharedMemoryAnswer(code=status.number, message=status.message)
        finally:
            for fd in fds:
                os.close(fd)
        return pb.SharedMemoryAnswer(region=handle)

    def _register(self, nbytes: int, fds: list[int], uid: int) -> int:
        if not fds:
            raise RequestError("register_bytes", "no descriptor came with the first byte of the request")
        check_memory(fds[0], nbytes, uid)
        try:
            return self._regions.add(os.dup(fds[0]), nbytes, uid, self._on_gone)
        except OSError as error:
            _log.error("region_not_mapped", nbytes=nbytes, error=str(error))
            raise CapacityError(f"{nbytes} bytes cannot be mapped now", 1.0) from None


def _peer(connection: socket.socket) -> tuple[int, int, int]:
    """Process, user and group of who connected."""
    pid, uid, gid = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return pid, uid, gid


def _receive(connection: socket.socket) -> tuple[pb.SharedMemoryRequest, list[int]] | None:
    """A request and the descriptors that came with it; None where the client is done. Raises OSError, ValueError."""
    connection.settimeout(None)
    head, fds, _, _ = socket.recv_fds(connection, 4, 1)
    try:
        if not head:
            return None
        connection.settimeout(_MESSAGE_S)
        head += _exactly(connection, 4 - len(head))
        (size,) = struct.unpack("<I", head)
        if size > _MOST_MESSAGE_BYTES:
            raise ValueError(f"a request of {size} bytes; at most {_MOST_MESSAGE_BYTES} are read")
        return pb.SharedMemoryRequest.FromString(_exactly(connection, size)), fds
    except BaseException:
        for fd in fds:
            os.close(fd)
        raise


def _exactly(connection: socket.socket, nbytes: int) -> bytes:
    data = b""
    while len(data) < nbytes:
        more = connection.recv(nbytes - len(data))
        if not more:
            raise ValueError("the connection ended within a request")
        data += more
    return data
