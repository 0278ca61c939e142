"""One chunk's copies in behind the other's, though they are on different streams.

Streams that have copies to run at the same time may share the link. Then the first chunk, which the device is waiting
for, would come in at a fraction of its rate.
"""

from __future__ import annotations

from verifier.drivers._driver import Event, Stream

__all__ = ["CopyOrder"]


class CopyOrder:
    """The order of a batch's copies in."""

    def __init__(self) -> None:
        self._copied: Event | None = None

    def enter(self, stream: Stream) -> None:
        """Before a chunk's copies: they wait for those of the chunk before."""
        if self._copied is not None:
            stream.wait(self._copied)

    def leave(self, stream: Stream) -> None:
        """Behind a chunk's copies."""
        self.close()
        self._copied = stream.record()

    def close(self) -> None:
        """Gives the event back."""
        event, self._copied = self._copied, None
        if event is not None:
            event.close()
