"""Ports that front ends share and nobody else gets."""

from __future__ import annotations

import socket

import pytest

from verifier.errors import ConfigError
from verifier.frontend._ports import HeldPorts


def test_a_held_port_can_be_listened_on_by_several_of_ours_but_not_held_twice():
    held = HeldPorts(["127.0.0.1:0", "unix:/run/somewhere.sock"], "listen")
    address, unix = held.addresses
    assert unix == "unix:/run/somewhere.sock"
    port = int(address.rpartition(":")[2])
    listeners = [socket.socket() for _ in range(2)]
    for listener in listeners:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen()
    with pytest.raises(ConfigError, match="is another process there"):
        HeldPorts([address], "listen")
    with socket.create_connection(("127.0.0.1", port)):
        pass
    for listener in listeners:
        listener.close()
    held.close()
    HeldPorts([address], "listen").close()


def test_an_address_that_cannot_be_had_is_named():
    with pytest.raises(ConfigError, match=r"server.urgent_listen: 192\.0\.2\.1:5 cannot be opened"):
        HeldPorts(["192.0.2.1:5"], "server.urgent_listen")
