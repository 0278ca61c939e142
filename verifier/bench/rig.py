"""One device with one plugin in this process: the worker's own pipeline, without the process around it.

What is timed here is what a worker does for a batch that already lies in its page-locked slot; gRPC, queues and the
copy into the slot are not in it.
"""

from __future__ import annotations

import mmap
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from itertools import cycle, pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec
import numpy as np

from verifier.bench.signatures import SignatureSet
from verifier.drivers import BatchStruct, DeviceInfo, open_driver
from verifier.drivers.build import build_image
from verifier.errors import BackendError, SelfTestError
from verifier.manifest import Choice, load_manifest
from verifier.model import Batch, BatchKey, Bytes, Column
from verifier.registry import PluginSource, build_files
from verifier.registry._parameters import parameter_number
from verifier.workers import WorkerOptions
from verifier.workers._chunks import copied_chunk
from verifier.workers._instance import Instance
from verifier.workers._layout import lay_out, write_parts
from verifier.workers._messages import Job, OperationPlan, Plan
from verifier.workers._pipeline import Pipeline
from verifier.workers._stages import MEASURE_EVERY

__all__ = ["Rig", "Slot", "columns_of"]

_IN_A_ROW = 4  # batches whose mean is one of `sustained_times`


def columns_of(signatures: SignatureSet) -> dict[str, Column]:
    """The columns of a set: DIGEST input, RAW_RS signatures, RAW_XY keys."""
    return {
        "input": Column.fixed("input", signatures.digests.ravel(), 32, signatures.items),
        "signature": Column.fixed("signature", signatures.signatures.ravel(), 64, signatures.items),
        "key": Column.fixed("key", signatures.keys.ravel(), 64, signatures.items),
    }


class Slot:
    """A batch in page-locked memory, ready to run again and again."""

    def __init__(self, job: Job, memory: Bytes) -> None:
        self.job = job
        self.items = job.layout.items
        self._memory = memory

    @property
    def codes(self) -> Bytes:
        """The code of every item, after a run."""
        return self._memory[self.job.layout.codes :][: self.items]

    @property
    def valid(self) -> Bytes:
        """The bitmap of valid items, after a run."""
        return self._memory[self.job.layout.valid :][: (self.items + 7) // 8]

    @property
    def decided(self) -> Bytes:
        """The bitmap of decided items, after a run."""
        return self._memory[self.job.layout.decided :][: (self.items + 7) // 8]

    def output(self, index: int) -> Bytes:
        """The items' outputs, (items, width), after a run."""
        width = self.job.layout.output_bytes[index]
        return self._memory[self.job.layout.outputs[index] :][: self.items * width].reshape(self.items, width)


class Rig:
    """A device, a plugin and a pipeline. Close it, or use it in a with statement."""

    def __init__(
        self,
        device: str,
        plugin: Path,
        common: Path,
        *,
        slot_bytes: int = 256 << 20,
        choice: Choice | None = None,
        defines: Mapping[str, int | str] | None = None,
        build_state: bool = True,
        options: WorkerOptions | None = None,
        **driver_options: Any,
    ) -> None:
        """`choice` is the variant and the tunables, `defines` are macros beside theirs. Without `build_state` the
        plugin's tables are left as memory was: for those who fill them, or do not look at results."""
        options = options or WorkerOptions()
        self.manifest = load_manifest(plugin)
        files = {
            path.name: path.read_bytes()
            for folder in (common, plugin)
            for path in folder.glob("*.cu*")
            if path.is_file()
        }
        with ExitStack() as undo:
            self.driver = undo.enter_context(closing(open_driver(device, **driver_options)))
            self.info: DeviceInfo = self.driver.info
            started = time.perf_counter()
            chosen, target = choice or Choice(), self.info.target
            source, macros = self.manifest.build(chosen, target)
            reached = build_files(PluginSource(self.manifest, files), chosen, target)
            image = build_image(reached, source, target, {**macros, **(defines or {})})
            self.build_s = time.perf_counter() - started
            self.memory: Bytes = np.frombuffer(mmap.mmap(-1, slot_bytes), np.uint8)
            if not self.info.unified:
                undo.callback(self.driver.register(self.memory).close)
            plan = Plan(
                self.manifest.state if build_state else (),
                tuple(OperationPlan.of(operation) for operation in self.manifest.operations),
            )
            started = time.perf_counter()
            self.instance = Instance(self.driver, plan, image)
            self.load_s = time.perf_counter() - started
            undo.callback(self.instance.close)
            self._options = options
            self.pipeline = Pipeline(self.driver, [self.memory], options)
            undo.callback(self.pipeline.close)
            self._resources = undo.pop_all()

    def fill(
        self,
        operation: str,
        algorithm: str,
        columns: Mapping[str, Column],
        items: int,
        parameters: Mapping[str, str | int] | None = None,
        constant: bytes = b"",
    ) -> Slot:
        """Writes a batch into the slot. Parameters that are not named take the manifest's first value."""
        described = self.manifest.operation(operation, algorithm)
        if described is None:
            raise BackendError(f"{self.manifest.label} has no {operation} for {algorithm}")
        index = self.manifest.operations.index(described)
        chosen = {name: (parameters or {}).get(name, values[0]) for name, values in described.parameters.items()}
        numbers = tuple(parameter_number(name, value) for name, value in chosen.items())
        key = BatchKey(self.manifest.name, operation, numbers, constant)
        batch = Batch(key, items, tuple(columns[name] for name in described.inputs))
        layout = lay_out([batch], len(constant), tuple(output.bytes for output in described.outputs))
        if layout.nbytes > self.memory.size:
            raise BackendError(f"the batch takes {layout.nbytes} bytes, the slot has {self.memory.size}")
        write_parts(self.memory, layout, [batch], constant)
        return Slot(Job(0, 0, 0, index, numbers, None, layout), self.memory)

    def run(self, slot: Slot) -> int:
        """Runs the batch through the pipeline: copies, stages, bitmaps. Nanoseconds on the device."""
        return self.pipeline.finish(self.pipeline.submit(self.instance, slot.job))

    def times(self, slot: Slot, runs: int, warm_up: int = 2) -> list[float]:
        """Seconds of wall time of each of `runs` runs through the pipeline."""
        for _ in range(warm_up):
            self.run(slot)
        seconds = []
        for _ in range(runs):
            started = time.perf_counter()
            self.run(slot)
            seconds.append(time.perf_counter() - started)
        return seconds

    def sustained_times(self, slot: Slot, runs: int, warm_up: int = 3) -> list[float]:
        """Seconds from the end of one batch to the end of the next, two being under way, as a worker has them under
        load: the next one's first copy is behind this one's kernels. Each is the mean of several in a row, since what
        the host is late with one it is early with the next. Raises SelfTestError if their codes differ."""
        layout = slot.job.layout
        with ExitStack() as undo:
            second: Bytes = np.frombuffer(mmap.mmap(-1, layout.nbytes), np.uint8)
            second[:] = self.memory[: layout.nbytes]
            if not self.info.unified:
                undo.callback(self.driver.register(second).close)
            pipeline = undo.enter_context(closing(Pipeline(self.driver, [self.memory, second], self._options)))
            turns = cycle((slot.job, msgspec.structs.replace(slot.job, slot=1)))
            under_way = deque(pipeline.submit(self.instance, next(turns)) for _ in range(2))
            ends = []
            for _ in range(warm_up + _IN_A_ROW * runs):
                pipeline.finish(under_way.popleft())
                ends.append(time.perf_counter())
                under_way.append(pipeline.submit(self.instance, next(turns)))
            for submitted in under_way:
                pipeline.finish(submitted)
            if not np.array_equal(second[layout.codes :][: slot.items], slot.codes):
                raise SelfTestError("two batches of the same items, one behind the other, have different codes")
        return [(after - before) / _IN_A_ROW for before, after in pairwise(ends[warm_up - 1 :: _IN_A_ROW])]

    def compare(
        self, slot: Slot, settings: Sequence[WorkerOptions], runs: int, warm_up: int = 2
    ) -> list[list[tuple[float, float]]]:
        """Seconds until the orders were given and until the end, of `runs` runs with each of these settings.

        They take turns, so that whatever else changes meanwhile changes for all. Memory that is allocated when a
        stream first needs it is allocated in the warm-up, if every stream has its turn there.
        """
        found: list[list[tuple[float, float]]] = [[] for _ in settings]
        with ExitStack() as undo:
            pipelines = [undo.enter_context(closing(Pipeline(self.driver, [self.memory], each))) for each in settings]
            for run in range(warm_up + runs):
                for pipeline, times in zip(pipelines, found, strict=True):
                    started = time.perf_counter()
                    submitted = pipeline.submit(self.instance, slot.job)
                    ordered = time.perf_counter() - started
                    pipeline.finish(submitted)
                    if run >= warm_up:
                        times.append((ordered, time.perf_counter() - started))
        return found

    def timeline(self, slot: Slot, settings: WorkerOptions) -> list[tuple[int, list[float]]]:
        """Items of each chunk, in order, and seconds from the batch's first order on the device until its copies in
        could begin, its kernels, its copies out, and its end. The events in between cost some microseconds each.

        Empty on a device that works in place.
        """
        with closing(Pipeline(self.driver, [self.memory], settings)) as pipeline:
            for _ in range(MEASURE_EVERY):
                pipeline.finish(pipeline.submit(self.instance, slot.job))
            submitted = pipeline.submit(self.instance, slot.job)
            for end in submitted.ends:
                end.synchronize()
            reached = [[event.elapsed_ns(submitted.start) / 1e9 for event in mark.events] for mark in submitted.marks]
            pipeline.finish(submitted)
        return list(zip(submitted.sizes, reached, strict=not self.info.unified))

    def kernel_times(self, slot: Slot, runs: int, warm_up: int = 1) -> list[float]:
        """Seconds on the device of all stages over the whole batch at once, its columns being there already."""
        layout, job = slot.job.layout, slot.job
        operation = self.instance.operations[job.operation]
        chunk = copied_chunk(self.memory, layout, 0, layout.items)
        words = layout.bitmap_words_bytes
        capacity = (layout.items + 31) // 32 * 32
        with ExitStack() as undo:
            sizes = (
                chunk.nbytes,
                capacity * self.instance.info.scratch_item_bytes,
                operation.lanes * self.instance.info.scratch_lane_bytes,
                2 * words,
            )
            buffers = [undo.enter_context(closing(self.driver.allocate(max(size, 64)))) for size in sizes]
            stream = undo.enter_context(closing(self.driver.stream()))
            batch = BatchStruct(state=self.instance.state, parameters=job.parameters)
            chunk.fill(batch, buffers[0].address, layout)
            batch.item_scratch, batch.lane_scratch = buffers[1].address, buffers[2].address
            batch.valid, batch.decided = buffers[3].address, buffers[3].address + words
            for copy in chunk.copies_in:
                stream.copy_in(buffers[0].address + copy.device, self.memory[copy.slot : copy.slot + copy.nbytes])
            seconds = []
            for run in range(warm_up + runs):
                before = stream.record()
                stream.fill(batch.codes, 0, layout.items)
                for stage in operation.stages:
                    stream.launch(stage, batch)
                after = stream.record()
                after.synchronize()
                if run >= warm_up:
                    seconds.append(after.elapsed_ns(before) / 1e9)
                before.close()
                after.close()
            for copy in chunk.copies_out:
                stream.copy_out(self.memory[copy.slot : copy.slot + copy.nbytes], buffers[0].address + copy.device)
            stream.synchronize()
            return seconds

    def stage_times(self, slot: Slot) -> list[tuple[str, float]]:
        """Seconds of each stage of one run over the whole batch, in order: where the time goes."""
        names = [*self.manifest.operations[slot.job.operation].stages, "publish"]
        operation = self.instance.operations[slot.job.operation]
        stages, found = operation.stages, []
        for count in range(1, len(stages) + 1):
            operation.stages = stages[:count]
            try:
                found.append(min(self.kernel_times(slot, 3)))
            finally:
                operation.stages = stages
        return [(name, now - before) for name, before, now in zip(names, [0.0, *found], found, strict=False)]

    def close(self) -> None:
        """Frees everything."""
        self._resources.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
