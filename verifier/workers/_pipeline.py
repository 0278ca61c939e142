"""Batches over streams: copy in, stages, results out, chunk beside chunk.

`submit` puts a batch's work on the streams and returns; `finish` waits for it and reads its bitmaps. They may run in
two threads, batches passing both in the same order, so that the next batch's copies overlap this one's kernels.
Urgent batches have a stream of their own, which the device prefers, and may be finished by a third thread.
Nothing of a batch is read before its last event is reached without an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

from verifier.drivers._abi import BatchStruct
from verifier.drivers._driver import Driver, Event, Stream
from verifier.errors import BackendError
from verifier.model import Bytes, StageTimes
from verifier.workers._bitmaps import Bitmaps
from verifier.workers._chunks import copied_chunk, in_place_chunk
from verifier.workers._copy_order import CopyOrder
from verifier.workers._instance import Instance, LoadedOperation
from verifier.workers._mapped import MappedRegions
from verifier.workers._messages import Job
from verifier.workers._options import WorkerOptions
from verifier.workers._plan import Bounds, Work, chunk_sizes, is_both_ways
from verifier.workers._stages import MEASURE_EVERY, ChunkMarks, stage_times
from verifier.workers._stream import GrowingBuffer, PipelineStream
from verifier.workers._whole import Whole

__all__ = ["Pipeline", "Submitted"]

_UNDECIDED = 0


def _pass() -> None:
    """The mark of a chunk that is not measured."""


def _events(marks: Iterable[ChunkMarks]) -> list[Event]:
    return [event for chunk in marks for event in chunk.events]


@dataclass(slots=True)
class Submitted:
    """A batch on the device: where it began and where it ends, and the items of its chunks.

    `stages` is how its time divides, once it is finished and where it was measured.
    """

    job: Job
    start: Event
    ends: list[Event]
    sizes: list[int]
    marks: list[ChunkMarks] = field(default_factory=list)
    stages: StageTimes | None = None

    def done(self) -> bool:
        """Whether `finish` would not wait."""
        return all(end.reached() for end in self.ends)


@dataclass(slots=True)
class _Work:
    """A batch on its way to the streams, and what its chunks share."""

    instance: Instance
    operation: LoadedOperation
    job: Job
    batch: BatchStruct  # of the chunk at hand
    largest: int  # items of the largest chunk
    whole: Whole | None = None
    copies: CopyOrder | None = None

    def close(self) -> None:
        """Gives events back."""
        for shared in (self.whole, self.copies):
            if shared is not None:
                shared.close()


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
        self._bounds = Bounds(
            options.chunk_rounds,
            options.chunk_least_bytes,
            options.chunk_most_bytes,
            options.chunk_both_ways_bytes,
            options.chunk_ramp,
        )
        self._unified = driver.info.unified
        self._streams = [PipelineStream(driver) for _ in range(1 if self._unified else options.streams)]
        self._urgent = self._streams[0] if self._unified else PipelineStream(driver, urgent=True)
        # Behind all streams of a batch: it waits, so that none of them does and the next batch's chunks need not.
        self._last = driver.stream(inline=self._unified)
        self._turn = 0
        # Each counted by one thread: batches on the device are the difference.
        self._submitted = 0
        self._finished = [0, 0]  # of them the urgent ones second
        self._bitmaps = Bitmaps(driver, slots, options.bitmap_memory)
        self._whole = [GrowingBuffer(driver) for _ in slots]

    def submit(self, instance: Instance, job: Job) -> Submitted:
        """Puts a batch on the streams. Raises BackendError, and then the device does nothing of it any more."""
        operation = instance.operations[job.operation]
        if self._unified:
            layout = self._regions.in_place(self._slots[job.slot], job.layout, job.borrowed)
            job = msgspec.structs.replace(job, layout=layout, borrowed=())
        start: Event | None = None
        used: dict[int, PipelineStream] = {}
        ends: list[Event] = []
        marks: list[ChunkMarks] = []
        work: _Work | None = None
        measured = not self._unified and self._submitted % MEASURE_EVERY == 0
        try:
            batch = BatchStruct(state=instance.state, parameters=job.parameters)
            valid, decided = self._bitmaps.open(job)
            sizes = self._sizes(operation, job)
            work = self._begin(instance, operation, job, batch, sizes)
            begin = 0
            for items in sizes:
                target = self._urgent if job.urgent else self._next_stream()
                used[id(target)] = target
                if start is None:
                    start = target.stream.record()
                batch.valid = valid + begin // 8
                batch.decided = decided + begin // 8
                if measured:
                    marks.append(ChunkMarks(target.stream))
                self._chunk(target, work, begin, items, marks[-1].mark if marks else _pass)
                begin += items
            last = self._behind(list(used.values()))
            if work.whole is not None:
                work.whole.leave(last)
            ends.append(last.record())
            assert start is not None
            self._submitted += 1
            return Submitted(job, start, ends, sizes, marks)
        except BaseException:
            if start is not None:
                ends.append(start)
            self._abandon(list(used.values()), [*ends, *_events(marks)], work)
            raise
        finally:
            if work is not None:
                work.close()

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
        finally:
            self._finished[submitted.job.urgent] += 1
        for event in (submitted.start, *submitted.ends, *_events(submitted.marks)):
            event.close()
        self._bitmaps.read(submitted.job)
        return device_ns

    def close(self) -> None:
        """Frees streams and memory. No batch may be in flight."""
        for target in {*self._streams, self._urgent}:
            target.close()
        self._last.close()
        self._bitmaps.close()
        for memory in self._whole:
            memory.close()

    def _next_stream(self) -> PipelineStream:
        target = self._streams[self._turn]
        self._turn = (self._turn + 1) % len(self._streams)
        return target

    def _sizes(self, operation: LoadedOperation, job: Job) -> list[int]:
        items = job.layout.items
        if self._unified:
            size = self._options.unified_chunk_items // 32 * 32
            return [min(size, items - begin) for begin in range(0, items, size)]
        return chunk_sizes(_measures(operation, job), self._bounds, idle=self._submitted == sum(self._finished))

    def _begin(
        self, instance: Instance, operation: LoadedOperation, job: Job, batch: BatchStruct, sizes: Sequence[int]
    ) -> _Work:
        work = _Work(instance, operation, job, batch, max(sizes))
        if self._unified or len(sizes) == 1:
            return work
        if is_both_ways(_measures(operation, job), self._bounds):
            work.whole = Whole(self._whole[job.slot], self._slots[job.slot], job)
            batch.constant = work.whole.constant
        elif self._bounds.ramp != "none":
            work.copies = CopyOrder()
        return work

    def _behind(self, used: Sequence[PipelineStream]) -> Stream:
        """A stream whose later work follows all that these were given."""
        if len(used) == 1:
            return used[0].stream
        for target in used:
            event = target.stream.record()
            try:
                self._last.wait(event)
            finally:
                event.close()
        return self._last

    def _chunk(self, target: PipelineStream, work: _Work, begin: int, items: int, mark: Callable[[], None]) -> None:
        instance, operation, job, batch, largest = work.instance, work.operation, work.job, work.batch, work.largest
        slot = self._slots[job.slot]
        stream = target.stream
        if self._unified:
            chunk = in_place_chunk(job.layout, begin, items)
        else:
            chunk = copied_chunk(slot, job.layout, begin, items, job.borrowed, columns_only=work.whole is not None)
        # Memory for the batch's largest chunk at once: growing waits for the stream.
        base, item_scratch, lane_scratch = target.hold(
            max(chunk.nbytes, min(-(-chunk.nbytes * largest // items), job.layout.valid)),
            (largest + 31) // 32 * 32 * instance.info.scratch_item_bytes,
            operation.lanes * instance.info.scratch_lane_bytes,
        )
        chunk.fill(batch, slot.ctypes.data if self._unified else base, job.layout)
        batch.item_scratch = item_scratch
        batch.lane_scratch = lane_scratch
        if work.whole is not None:
            work.whole.enter(stream)
            batch.codes = work.whole.codes + begin
        if work.copies is not None:
            work.copies.enter(stream)
        mark()
        if chunk.copies_codes:
            slot[job.layout.codes : job.layout.codes + items] = _UNDECIDED
        for copy in chunk.copies_in:
            source = self._regions.memory(copy.region) if copy.region else slot
            stream.copy_in(base + copy.device, source[copy.slot : copy.slot + copy.nbytes])
        if work.copies is not None:
            work.copies.leave(stream)
        mark()
        if work.whole is None and not chunk.copies_codes:
            stream.fill(batch.codes, _UNDECIDED, items)
        self._bitmaps.begin_chunk(stream, batch.decided, items)
        for stage in operation.stages:
            stream.launch(stage, batch)
        mark()
        for copy in chunk.copies_out:
            stream.copy_out(slot[copy.slot : copy.slot + copy.nbytes], base + copy.device)
        if job.secret and not self._unified:
            stream.fill(base, 0, chunk.inputs_bytes)
        self._bitmaps.end_chunk(stream, job.layout, slot, begin, items, batch.valid)
        mark()

    def _abandon(self, streams: Sequence[PipelineStream], events: Iterable[Event], work: _Work | None) -> None:
        """After a failed submission: waits until the device has let go of the slot, and keeps no key."""
        for stream in (*(target.stream for target in streams), self._last):
            try:
                stream.synchronize()
            except BackendError as error:
                if error.sticky:
                    raise
        for event in events:
            event.close()
        if work is not None and work.job.secret and not self._unified:
            for target in streams:
                target.wipe()
        if work is not None and work.whole is not None:
            work.whole.abandon(self._last)


def _measures(operation: LoadedOperation, job: Job) -> Work:
    layout = job.layout
    item_bytes, output_bytes = layout.codes // layout.items, sum(layout.output_bytes)
    return Work(layout.items, item_bytes, output_bytes, operation.round_items, operation.chunk_rounds)
