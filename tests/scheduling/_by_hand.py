"""Devices, leases and a clock that a test moves by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

import numpy as np

from verifier.drivers import DeviceInfo
from verifier.errors import BackendError, NotServedError
from verifier.manifest import Manifest, parse_manifest
from verifier.model import Batch, BatchKey, BatchResult, Code, Column, Timings
from verifier.workers import WorkerState

MANIFEST = parse_manifest(
    """
name = "even"
version = "1.0.0"
abi = 1
source = "even.cu"
[[operations]]
name = "verify"
algorithm = "EVEN"
inputs = ["input"]
outputs = [{ name = "echo", bytes = 1 }]
stages = ["even"]
[[operations]]
name = "verify_enrolled"
algorithm = "EVEN"
role = "enrolled"
inputs = ["input"]
outputs = [{ name = "echo", bytes = 1 }]
stages = ["even"]
""",
    "even",
)
KEY = BatchKey("even", "verify/EVEN")


def batch(values: Sequence[int] | np.ndarray, key: BatchKey = KEY, width: int = 1) -> Batch:
    """One item a value; an item is valid where its value is even."""
    data = np.zeros((len(values), width), np.uint8)
    data[:, 0] = values
    return Batch(key, len(values), (Column(data.reshape(-1), width),))


def ragged(values: Sequence[int] | np.ndarray, widths: Sequence[int], key: BatchKey = KEY) -> Batch:
    """The same with items of any width of at least one byte."""
    offsets = np.concatenate([[0], np.cumsum(widths)]).astype(np.uint32)
    data = np.zeros(int(offsets[-1]), np.uint8)
    data[offsets[:-1]] = values
    return Batch(key, len(values), (Column(data, 0, offsets),))


def firsts(part: Batch) -> np.ndarray:
    column = part.inputs[0]
    return column.data[:: column.stride] if column.offsets is None else column.data[column.offsets[:-1]]


def judge(part: Batch) -> BatchResult:
    values = firsts(part)
    valid = values % 2 == 0
    return BatchResult(
        part.items,
        np.packbits(valid, bitorder="little"),
        np.packbits(np.ones(part.items, np.uint8), bitorder="little"),
        np.where(valid, Code.VALID, Code.INVALID).astype(np.uint8),
        (values.reshape(-1, 1).copy(),),
        device="",
        timings=Timings(device_ns=1000),
    )


@dataclass(eq=False)
class Running:
    parts: list[Batch]
    future: Future[list[BatchResult]]
    instance_id: int
    deadline: float | None
    urgent: bool = False


@dataclass(eq=False)
class HandDevice:
    """Keeps what it is given until the test finishes or fails it."""

    name: str
    kind: str = "cpu"
    slots: int = 4
    state: WorkerState = WorkerState.UP
    fits_bytes: int = 1 << 40
    unified: bool = True
    running: list[Running] = field(default_factory=list)
    given: list[list[int]] = field(default_factory=list)  # items of each launch's parts

    @property
    def device(self) -> DeviceInfo:
        return DeviceInfo(self.name, self.kind, self.name, "t", 1, 1, "1", self.unified, True)

    def room(self) -> int:
        return self.slots - len(self.running) if self.state is WorkerState.UP else 0

    def fits(self, items: int, nbytes: int, output_bytes: int = 0) -> bool:
        return items * (2 + output_bytes) + nbytes <= self.fits_bytes

    def run(self, instance_id, operation, key, parts, deadline, *, urgent=False):  # type: ignore[no-untyped-def]
        running = Running(list(parts), Future(), instance_id, deadline, urgent)
        if self.state is not WorkerState.UP:
            running.future.set_exception(BackendError("down", sticky=True))
            return running.future
        assert self.fits(sum(p.items for p in parts), sum(p.nbytes for p in parts), 1)
        self.running.append(running)
        self.given.append([part.items for part in parts])
        return running.future

    def finish(self, index: int = 0, device_ns: int = 1000) -> None:
        running = self.running.pop(index)
        results = [judge(part) for part in running.parts]
        for result in results:
            result.device = self.name
            result.timings.device_ns = device_ns
        running.future.set_result(results)

    def fail(self, index: int = 0, error: Exception | None = None) -> None:
        self.running.pop(index).future.set_exception(error or BackendError("broken", sticky=True))

    def die(self) -> None:
        self.state = WorkerState.DOWN
        while self.running:
            self.fail()


@dataclass(eq=False)
class HandInstance:
    id: int
    workers: list[HandDevice]
    leases: int = 0
    manifest: Manifest = MANIFEST
    plugin: str = "even"

    @property
    def label(self) -> str:
        return f"even@1.0.0#{self.id}"


class HandLease:
    def __init__(self, instance: HandInstance, key: BatchKey) -> None:
        self.instance = instance
        self.operation_index = instance.manifest.index(key.operation) or 0
        self._released = False
        instance.leases += 1

    def release(self) -> None:
        assert not self._released, "released twice"
        self._released = True
        self.instance.leases -= 1


class Leases:
    """The registry: `active` serves every key."""

    def __init__(self, *devices: HandDevice) -> None:
        self.active: HandInstance | None = HandInstance(1, list(devices))

    def __call__(self, key: BatchKey) -> HandLease:
        if self.active is None:
            raise NotServedError("plugin", "even is not served")
        return HandLease(self.active, key)

    def swap(self) -> HandInstance:
        assert self.active is not None
        self.active = HandInstance(self.active.id + 1, self.active.workers)
        return self.active


Finish = Callable[[HandDevice], None]
