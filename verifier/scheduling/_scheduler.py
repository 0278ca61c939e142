"""The scheduler: threads and futures around `Core`.

A batch that finds nothing waiting in front of it, or is urgent, is handed over by the thread that submits it, if it
is small. All else is handed over by one thread a device, so that writing a batch into one device's slots never delays
another's. The lock is held while deciding, never while copying, waiting or calling back.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial

import structlog

from verifier.attended import attend_as
from verifier.errors import CapacityError, DeadlineError, StoppingError
from verifier.model import Batch, BatchKey, BatchResult, Timings
from verifier.scheduling._backlog import Held
from verifier.scheduling._core import Core, Outcome, SchedulingOptions
from verifier.scheduling._devices import Launch
from verifier.scheduling._ports import Device, LeaseSource
from verifier.scheduling._work import Clock, Priority, Work
from verifier.telemetry import Metrics

__all__ = ["Scheduler"]

_PREFERRED_ITEMS = 65536  # while nothing is measured

_AFTER_FAULT_S = 0.1

# Writing so much into a slot costs less than waking a thread for it does, or little more.
_AT_ONCE_BYTES = 4 << 20

_log = structlog.get_logger(__name__)


class Scheduler:
    """Takes batches, runs them merged or cut on the devices, and answers through futures."""

    def __init__(
        self,
        devices: Sequence[Device],
        lease: LeaseSource,
        options: SchedulingOptions | None = None,
        *,
        metrics: Metrics | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        self._devices = tuple(devices)
        self._clock = clock
        self._metrics = metrics or Metrics()
        self._core = Core(devices, lease, options or SchedulingOptions(), self._metrics)
        self._lock = threading.Lock()
        self._signal = threading.Condition(threading.Lock())
        self._version = 0  # rises with everything that may let a launch begin
        self._draining = False
        self._stopped = False
        self._threads: list[threading.Thread] = []
        self._answering = threading.local()  # `on`: the thread calls back, and must not wait for a device
        self._metrics.watch_queues(self._queue_sizes)

    def start(self) -> None:
        """Starts the threads. Without it nothing runs until `poll` is called, which is for tests."""
        for device in self._devices:
            thread = threading.Thread(target=self._run, name=f"dispatch-{device.device.id}", daemon=True)
            thread.start()
            self._threads.append(thread)

    def submit(
        self,
        batch: Batch,
        *,
        deadline: float | None = None,
        priority: Priority = Priority.POOL,
        caller: str = "",
        released: Callable[[], None] | None = None,
    ) -> Future[BatchResult]:
        """Accepts a batch. `deadline` is on the clock; `caller` is who shares the queue fairly with others.
        `released` is called when no device reads the batch's columns any more, cancelled ones included.

        The future gives the result, or DeadlineError where the deadline passed before anything ran, NotServedError
        where its plugin went meanwhile, StoppingError where the daemon stopped. Cancelling it drops what waits.
        Raises CapacityError where a queue is full, DeadlineError, StoppingError.
        """
        now = self._clock()
        if deadline is not None and deadline <= now:
            self._metrics.rejected(batch.key.plugin, "deadline")
            raise DeadlineError("the deadline had passed when the batch came")
        work = Work(batch, priority, caller, deadline, now, released)
        with self._lock:
            if self._draining:
                raise StoppingError("the daemon is stopping")
            try:
                at_once = (work.urgent or not self._core.waits) and self._may_begin(batch)
                before = self._core.next_time()
                self._core.admit(work)
                sooner = self._core.next_time() < before
            except CapacityError:
                self._metrics.rejected(batch.key.plugin, "queue_full")
                raise
        # Weak: a work that is done with must let go of its columns at once, not when cycles are collected.
        work.future.add_done_callback(partial(self._cancelled, weakref.ref(work)))
        if at_once:
            try:
                self._step()
            except Exception:
                _log.exception("dispatch_failed")  # the threads look at it again
            self._metrics.settle()  # of batches before this one, while the device works
        if sooner:
            self._notify()
        else:
            self.wake()
        return work.future

    def _may_begin(self, batch: Batch) -> bool:
        """Whether the calling thread hands over a batch itself. Without threads `poll` does, which is for tests."""
        return bool(self._threads) and batch.nbytes <= _AT_ONCE_BYTES and not getattr(self._answering, "on", False)

    def _cancelled(self, reference: weakref.ref[Work], future: Future[BatchResult]) -> None:
        work = reference()
        if work is None or not future.cancelled():
            return
        with self._lock:
            if work.settled:
                return
            self._core.drop(work)
            outcomes = self._outcomes()
        self._metrics.rejected(work.batch.key.plugin, "cancelled")
        self._answer(outcomes)

    def wake(self) -> None:
        """Looks for work again: a device has room, has come back, or an instance was activated. Never blocks for
        long, and wakes nobody where nothing could begin: under load a thread that looks in vain keeps others from
        the interpreter."""
        with self._lock:
            if not (self._draining or self._core.could_begin(self._clock())):
                return
        self._notify()

    def _notify(self) -> None:
        with self._signal:
            self._version += 1
            self._signal.notify_all()

    def poll(self) -> int:
        """Begins every launch that can begin now, and returns how many those were."""
        count = 0
        while self._step():
            count += 1
        return count

    def _step(self) -> bool:
        with self._lock:
            launch = self._core.next_launch(self._clock())
            outcomes = self._outcomes()
        self._answer(outcomes)
        if launch is None:
            return False
        self._begin(launch)
        return True

    def _begin(self, launch: Launch) -> None:
        lease = launch.lease
        try:
            parts = [piece.batch() for piece in launch.pieces]
            future = launch.device.run(
                lease.instance.id, lease.operation_index, launch.key, parts, launch.deadline, urgent=launch.urgent
            )
        except Exception as error:
            future = Future()
            future.set_exception(error)
        for piece in launch.pieces:
            attend_as(piece.work.future, future)
        with self._lock:
            self._core.started(launch)
        future.add_done_callback(partial(self._finished, launch))

    def _finished(self, launch: Launch, future: Future[list[BatchResult]]) -> None:
        error = future.exception()
        if error is not None:
            _log.warning(
                "launch_failed",
                device=launch.device.device.id,
                instance=launch.lease.instance.label,
                items=launch.items,
                failures=launch.failures + 1,
                error=f"{type(error).__name__}: {error}",
            )
        with self._lock:
            self._core.finished(launch, future.result() if error is None else error, self._clock())
            outcomes = self._outcomes()
        self.wake()
        self._answer(outcomes)
        if error is None:
            self._count(launch, future.result()[0].timings)

    def _count(self, launch: Launch, timings: Timings) -> None:
        plugin, items = launch.key.plugin, launch.items
        self._metrics.launched(plugin, launch.device.device.id, items, timings)
        if launch.failed_on:
            self._metrics.fallback(plugin, "device_failed", items)

    def _outcomes(self) -> list[Outcome]:
        outcomes, self._core.outcomes = self._core.outcomes, []
        return outcomes

    def _answer(self, outcomes: list[Outcome]) -> None:
        """Completes futures; the lock is not held, for their callbacks may do anything, except that a batch which
        they submit is left to the threads: this one may be what frees a device's slots."""
        if not outcomes:
            return
        before, self._answering.on = getattr(self._answering, "on", False), True
        try:
            self._complete(outcomes)
        finally:
            self._answering.on = before

    def _complete(self, outcomes: list[Outcome]) -> None:
        now = self._clock()
        for outcome in outcomes:
            work, answer = outcome.work, outcome.answer
            if work.lease is not None:
                work.lease.release()
            if work.released is not None:
                work.released()
            if not work.future.set_running_or_notify_cancel():
                continue
            if isinstance(answer, BatchResult):
                timings = answer.timings
                timings.total_ns = round((now - work.accepted) * 1e9)
                timings.queue_ns = round(((now if work.started is None else work.started) - work.accepted) * 1e9)
                work.future.set_result(answer)
                self._metrics.answered(work.batch.key.plugin, answer)
            else:
                work.future.set_exception(answer)

    def _run(self) -> None:
        while True:
            with self._signal:
                seen = self._version
            try:
                if self._step():
                    continue
            except Exception:
                # A fault in deciding must not end the thread: what it was about waits for its deadline.
                _log.exception("dispatch_failed")
                time.sleep(_AFTER_FAULT_S)
            self._metrics.settle()
            with self._lock:
                due, soon = self._core.next_time(), self._core.look_again_s
            timeout = min(due - self._clock(), float("inf") if soon is None else soon)
            with self._signal:
                if self._stopped:
                    return
                if self._version == seen:
                    self._signal.wait(min(max(timeout, 0.001), threading.TIMEOUT_MAX))

    def measure(self, device: Device, key: BatchKey, small: tuple[int, float], large: tuple[int, float]) -> None:
        """Sets the cost model of a device and operation from two launches, each (units, seconds)."""
        with self._lock:
            self._core.router.measure(device.device, key, small, large)

    def preferred_items(self) -> int:
        """How many items a batch should have to keep a device busy: a power of two."""
        with self._lock:
            units = self._core.router.preferred_units()
        return _PREFERRED_ITEMS if units is None else min(max(1 << units.bit_length(), 1024), 1 << 18)

    def held(self) -> dict[str, Held]:
        """Accepted and unanswered work by plugin."""
        with self._lock:
            held = self._core.backlog.held.items()
            return {plugin: Held(h.requests, h.items, h.bytes) for plugin, h in held if h.requests}

    def _queue_sizes(self) -> dict[str, tuple[int, int]]:
        return {plugin: (held.items, held.bytes) for plugin, held in self.held().items()}

    def drain(self, timeout_s: float) -> dict[str, int]:
        """Refuses new work and waits for the old, bounded. Returns the requests still open then, by plugin."""
        with self._lock:
            self._draining = True
        end = self._clock() + timeout_s
        while (held := self.held()) and (left := end - self._clock()) > 0:
            with self._signal:
                self._signal.wait(min(left, 0.05))
        return {plugin: counts.requests for plugin, counts in held.items()}

    def close(self) -> None:
        """Ends the threads. What still waits is answered with StoppingError or as UNDETERMINED. Idempotent."""
        with self._lock:
            self._draining = True
            self._core.abandon()
            outcomes = self._outcomes()
        self._answer(outcomes)
        with self._signal:
            self._stopped = True
            self._signal.notify_all()
        for thread in self._threads:
            thread.join()
        self._threads.clear()
