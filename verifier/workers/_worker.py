"""The parent's handle of one device, which starts its process and replaces it when it is lost."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from verifier.drivers._driver import DeviceInfo, Image
from verifier.errors import BackendError, PluginError, RequestError, VerifierError
from verifier.model import Batch, BatchKey, BatchResult
from verifier.workers._layout import bound, lay_out
from verifier.workers._messages import OperationPlan, Plan
from verifier.workers._options import WorkerOptions
from verifier.workers._process import Process

if TYPE_CHECKING:
    from verifier.manifest import Manifest

__all__ = ["FaultListener", "StateListener", "Worker", "WorkerState"]

_log = logging.getLogger(__name__)


class WorkerState(Enum):
    """Whether a device takes batches. DOWN has a reason and is followed by STARTING; STOPPED is the end."""

    STARTING = "starting"
    UP = "up"
    DOWN = "down"
    STOPPED = "stopped"


class _Loaded(NamedTuple):
    plan: Plan
    image: Image
    inputs: tuple[int, ...]  # columns of each operation


class Worker:
    """One device. It lives as long as the daemon; the process behind it is replaced when it fails.

    `on_room` is called by another thread when `room()` has risen, `on_state` after every change of `state`, and
    `on_fault` as Fleet.on_fault says. None of them may block.
    """

    def __init__(self, device_id: str, options: WorkerOptions | None = None) -> None:
        self.device_id = device_id
        self.options = options or WorkerOptions()
        self.state = WorkerState.STARTING
        self.reason = ""  # why it is DOWN
        self.restarts = 0
        self.on_room: Callable[[], None] | None = None
        self.on_state: StateListener | None = None
        self.on_fault: FaultListener | None = None
        self._lock = threading.Lock()
        self._errors: Counter[str] = Counter()
        self._device: DeviceInfo | None = None
        self._process: Process | None = None
        self._instances: dict[int, _Loaded] = {}
        self._losses: Counter[int] = Counter()  # processes lost while an instance was loaded again
        self._closing = threading.Event()
        self._first: Future[None] = Future()
        self._supervisor = threading.Thread(target=self._supervise, name=f"{device_id} supervisor", daemon=True)

    def start(self) -> None:
        """Starts the process and waits until it is UP. Raises DeviceUnavailableError, BackendError."""
        self._supervisor.start()
        self._first.result()

    @property
    def device(self) -> DeviceInfo:
        """What the device is. Raises BackendError before `start` has returned."""
        if self._device is None:
            raise BackendError(f"{self.device_id}: not started")
        return self._device

    @property
    def pid(self) -> int | None:
        """The process that runs now."""
        process = self._process
        return None if process is None else process.pid

    @property
    def errors(self) -> Mapping[str, int]:
        """Errors so far, by kind: died, sticky, watchdog, start, load, batch."""
        with self._lock:
            return dict(self._errors)

    @property
    def instances(self) -> frozenset[int]:
        """Ids of the instances that are loaded here, or will be again when it is UP."""
        with self._lock:
            return frozenset(self._instances)

    def load(self, instance_id: int, manifest: Manifest, image: Image) -> None:
        """Loads an instance and returns when it is warm. Raises PluginError, BackendError."""
        plan = Plan(
            manifest.state,
            tuple(OperationPlan.of(operation) for operation in manifest.operations),
        )
        with self._lock:
            if instance_id in self._instances:
                raise BackendError(f"{self.device_id}: instance {instance_id} is loaded already")
        process = self._running()
        try:
            process.load(instance_id, plan, image)
        except VerifierError:
            self._count("load")
            raise
        with self._lock:
            # From here on a new process gets it too.
            if self._process is process and process.loss is None:
                self._instances[instance_id] = _Loaded(plan, image, tuple(len(o.inputs) for o in manifest.operations))
                return
        raise BackendError(
            f"{self.device_id}: its process was lost after it had loaded {manifest.label}", sticky=True
        )

    def unload(self, instance_id: int) -> None:
        """Waits for the instance's batches, then frees it. An unknown id is no error. Raises BackendError."""
        with self._lock:
            known = self._instances.pop(instance_id, None)
            process = self._process if self.state is WorkerState.UP else None
        if known is None or process is None:
            return
        try:
            process.unload(instance_id)
        except BackendError as error:
            if not error.sticky:  # a lost process holds nothing any more
                raise

    def fits(self, items: int, nbytes: int, output_bytes: int = 0) -> bool:
        """Whether any batch of this size fits. `nbytes`: columns and constant; `output_bytes`: an item's outputs."""
        return bound(items, nbytes, output_bytes) <= self.options.slot_bytes

    def run(
        self,
        instance_id: int,
        operation_index: int,
        key: BatchKey,
        parts: Sequence[Batch],
        deadline: float | None = None,
        *,
        urgent: bool = False,
    ) -> Future[list[BatchResult]]:
        """Runs `parts` as one batch; the results come one a part, in order.

        Waits where there is no room. An `urgent` one overtakes the others on a device with streams. `deadline` is a
        time.monotonic(): a batch not begun by then fails with DeadlineError. Everything that goes wrong is in the
        future: BackendError (`sticky`: run it elsewhere), RequestError where it does not fit. `served_by` is left to
        the caller.
        """
        try:
            process = self._running()
            loaded = self._instances.get(instance_id)
            if loaded is None:
                raise BackendError(f"{self.device_id}: instance {instance_id} is not loaded here")
            for part in parts:
                if len(part.inputs) != loaded.inputs[operation_index]:
                    problem = f"{len(part.inputs)} columns, the operation has {loaded.inputs[operation_index]}"
                    raise RequestError("inputs", problem)
            outputs = loaded.plan.operations[operation_index].outputs
            layout = lay_out(parts, len(key.constant), outputs)
            if layout.nbytes > self.options.slot_bytes:
                raise RequestError("batch", f"takes {layout.nbytes} bytes, a slot has {self.options.slot_bytes}")
            if layout.items:
                return process.run(instance_id, operation_index, key, parts, layout, deadline, urgent=urgent)
            return _done([BatchResult.undetermined(0) for _ in parts])
        except VerifierError as error:
            failed: Future[list[BatchResult]] = Future()
            failed.set_exception(error)
            return failed

    def room(self) -> int:
        """How many batches `run` takes without waiting; 0 unless UP."""
        process = self._process
        return process.room() if process is not None and self.state is WorkerState.UP else 0

    def unmap(self, number: int) -> None:
        """Has the process let go of a region that no batch uses any more."""
        process = self._process
        if process is not None:
            process.unmap(number)

    def close(self) -> None:
        """Refuses new batches, waits for those in flight, ends the process. Bounded in time; idempotent."""
        with self._lock:
            self._closing.set()
            process = self._process
            drains = self.state is WorkerState.UP
        if process is not None:
            if drains:
                process.stop()
            else:
                process.kill()
        if self._supervisor.ident is not None:
            self._supervisor.join(2 * self.options.stop_timeout_s)
        if self.state is not WorkerState.STOPPED:
            self._become(WorkerState.STOPPED)

    def _running(self) -> Process:
        process = self._process
        if process is None or self.state is not WorkerState.UP or self._closing.is_set():
            state = "stopping" if self._closing.is_set() else self.state.value
            raise BackendError(f"{self.device_id}: {state}{self.reason and f' ({self.reason})'}", sticky=True)
        return process

    def _supervise(self) -> None:
        options = self.options
        delay = options.backoff_first_s
        check_s = min(1.0, max(0.01, options.batch_limit_s / 4))
        while not self._closing.is_set():
            error = self._begin()
            if error is None:
                since = time.monotonic()
                process = self._process
                assert process is not None
                if not self._first.done():
                    self._first.set_result(None)
                while not process.lost.wait(check_s):
                    if process.overdue():
                        process.lose("watchdog", "a batch took longer than its limit")
                loss = process.loss
                # Where a plugin did it the device is sound, and the registry bounds how often that plugin may.
                by_plugin = loss is not None and len(loss.instance_ids) == 1
                if by_plugin or time.monotonic() - since > options.backoff_reset_s:
                    delay = options.backoff_first_s
                error = None if loss is None else loss.error
            gone = self._end(error)
            if not self._first.done():
                self._closing.set()
                self._become(WorkerState.STOPPED, str(error))
                self._first.set_exception(error or BackendError(f"{self.device_id}: closed while it started"))
            if self._closing.wait(delay) or not gone:
                break
            delay = min(2 * delay, options.backoff_max_s)
            self.restarts += 1

    def _begin(self) -> VerifierError | None:
        """Starts a process and loads the instances into it. The error where it was lost or would not start."""
        self._become(WorkerState.STARTING)
        # Whatever goes wrong is tried again: a supervisor that ended would leave the device away for good.
        try:
            process = Process(self.device_id, self.options, self._room_rose, self._count)
        except Exception as error:  # there is no process, thread or memory just now, for instance
            self._count("start")
            return BackendError(f"{self.device_id}: cannot start a process: {error or repr(error)}")
        with self._lock:
            self._process = process
            if self._closing.is_set():
                process.kill()
        try:
            self._device = process.hello()
            again = dict(self._instances)
            for instance_id, loaded in again.items():
                self._load_again(process, instance_id, loaded)
            self._losses.clear()
            self._become(WorkerState.UP)
            for instance_id in again.keys() - self.instances:  # unloaded meanwhile
                process.unload(instance_id)
        except Exception as error:
            process.lose("start", str(error))
            return error if isinstance(error, VerifierError) else BackendError(f"{self.device_id}: {error!r}")
        self._room_rose()
        return None

    def _load_again(self, process: Process, instance_id: int, loaded: _Loaded) -> None:
        try:
            process.load(instance_id, loaded.plan, loaded.image)
            return
        except PluginError as error:
            problem: VerifierError = error
        except BackendError as error:
            if process.loss is not None:
                self._losses[instance_id] += 1
                if self._losses[instance_id] >= self.options.load_attempts:
                    self._forget(instance_id)
                raise
            problem = error
        self._count("load")
        self._forget(instance_id)
        self._report([instance_id], problem)

    def _forget(self, instance_id: int) -> None:
        _log.error("%s: instance %d is not loaded again", self.device_id, instance_id)
        with self._lock:
            self._instances.pop(instance_id, None)

    def _end(self, error: VerifierError | None) -> bool:
        """Clears away a process that was lost or stopped. False where it does not end and holds the device."""
        process = self._process
        if not self._closing.is_set():
            self._become(WorkerState.DOWN, str(error))
        if process is None:
            return True
        if process.loss is not None and process.loss.instance_ids:
            self._report(process.loss.instance_ids, process.loss.error)
        gone = process.dispose(self.options.stop_timeout_s)
        while not gone and not self._closing.is_set():
            self._become(WorkerState.DOWN, f"{error}; killed, but it has not ended")
            gone = process.dispose(self.options.stop_timeout_s)
        with self._lock:
            self._process = None
        return gone

    def _become(self, state: WorkerState, reason: str = "") -> None:
        reason = reason.removeprefix(f"{self.device_id}: ")
        with self._lock:
            self.state, self.reason = state, reason
        _log.log(logging.WARNING if reason else logging.INFO, "%s: %s %s", self.device_id, state.value, reason)
        if self.on_state is not None:
            _call(self.on_state, self)

    def _report(self, instance_ids: Sequence[int], error: VerifierError) -> None:
        if self.on_fault is not None:
            _call(self.on_fault, self, instance_ids, error)

    def _room_rose(self) -> None:
        if self.on_room is not None:
            _call(self.on_room)

    def _count(self, kind: str) -> None:
        with self._lock:
            self._errors[kind] += 1


StateListener = Callable[[Worker], None]
FaultListener = Callable[[Worker, Sequence[int], VerifierError], None]


def _done(results: list[BatchResult]) -> Future[list[BatchResult]]:
    future: Future[list[BatchResult]] = Future()
    future.set_result(results)
    return future


def _call(listener: Callable[..., None], *arguments: object) -> None:
    """A listener's failure is its own: it must not end the thread that serves the device."""
    try:
        listener(*arguments)
    except Exception:
        _log.exception("a listener failed")
