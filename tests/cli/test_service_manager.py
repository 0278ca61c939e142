"""What systemd is told, on a socket of the test's."""

from __future__ import annotations

import os
import socket

import pytest

from verifier.cli._service_manager import notify


@pytest.mark.parametrize("abstract", [False, True])
def test_a_message_arrives(tmp_path, monkeypatch, abstract):
    name = f"\0verifier-{os.getpid()}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(name)
        manager.settimeout(10)
        monkeypatch.setenv("NOTIFY_SOCKET", name.replace("\0", "@"))
        assert notify("READY=1")
        assert manager.recv(64) == b"READY=1"


@pytest.mark.parametrize("address", ["", "vsock:2:1", "/nobody/listens/here"])
def test_without_a_manager_nothing_happens(monkeypatch, address):
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    assert not notify("READY=1")
