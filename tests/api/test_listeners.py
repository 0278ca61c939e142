"""Unix sockets: a living daemon's is left to it, a dead one's is replaced."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from verifier.api._listeners import open_port
from verifier.errors import ConfigError


@pytest.fixture
def server() -> Iterator[grpc.Server]:
    server = grpc.server(ThreadPoolExecutor(1))
    yield server
    server.stop(0).wait()


@pytest.mark.parametrize("prefix", ["unix:", "unix://"])
def test_a_living_daemon_keeps_its_socket(server: grpc.Server, tmp_path: Path, prefix: str) -> None:
    path = tmp_path / "work.sock"
    open_port(server, f"{prefix}{path}", None)
    server.start()
    before = path.stat().st_ino
    with pytest.raises(ConfigError, match="another process answers there"):
        open_port(grpc.server(ThreadPoolExecutor(1)), f"{prefix}{path}", None)
    assert path.stat().st_ino == before


def test_a_dead_daemon_s_socket_is_replaced(server: grpc.Server, tmp_path: Path) -> None:
    path = tmp_path / "work.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    open_port(server, f"unix:{path}", None)
    server.start()
    with grpc.insecure_channel(f"unix:{path}") as channel:
        grpc.channel_ready_future(channel).result(30)
