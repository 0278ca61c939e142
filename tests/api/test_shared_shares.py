"""What clients may register: one region, one user, and all of them."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator

import pytest

from verifier.api import SharedLimits, SharedRegions, _shared_listener
from verifier.api._shared_listener import SharedMemoryListener
from verifier.errors import CapacityError, ConfigError, RequestError

PAGE = 4096


@pytest.fixture
def regions():
    yield from removed(SharedRegions(SharedLimits(4, 8 * PAGE, user_share=0.5)))


@pytest.fixture
def small():
    yield from removed(SharedRegions(SharedLimits(4, 8 * PAGE, region_bytes=2 * PAGE)))


def removed(made: SharedRegions) -> Iterator[SharedRegions]:
    yield made
    for handle in list(made._regions):
        made.remove(handle)


def add(regions: SharedRegions, uid: int, nbytes: int = PAGE) -> int:
    fd = os.memfd_create("test", os.MFD_CLOEXEC)
    os.ftruncate(fd, nbytes)
    return regions.add(fd, nbytes, uid, lambda _region: None)


def test_a_user_with_its_share_of_regions_leaves_room_for_others(regions):
    first = add(regions, 1000)
    add(regions, 1000)
    with pytest.raises(CapacityError, match="this user's 2 regions are registered, which is the limit"):
        add(regions, 1000)
    add(regions, 1001)
    regions.remove(first)
    add(regions, 1000)


def test_a_user_with_its_share_of_bytes_leaves_room_for_others(regions):
    held = add(regions, 1000, 3 * PAGE)
    with pytest.raises(CapacityError, match=f"this user's {3 * PAGE} of {4 * PAGE} bytes of regions are taken"):
        add(regions, 1000, 2 * PAGE)
    add(regions, 1001, 2 * PAGE)
    regions.remove(held)
    add(regions, 1000, 2 * PAGE)
    assert regions.sizes() == (2, 4 * PAGE)


def test_a_region_that_is_larger_than_any_may_be_is_refused_for_good(small):
    fd = os.memfd_create("test", os.MFD_CLOEXEC)
    with pytest.raises(RequestError, match=rf"register_bytes: {2 * PAGE + 1} bytes.*{2 * PAGE} \(shared_memory\.max"):
        small.add(fd, 2 * PAGE + 1, 1000, lambda _region: None)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)
    add(small, 1000, 2 * PAGE)


def test_a_user_with_its_share_of_connections_leaves_room_for_others(tmp_path, regions, monkeypatch):
    monkeypatch.setattr(_shared_listener, "_USER_CONNECTIONS", 2)
    users = iter((1000, 1000, 1000, 1001))
    asked: dict[socket.socket, int] = {}

    def peer(connection: socket.socket) -> tuple[int, int, int]:
        """There is one user here; each connection is another's by turns."""
        if connection not in asked:
            asked[connection] = next(users)
        return 1, asked[connection], 1

    monkeypatch.setattr(_shared_listener, "_peer", peer)
    listener = SharedMemoryListener(tmp_path / "memory.sock", 0o600, regions, lambda _region: None)
    connections = []
    for _ in range(4):
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(10)
        connection.connect(str(tmp_path / "memory.sock"))
        connections.append(connection)
    assert connections[2].recv(1) == b"", "the third of the first user is closed"
    # An answer shows that a connection is served: a request of no region is refused, and not cut off.
    for served in (0, 1, 3):
        connections[served].sendall(b"\x00\x00\x00\x00")
        assert connections[served].recv(4)
    for connection in connections:
        connection.close()
    listener.close()


def test_a_socket_that_was_left_is_taken_over_and_a_file_is_not(tmp_path, regions):
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(tmp_path / "memory.sock"))
    left.close()
    SharedMemoryListener(tmp_path / "memory.sock", 0o600, regions, lambda _region: None).close()
    (tmp_path / "notes").write_text("mine")
    with pytest.raises(ConfigError, match=r"shared_memory\.listen: .*notes cannot be opened"):
        SharedMemoryListener(tmp_path / "notes", 0o600, regions, lambda _region: None)
    assert (tmp_path / "notes").read_text() == "mine"


@pytest.mark.parametrize("scarce", ["descriptor", "thread"])
def test_a_moment_of_scarcity_does_not_end_the_listener(tmp_path, regions, monkeypatch, scarce):
    failures = [OSError(24, "Too many open files")] if scarce == "descriptor" else [RuntimeError("can't start")]
    accept, start = socket.socket.accept, threading.Thread.start

    def accept_later(listening: socket.socket) -> tuple[socket.socket, object]:
        if scarce == "descriptor" and failures:
            raise failures.pop()
        return accept(listening)

    def start_later(thread: threading.Thread) -> None:
        if scarce == "thread" and failures and threading.current_thread() is not threading.main_thread():
            raise failures.pop()
        start(thread)

    monkeypatch.setattr(socket.socket, "accept", accept_later)
    monkeypatch.setattr(threading.Thread, "start", start_later)
    listener = SharedMemoryListener(tmp_path / "memory.sock", 0o600, regions, lambda _region: None)
    clients = [socket.socket(socket.AF_UNIX) for _ in range(2)]
    for client in clients:
        client.settimeout(20)
        client.connect(str(tmp_path / "memory.sock"))
    if scarce == "thread":
        assert clients[0].recv(1) == b"", "a connection that nobody can serve is closed"
    clients[1].sendall(b"\x00\x00\x00\x00")
    assert clients[1].recv(4)
    assert not failures
    for client in clients:
        client.close()
    listener.close()
