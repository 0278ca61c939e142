"""Messages between the daemon's processes: MessagePack with a length in front, on a Unix socket.

What comes is data with a schema and nothing that is executed, whoever has taken over the process at the other end;
and a message is written and read in a twentieth of the time that pickling takes.
"""

from __future__ import annotations

from multiprocessing.connection import Connection
from typing import Any

import msgspec

__all__ = ["Channel"]


class Channel:
    """One end of the socket. One thread reads; senders take turns under a lock of their own."""

    def __init__(self, connection: Connection, receives: object) -> None:
        """`receives`: the union of messages that may come."""
        self.connection = connection
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(receives)

    def send(self, message: msgspec.Struct | None) -> None:
        """Raises OSError where the other end is gone."""
        self.connection.send_bytes(self._encoder.encode(message))

    def receive(self) -> Any:
        """A message of the union.

        Raises EOFError or OSError where the other end is gone, msgspec.DecodeError where it sends rubbish.
        """
        message = self.connection.recv_bytes()
        try:
            return self._decoder.decode(message)
        except RecursionError as error:  # of what the schema skips
            raise msgspec.DecodeError(str(error)) from None

    def close(self) -> None:
        """Closes this end."""
        self.connection.close()
