"""Batches over streams: copy in, stages, results out, chunk beside chunk.

`submit` puts a batch's work on the streams and returns; `finish` waits for it and reads its bitmaps. They may run in
two threads, batches passing both in the same order, so that the next batch's copies overlap this one's kernels.
Nothing of a batch is read before its last event is reached without an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from verifier.drivers._abi import BatchStruct
from verifier.drivers._driver import Driver, Event
from verifier.errors import BackendError
from verifier.model import Bytes, StageTimes
from verifier.workers._chunks import chunk_items, copied_chunk, in_place_chunk
from verifier.workers._instance import Instance, LoadedOperation
from verifier.workers._mapped import MappedRegions
from verifier.workers._messages import Job
from verifier.workers._options import WorkerOptions
from verifier.workers._stages import MEASURE_EVERY, ChunkMarks, stage_times
from verifier.workers._stream import GrowingBuffer, PipelineStream

__all__ = ["Pipeline", "Submitted"]

_UNDECIDED = 0


def _pass() -> None:
    """The mark of a chunk that is not measured."""


def _events(marks: Iterable[ChunkMarks]) -> list[Event]:
    return [event for chunk in marks for event in chunk.events]


@dataclass(slots=True)
class Submitted:
    """A batch on the device: where it began and where each of its streams ends.

    `stages` is how its time divides, once it is finished and where it was measured.
    """

    job: Job
    start: Event
    ends: list[Event]
    marks: list[ChunkMarks] = field(default_factory=list)
    stages: StageTimes | None = None


class Pipeline:
    """The streams of one device. `slots` are the shared memory that batches lie in, page-locked by the caller.

    `regions` are where jobs may have columns instead of in their slots.
    """

    def __init__(
        self,
        driver: Driver,
        slots: Sequence[Bytes],
        options: WorkerOptions,
        regions: MappedRegions | None = None,
    ) -> None:
        self._driver = driver
        self._regions = regions or MappedRegions(driver)
        self._slots = slots
        self._options = options
        self._unified = driver.info.unified
        self._streams = [PipelineStream(driver) for _ in range(1 if self._unified else options.streams)]
        self._turn = 0
        self._batches = 0
        self._bitmaps = [GrowingBuffer(driver, options.bitmap_memory) for _ in slots]

    def submit(self, instance: Instance, job: Job) -> Submitted:
        """Puts a batch on the streams. Raises BackendError, and then the device does nothing of it any more."""
        operation = instance.operations[job.operation]
        if self._unified:
            layout = self._regions.in_place(self._slots[job.slot], job.layout, job.borrowed)
            job = job._replace(layout=layout, borrowed=())
        start: Event | None = None
        used: dict[int, PipelineStream] = {}
        ends: list[Event] = []
        marks: list[ChunkMarks] = []
        measured = not self._unified and self._batches % MEASURE_EVERY == 0
        self._batches += 1
        try:
            batch = BatchStruct(state=instance.state, parameters=job.parameters)
            valid, decided = self._bitmap_addresses(job)
            size = self._chunk_items(operation, job)
            for begin in range(0, job.layout.items, size):
                target = self._streams[self._turn]
                self._turn = (self._turn + 1) % len(self._streams)
                used[id(target)] = target
                if start is None:
                    start = target.stream.record()
                batch.valid = valid + begin // 8
                batch.decided = decided + begin // 8
                if measured:
                    marks.append(ChunkMarks(target.stream))
                items = min(size, job.layout.items - begin)
                self._chunk(target, instance, operation, job, batch, begin, items, marks[-1].mark if marks else _pass)
            ends += [target.stream.record() for target in used.values()]
            assert start is not None
            return Submitted(job, start, ends, marks)
        except BaseException:
            if start is not None:
                ends.append(start)
            self._abandon(used.values(), [*ends, *_events(marks)])
            raise

    def finish(self, submitted: Submitted) -> int:
        """Waits for a batch, writes its bitmaps into its slot and returns its nanoseconds on the device.

        Raises a sticky BackendError, and then nothing of the slot may be read. Sticky, because what was submitted
        since may have been skipped in part: only a new process is known to be sound.
        """
        try:
            for end in submitted.ends:
                end.synchronize()
            device_ns = max(end.elapsed_ns(submitted.start) for end in submitted.ends)
            if submitted.marks:
                submitted.stages = stage_times(submitted.marks)
            elif self._unified:
                submitted.stages = StageTimes(0, device_ns, 0)
        except BackendError as error:
            raise BackendError(str(error), sticky=True) from error
        for event in (submitted.start, *submitted.ends, *_events(submitted.marks)):
            event.close()
        self._read_bitmaps(submitted.job)
        return device_ns

    def close(self) -> None:
        """Frees streams and memory. No batch may be in flight."""
        for stream in self._streams:
            stream.close()
        for bitmap in self._bitmaps:
            bitmap.close()

    def _chunk_items(self, operation: LoadedOperation, job: Job) -> int:
        if self._unified:
            return self._options.unified_chunk_items // 32 * 32
        return chunk_items(
            job.layout,
            operation.round_items,
            self._options.chunk_rounds,
            self._options.chunk_least_bytes,
            self._options.chunk_most_bytes,
            self._options.chunk_both_ways_bytes,
        )

    def _chunk(
        self,
        target: PipelineStream,
        instance: Instance,
        operation: LoadedOperation,
        job: Job,
        batch: BatchStruct,
        begin: int,
        items: int,
        mark: Callable[[], None],
    ) -> None:
        slot = self._slots[job.slot]
        stream = target.stream
        if self._unified:
            chunk = in_place_chunk(job.layout, begin, items)
        else:
            chunk = copied_chunk(slot, job.layout, begin, items, job.borrowed)
        base, item_scratch, lane_scratch = target.hold(
            chunk.nbytes,
            (items + 31) // 32 * 32 * instance.info.scratch_item_bytes,
            operation.lanes * instance.info.scratch_lane_bytes,
        )
        chunk.fill(batch, slot.ctypes.data if self._unified else base, job.layout)
        batch.item_scratch = item_scratch
        batch.lane_scratch = lane_scratch
        mark()
        for copy in chunk.copies_in:
            source = self._regions.memory(copy.region) if copy.region else slot
            stream.copy_in(base + copy.device, source[copy.slot : copy.slot + copy.nbytes])
        mark()
        stream.fill(batch.codes, _UNDECIDED, items)
        # A bit of `valid` counts only where `decided` is set, so this one suffices.
        stream.fill(batch.decided, 0, (items + 31) // 32 * 4)
        for stage in operation.stages:
            stream.launch(stage, batch)
        mark()
        for copy in chunk.copies_out:
            stream.copy_out(slot[copy.slot : copy.slot + copy.nbytes], base + copy.device)
        if job.secret and not self._unified:
            stream.fill(base, 0, chunk.codes)  # the inputs and the constant, which lie in front of the codes
        if not self._unified and self._options.bitmap_memory == "device":
            at, nbytes = begin // 8, (items + 31) // 32 * 4
            for source, place in ((batch.valid, job.layout.valid), (batch.decided, job.layout.decided)):
                stream.copy_out(slot[place + at : place + at + nbytes], source)
        mark()

    def _bitmap_addresses(self, job: Job) -> tuple[int, int]:
        if self._unified:
            base: int = self._slots[job.slot].ctypes.data
            return base + job.layout.valid, base + job.layout.decided
        nbytes = job.layout.bitmap_words_bytes
        address = self._bitmaps[job.slot].hold(2 * nbytes).address
        return address, address + nbytes

    def _read_bitmaps(self, job: Job) -> None:
        slot = self._slots[job.slot]
        nbytes = job.layout.bitmap_words_bytes
        valid = slot[job.layout.valid : job.layout.valid + nbytes]
        decided = slot[job.layout.decided : job.layout.decided + nbytes]
        buffer = self._bitmaps[job.slot].buffer
        array = None if buffer is None else buffer.array
        if not self._unified and self._options.bitmap_memory != "device":
            assert array is not None
            valid[:] = array[:nbytes]
            decided[:] = array[nbytes : 2 * nbytes]
        np.bitwise_and(valid, decided, out=valid)

    @staticmethod
    def _abandon(streams: Iterable[PipelineStream], events: Iterable[Event]) -> None:
        """After a failed submission: waits until the device has let go of the slot."""
        for target in streams:
            try:
                target.stream.synchronize()
            except BackendError as error:
                if error.sticky:
                    raise
        for event in events:
            event.close()
