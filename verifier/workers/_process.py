"""One life of a worker's process, seen from the parent: its slots, its batches in flight, and its end."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import reduction

from verifier.attended import Attended
from verifier.channel import Channel
from verifier.drivers._driver import DeviceInfo, Image
from verifier.errors import BackendError, DeadlineError
from verifier.model import Batch, BatchKey, BatchResult
from verifier.reader import Reader
from verifier.regions import Region
from verifier.workers._borrowed import find_borrowed, regions_of
from verifier.workers._layout import Layout, secrets, wipe, write_parts
from verifier.workers._messages import (
    Answer,
    Done,
    Failed,
    Hello,
    Job,
    Late,
    Load,
    MapRegion,
    Plan,
    Problem,
    Reply,
    Request,
    Unload,
    UnmapRegion,
)
from verifier.workers._options import WorkerOptions
from verifier.workers._results import read_results
from verifier.workers._slots import Slots
from verifier.workers._spawn import spawn_worker

__all__ = ["Loss", "Process"]


@dataclass(frozen=True, slots=True)
class Loss:
    """Why a process was lost, and which instances may have done it, the likeliest first.

    None where it was killed from outside. One alone where that is certain: nothing else ran, or the device runs one
    batch at a time.
    """

    kind: str  # died, sticky, watchdog, start
    error: BackendError
    instance_ids: tuple[int, ...]


@dataclass(slots=True)
class _Flight:
    job: Job
    parts: list[int]
    secrets: tuple[tuple[int, int], ...]  # places of the slot that are overwritten after use
    future: Attended[list[BatchResult]] = field(default_factory=Attended)


class Process:
    """A started process. It is used until it is lost or stopped, and never again after that."""

    def __init__(
        self, device_id: str, options: WorkerOptions, on_room: Callable[[], None], on_error: Callable[[str], None]
    ) -> None:
        """Starts the process; `hello` waits until it is ready.

        `on_room` is called when a slot has become free, `on_error` with the kind of every error.
        """
        self.device_id = device_id
        self.lost = threading.Event()
        self.loss: Loss | None = None
        self._options = options
        self._on_room = on_room
        self._on_error = on_error
        self._changed = threading.Condition()
        self._sending = threading.Lock()  # batches reach the child in the order of `_flights`
        self._asking = threading.Lock()
        self._loads = threading.Lock()
        self._flights: dict[int, _Flight] = {}
        self._mapped: set[int] = set()  # regions that the child has; guarded by `_sending`
        self._free = list(range(options.slots))
        self._tickets = 0
        self._head_since = 0.0
        self._loading: int | None = None
        self._one_by_one = False  # the child takes a batch when it has done the one before
        self._stopping = False
        memory = Slots.create(options.slots, options.slot_bytes)
        try:
            self._slots = Slots(memory, options.slots, options.slot_bytes).slots
            self._popen, self._control, batches, urgent = spawn_worker(device_id, memory)
        finally:
            os.close(memory)
        self._batches, self._urgent = Channel(batches, Answer), Channel(urgent, Answer)
        # Answers to urgent batches are read by a thread of their own: under load those to others wait for each other.
        self._readers: list[Reader] = []
        try:
            for name, channel in (("results", self._batches), ("urgent results", self._urgent)):
                self._readers.append(Reader(f"{device_id} {name}", channel, self._take, self.lose))
                self._readers[-1].start()
        except BaseException:  # nobody else would end what was begun
            self._stopping = True  # the reader that there may be takes the end for what it is
            self._popen.kill()
            self._popen.wait()
            self._close()
            raise

    @property
    def pid(self) -> int:
        """The process."""
        return self._popen.pid

    def hello(self) -> DeviceInfo:
        """Has the child open its device. Raises DeviceUnavailableError, BackendError."""
        device = self._ask(Hello(self.device_id, self._options), self._options.start_timeout_s, "start")
        assert isinstance(device, DeviceInfo)
        self._one_by_one = device.unified
        return device

    def load(self, instance_id: int, plan: Plan, image: Image) -> None:
        """Raises PluginError, BackendError."""
        with self._loads:
            self._loading = instance_id
            try:
                self._ask(Load(instance_id, plan, image), self._options.load_timeout_s, "watchdog")
            finally:
                self._loading = None

    def unload(self, instance_id: int) -> None:
        """Waits for the instance's batches, which the watchdog bounds, and frees it. Raises BackendError."""
        with self._changed:
            self._changed.wait_for(lambda: self.loss is not None or not self._runs(instance_id))
        self._ask(Unload(instance_id), self._options.load_timeout_s, "watchdog")

    def room(self) -> int:
        """Free slots of a process that is sound."""
        return len(self._free) if self.loss is None else 0

    def run(
        self,
        instance_id: int,
        operation: int,
        key: BatchKey,
        parts: Sequence[Batch],
        layout: Layout,
        deadline: float | None,
        *,
        urgent: bool = False,
    ) -> Future[list[BatchResult]]:
        """Sends a batch. Raises BackendError, DeadlineError where it could not be sent."""
        slot = self._take_slot(deadline)
        try:
            borrowed = find_borrowed(layout, key, parts)
            write_parts(self._slots[slot], layout, parts, key.constant, {piece.at for piece in borrowed})
        except BaseException:
            self._free_slot(slot)
            raise
        with self._sending:
            with self._changed:
                self._require()
                self._tickets += 1
                places = secrets(layout, key)
                job = Job(
                    self._tickets,
                    slot,
                    instance_id,
                    operation,
                    key.parameters,
                    deadline,
                    layout,
                    bool(places),
                    borrowed,
                    urgent,
                )
                flight = _Flight(job, [part.items for part in parts], places)
                flight.future.set_running_or_notify_cancel()
                reader = self._readers[urgent]
                flight.future.attend = partial(reader.read_while, partial(self._is_next, job.ticket))
                if not self._flights:
                    self._head_since = time.monotonic()
                self._flights[job.ticket] = flight
            try:
                if borrowed:
                    self._map(regions_of(parts))
                self._batches.send(job)
            except OSError:
                self.lose("died")
        return flight.future

    def _map(self, regions: dict[int, Region]) -> None:
        """Gives the child the regions that it has not. Raises OSError."""
        for number, region in regions.items():
            if number not in self._mapped:
                self._batches.send(MapRegion(number, region.nbytes, region.changeable))
                reduction.send_handle(self._batches.connection, region.fd, self.pid)
                self._mapped.add(number)

    def unmap(self, number: int) -> None:
        """Has the child let go of a region that no batch uses any more."""
        with self._sending:
            if number not in self._mapped or self.loss is not None or self._stopping:
                return
            self._mapped.remove(number)
            try:
                self._batches.send(UnmapRegion(number))
            except OSError:
                self.lose("died")

    def overdue(self) -> bool:
        """Whether the oldest batch has run longer than it may."""
        with self._changed:
            head = next(iter(self._flights.values()), None)
            if head is None:
                return False
            limit = self._options.limit_s(self.device_id, head.job.layout.items)
            return time.monotonic() - self._head_since > limit

    def lose(self, kind: str, problem: str = "") -> None:
        """Gives the process up: kills it and fails its batches. Nothing of them is read. Idempotent."""
        with self._changed:
            if self.loss is not None or self._stopping:
                return
            flights = list(self._flights.values())
            self._flights.clear()
            running = [flight.job.instance_id for flight in flights[: 1 if self._one_by_one else None]]
            if self._loading is not None:
                running.insert(0, self._loading)
            self._popen.kill()
            if kind == "died":
                code = self._exit_code()
                problem = f"its process ended: {_ending(code)}"
                if code in _FROM_OUTSIDE:
                    running = []
            error = BackendError(f"{self.device_id}: {problem}", sticky=True)
            self.loss = Loss(kind, error, tuple(dict.fromkeys(running)))
            self._changed.notify_all()
        self._on_error(kind)
        self.lost.set()
        for flight in flights:
            flight.future.set_exception(error)

    def stop(self) -> None:
        """Waits for the batches in flight, then ends the process. Bounded in time; idempotent."""
        with self._changed:
            self._changed.wait_for(lambda: self.loss is not None or not self._flights, self._options.drain_timeout_s)
            self._stopping = True
            flights = list(self._flights.values())
            self._flights.clear()
            self._changed.notify_all()
        for flight in flights:
            flight.future.set_exception(BackendError(f"{self.device_id}: stopped before the batch was done"))
        try:
            with self._sending:
                self._batches.send(None)
            self._popen.wait(self._options.stop_timeout_s)
        except (OSError, subprocess.TimeoutExpired):
            self._popen.kill()
        self.lost.set()

    def kill(self) -> None:
        """Ends the process at once, as if it had died."""
        self._popen.kill()

    def dispose(self, timeout_s: float) -> bool:
        """Waits for the end of a process that was killed or stopped, and closes the pipes.

        False: it has not ended, as one that is stuck in its device's driver may not. It still holds the device.
        """
        try:
            self._popen.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        self._close()
        return True

    def _close(self) -> None:
        """Behind the process's end, which ends the readers."""
        for reader in self._readers:
            reader.close()
        with self._asking, self._sending:
            self._control.close()
            self._batches.close()
            self._urgent.close()

    def _runs(self, instance_id: int) -> bool:
        return any(flight.job.instance_id == instance_id for flight in self._flights.values())

    def _require(self) -> None:
        if self.loss is not None:
            raise self.loss.error
        if self._stopping:
            raise BackendError(f"{self.device_id}: stopped")

    def _take_slot(self, deadline: float | None) -> int:
        with self._changed:
            while True:
                self._require()
                if self._free:
                    return self._free.pop()
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    raise DeadlineError(f"{self.device_id}: no room before the deadline")
                self._changed.wait(left)

    def _free_slot(self, slot: int) -> None:
        with self._changed:
            self._free.append(slot)
            self._changed.notify_all()

    def _ask(self, request: Request, timeout_s: float, late: str) -> Reply:
        """Sends a request and waits for its answer. A process that does not answer in time is lost."""
        with self._asking:
            try:
                self._require()
                self._control.send(request)
                if not self._control.poll(timeout_s):
                    self.lose(late, f"{type(request).__name__.lower()} took longer than {timeout_s:g} s")
                    self._require()
                reply: Reply = self._control.recv()
            except (EOFError, OSError):
                self.lose("died")
                self._require()
                raise
        if isinstance(reply, Problem):
            if reply.kind == "sticky":
                self.lose("sticky", reply.text)
            raise reply.error()
        return reply

    def _is_next(self, ticket: int) -> bool:
        """Whether nothing but this batch's answer is waited for. By its number: a future that led to its own batch
        would keep the callers' columns, which may lie in memory of theirs, until the collector comes."""
        return len(self._flights) == 1 and ticket in self._flights

    def _take(self, answer: Answer) -> None:
        if isinstance(answer, Failed) and answer.problem.kind == "sticky":
            self.lose("sticky", answer.problem.text)
            return
        with self._changed:
            flight = self._flights.get(answer.ticket)
        if flight is None:  # the process was given up meanwhile
            return
        slot = flight.job.slot
        results: list[BatchResult] = []
        if isinstance(answer, Done):
            results = read_results(
                self._slots[slot], flight.job.layout, flight.parts, self.device_id, answer.device_ns, answer.stages
            )
        wipe(self._slots[slot], flight.secrets)
        with self._changed:
            head = next(iter(self._flights), None)
            if self._flights.pop(answer.ticket, None) is None:
                return
            if answer.ticket == head:  # what was overtaken has not begun again
                self._head_since = time.monotonic()
            self._free.append(slot)
            self._changed.notify_all()
        self._on_room()
        if isinstance(answer, Done):
            flight.future.set_result(results)
        elif isinstance(answer, Late):
            flight.future.set_exception(
                DeadlineError(f"{self.device_id}: the deadline passed before the batch began")
            )
        else:
            self._on_error("batch")
            flight.future.set_exception(answer.problem.error())

    def _exit_code(self) -> int | None:
        try:
            return self._popen.wait(1.0)
        except subprocess.TimeoutExpired:
            return None


# A plugin's crash has other signals; these are an operator's, or of a system that is out of memory.
_FROM_OUTSIDE = (-signal.SIGKILL, -signal.SIGTERM)


def _ending(code: int | None) -> str:
    if code is None:
        return "killed"
    return f"by {signal.Signals(-code).name}" if code < 0 else f"with exit status {code}"
