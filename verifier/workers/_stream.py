"""One stream of the pipeline, and the device memory that its chunks use one after the other."""

from __future__ import annotations

from contextlib import suppress

from verifier.drivers._driver import Buffer, Driver, Stream
from verifier.errors import BackendError

__all__ = ["GrowingBuffer", "PipelineStream"]

_DOUBLING_BELOW = 64 << 20


class GrowingBuffer:
    """Memory that is replaced by larger memory when it does not suffice, and never shrinks.

    The device must have finished with the old memory when it grows.
    """

    def __init__(self, driver: Driver, kind: str = "device") -> None:
        self._allocate = {
            "device": driver.allocate,
            "managed": driver.allocate_managed,
            "pinned": driver.allocate_pinned,
        }[kind]
        self.buffer: Buffer | None = None

    @property
    def nbytes(self) -> int:
        """How much it holds."""
        return 0 if self.buffer is None else self.buffer.nbytes

    def hold(self, nbytes: int) -> Buffer:
        """The memory, with room for `nbytes`. Raises BackendError where the device has too little."""
        if self.buffer is not None and nbytes <= self.buffer.nbytes:
            return self.buffer
        self.close()
        self.buffer = self._allocate(_roomy(nbytes))
        return self.buffer

    def close(self) -> None:
        """Frees the memory."""
        buffer, self.buffer = self.buffer, None
        if buffer is not None:
            buffer.close()


class PipelineStream:
    """A stream with the memory of the chunk that runs on it. The next chunk waits for the stream, not for us."""

    def __init__(self, driver: Driver, *, urgent: bool = False) -> None:
        self.stream: Stream = driver.stream(inline=driver.info.unified, urgent=urgent)
        self._columns = GrowingBuffer(driver)
        self._item_scratch = GrowingBuffer(driver)
        self._lane_scratch = GrowingBuffer(driver)

    def hold(self, columns: int, item_scratch: int, lane_scratch: int) -> tuple[int, int, int]:
        """Addresses of memory of these sizes."""
        wanted = ((self._columns, columns), (self._item_scratch, item_scratch), (self._lane_scratch, lane_scratch))
        if any(nbytes > buffer.nbytes for buffer, nbytes in wanted):
            self.stream.synchronize()
        columns_at, items_at, lanes_at = (buffer.hold(nbytes).address if nbytes else 0 for buffer, nbytes in wanted)
        return columns_at, items_at, lanes_at

    def wipe(self) -> None:
        """Overwrites the columns, which nothing on the device uses any more."""
        buffer = self._columns.buffer
        if buffer is not None:
            with suppress(BackendError):  # of a lost device, whose memory nobody reads again
                self.stream.fill(buffer.address, 0, buffer.nbytes)
                self.stream.synchronize()

    def close(self) -> None:
        """Frees memory and stream."""
        for buffer in (self._columns, self._item_scratch, self._lane_scratch):
            buffer.close()
        self.stream.close()


def _roomy(nbytes: int) -> int:
    """Rounded up so that slowly growing batches do not allocate each time."""
    if nbytes < _DOUBLING_BELOW:
        return max(1 << (nbytes - 1).bit_length(), 4096)
    return -(-nbytes // _DOUBLING_BELOW) * _DOUBLING_BELOW
