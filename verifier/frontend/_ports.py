"""Ports that front ends share, held by the core so that no other process takes them between two front ends."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from contextlib import ExitStack

from verifier.api import probe_port
from verifier.errors import ConfigError

__all__ = ["HeldPorts"]


class HeldPorts:
    """`addresses` are those given, with the ports that were taken.

    Raises ConfigError, naming the `setting` that has them, where one is in use.
    """

    def __init__(self, addresses: Sequence[str], setting: str) -> None:
        self._setting = setting
        with ExitStack() as undo:
            self.addresses = tuple(
                address if address.startswith("unix:") else self._hold(address, undo) for address in addresses
            )
            self._held = undo.pop_all()

    def _hold(self, address: str, undo: ExitStack) -> str:
        try:
            family, taken = probe_port(address)
            held = undo.enter_context(socket.socket(family, socket.SOCK_STREAM))
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            held.bind(taken)
        except OSError as error:
            problem = error.strerror or str(error)
            raise ConfigError(
                f"{self._setting}: {address} cannot be opened: {problem}; is another process there?"
            ) from None
        return f"{address.rpartition(':')[0]}:{taken[1]}"

    def close(self) -> None:
        """Lets go of the ports."""
        self._held.close()
