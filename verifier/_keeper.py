"""Keeps what the daemon says of itself true: health, gauges, and costs of plugins that are new."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from weakref import WeakSet

import structlog

from verifier.registry import Instance, InstanceStatus, Registry, State
from verifier.scheduling import Scheduler, measure
from verifier.telemetry import Metrics
from verifier.workers import Fleet, Worker, WorkerState

__all__ = ["Keeper"]

_log = structlog.get_logger(__name__)

_STATES = tuple(state.value for state in State)
_RESULTS = {State.ACTIVE: "active", State.FAILED: "failed", State.UNLOADED: "unloaded"}


class Keeper:
    """Listens to workers and registry. The listeners only note that something changed; a thread does the rest."""

    def __init__(
        self,
        fleet: Fleet,
        registry: Registry,
        served: Callable[[Mapping[str, Sequence[Worker]]], None],
        metrics: Metrics,
        *,
        measures: bool,
    ) -> None:
        self._registry = registry
        self._served = served
        self._metrics = metrics
        self._measures = measures
        self._measured: WeakSet[Instance] = WeakSet()  # weak: a daemon that swaps for years has had many
        self._changed = threading.Event()
        self._closing = False
        self._scheduler: Scheduler | None = None
        self._thread = threading.Thread(target=self._run, name="state-keeper", daemon=True)
        fleet.on_state(self._worker_changed)
        fleet.on_fault(self._worker_faulted)
        registry.subscribe(self._instance_changed)

    def start(self, scheduler: Scheduler) -> None:
        """Says how things are now, and goes on doing so. Returns when the active plugins are measured."""
        self._scheduler = scheduler
        self._refresh(scheduler)
        self._thread.start()

    def close(self) -> None:
        """Ends the thread."""
        self._closing = True
        self._changed.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _worker_changed(self, worker: Worker) -> None:
        self._metrics.device_up(worker.device_id, worker.state is WorkerState.UP)
        self._changed.set()

    def _worker_faulted(self, worker: Worker, _: Sequence[int], error: Exception) -> None:
        self._metrics.device_error(worker.device_id, type(error).__name__)

    def _instance_changed(self, status: InstanceStatus) -> None:
        self._metrics.plugin_state(status.plugin, status.version, status.state.value, _STATES)
        if status.state in _RESULTS:
            self._metrics.swapped(status.plugin, _RESULTS[status.state])
        self._changed.set()

    def _run(self) -> None:
        assert self._scheduler is not None
        while True:
            self._changed.wait()
            self._changed.clear()
            if self._closing:
                return
            try:
                self._refresh(self._scheduler)
            except Exception:
                _log.exception("state_not_refreshed")

    def _refresh(self, scheduler: Scheduler) -> None:
        active = self._registry.active()
        self._served({o.id: i.workers for i in active for o in i.manifest.operations if o.role == "call"})
        scheduler.wake()
        if not self._measures:
            return
        for instance in active:
            if instance not in self._measured and instance.workers and not self._closing:
                self._measured.add(instance)
                measure(scheduler, instance, instance.answers)
