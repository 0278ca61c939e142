"""A batch's constant and codes, once on the device for all of its chunks.

Each copy, however small, costs the link a gap in front of the next chunk's data, and the host an order. Where the
link is the limit and chunks are many, the constant comes in once and the codes go out once instead.
"""

from __future__ import annotations

from contextlib import suppress

from verifier.drivers._driver import Event, Stream
from verifier.errors import BackendError
from verifier.model import Bytes
from verifier.regions import aligned
from verifier.workers._messages import Job
from verifier.workers._stream import GrowingBuffer

__all__ = ["Whole"]

_UNDECIDED = 0


class Whole:
    """`constant` and `codes` are addresses on the device, the codes those of the batch's first item."""

    def __init__(self, memory: GrowingBuffer, slot: Bytes, job: Job) -> None:
        """Takes `memory`, which nothing on the device may be using. Raises BackendError where there is too little."""
        self._slot, self._job = slot, job
        constant_bytes = aligned(job.layout.constant_bytes)
        words_bytes = (job.layout.items + 31) // 32 * 32
        self.constant = memory.hold(constant_bytes + words_bytes).address
        self.codes = self.constant + constant_bytes
        self._ready: Event | None = None
        self._entered: set[int] = set()

    def enter(self, stream: Stream) -> None:
        """Before a chunk's copies. The first stream copies the constant in, the others wait for it."""
        if id(stream) in self._entered:
            return
        self._entered.add(id(stream))
        if self._ready is not None:
            stream.wait(self._ready)
            return
        layout = self._job.layout
        if layout.constant_bytes:
            stream.copy_in(self.constant, self._slot[layout.constant : layout.constant + layout.constant_bytes])
        stream.fill(self.codes, _UNDECIDED, layout.items)
        self._ready = stream.record()

    def leave(self, stream: Stream) -> None:
        """Behind all chunks: the codes go out, and a secret constant is overwritten."""
        layout = self._job.layout
        stream.copy_out(self._slot[layout.codes : layout.codes + layout.items], self.codes)
        if self._job.secret:
            stream.fill(self.constant, 0, layout.constant_bytes)

    def abandon(self, stream: Stream) -> None:
        """After a failed submission, with nothing of it on the device any more: overwrites a secret constant."""
        if self._job.secret:
            with suppress(BackendError):  # of a lost device, whose memory nobody reads again
                stream.fill(self.constant, 0, self._job.layout.constant_bytes)
                stream.synchronize()

    def close(self) -> None:
        """Gives the event back."""
        event, self._ready = self._ready, None
        if event is not None:
            event.close()
