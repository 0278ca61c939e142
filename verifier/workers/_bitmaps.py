"""Where the verdict bitmaps of the batches in the slots are while the device writes them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from verifier.drivers._driver import Driver, Stream
from verifier.model import Bytes
from verifier.workers._layout import Layout
from verifier.workers._messages import Job
from verifier.workers._options import BitmapMemory
from verifier.workers._stream import GrowingBuffer

__all__ = ["Bitmaps"]


class Bitmaps:
    """The bitmaps of each slot's batch: `valid` in whole words, and `decided` behind it.

    A device that works in place writes them into the slot. Elsewhere they are in memory that both see, or in the
    device's alone and copied chunk by chunk.
    """

    def __init__(self, driver: Driver, slots: Sequence[Bytes], memory: BitmapMemory) -> None:
        self._slots = slots
        self._in_place = driver.info.unified
        self._on_device = memory == "device" and not self._in_place
        self._buffers = [GrowingBuffer(driver, memory) for _ in slots]

    def open(self, job: Job) -> tuple[int, int]:
        """Addresses of `valid` and `decided` for a batch, nothing decided where the host sees the memory.

        The device must have nothing to do with the slot.
        """
        layout, slot = job.layout, self._slots[job.slot]
        nbytes = layout.bitmap_words_bytes
        if self._in_place:
            slot[layout.decided : layout.decided + nbytes] = 0
            base: int = slot.ctypes.data
            return base + layout.valid, base + layout.decided
        buffer = self._buffers[job.slot].hold(2 * nbytes)
        # A bit of `valid` counts only where `decided` is set, so `decided` alone suffices.
        if (array := buffer.array) is not None:
            array[nbytes : 2 * nbytes] = 0
        return buffer.address, buffer.address + nbytes

    def begin_chunk(self, stream: Stream, decided: int, items: int) -> None:
        """Orders that nothing of a chunk is decided, where only the device can."""
        if self._on_device:
            stream.fill(decided, 0, _words_bytes(items))

    def end_chunk(self, stream: Stream, layout: Layout, slot: Bytes, begin: int, items: int, valid: int) -> None:
        """Orders the copies out of a chunk's words, which begin at `valid`, where the host cannot see them."""
        if not self._on_device:
            return
        at, nbytes = begin // 8, _words_bytes(items)
        for source, place in ((valid, layout.valid), (valid + layout.bitmap_words_bytes, layout.decided)):
            stream.copy_out(slot[place + at : place + at + nbytes], source)

    def read(self, job: Job) -> None:
        """Brings a finished batch's bitmaps into its slot."""
        layout, slot = job.layout, self._slots[job.slot]
        nbytes = layout.bitmap_words_bytes
        valid = slot[layout.valid : layout.valid + nbytes]
        decided = slot[layout.decided : layout.decided + nbytes]
        buffer = self._buffers[job.slot].buffer
        array = None if buffer is None else buffer.array
        if array is None:
            np.bitwise_and(valid, decided, out=valid)
        else:
            decided[:] = array[nbytes : 2 * nbytes]
            np.bitwise_and(array[:nbytes], decided, out=valid)

    def close(self) -> None:
        """Frees the memory."""
        for buffer in self._buffers:
            buffer.close()


def _words_bytes(items: int) -> int:
    return (items + 31) // 32 * 4
