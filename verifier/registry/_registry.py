"""The registry: which instance serves, and how one replaces another under load."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from verifier.errors import BackendError, ConflictError, NotFoundError, PluginError
from verifier.model import BatchKey
from verifier.registry._faults import FaultCounter
from verifier.registry._fleet import FleetLike, WorkerLike
from verifier.registry._folders import find_source
from verifier.registry._instance import GONE, LEAVING, SERVING, Instance, InstanceStatus, Lease, Resolved, State
from verifier.registry._loader import Loader
from verifier.registry._options import RegistryOptions
from verifier.registry._source import PluginSource
from verifier.registry._table import Table
from verifier.registry._tickets import Ticket, Tickets

__all__ = ["Registry", "Transition"]

MAX_GONE = 200  # instances that are gone and still listed
MAX_TRANSITIONS = 10_000


@dataclass(frozen=True, slots=True)
class Transition:
    """One step of an instance's life. `at` is seconds since the epoch."""

    at: float
    label: str
    state: State
    reason: str


class Registry:
    """Plugins and their instances.

    Thread-safe. `lease`, `resolve` and the listings never wait behind a load: what they read is replaced by one
    assignment under a lock that nobody holds while computing. Loads, unloads and roll-backs block their caller.
    """

    def __init__(self, fleet: FleetLike, options: RegistryOptions | None = None) -> None:
        self.options = options or RegistryOptions()
        self._fleet = fleet
        self._loader = Loader(self.options)
        self._lock = threading.RLock()
        self._table = Table()
        self._tickets = Tickets()
        self._ids = itertools.count(1)
        self._instances: dict[int, Instance] = {}
        self._previous: dict[str, Instance] = {}  # by plugin: what a roll-back returns to
        self._faults = FaultCounter(self.options.quarantine_faults, self.options.quarantine_window_s)
        self._transitions: deque[Transition] = deque(maxlen=MAX_TRANSITIONS)
        self._listeners: list[Callable[[InstanceStatus], None]] = []
        self._jobs = ThreadPoolExecutor(4, "registry")
        self._closing = threading.Event()
        self._keeper = threading.Thread(target=self._keep, name="registry-keeper", daemon=True)
        self._keeper.start()
        fleet.on_state(self._worker_changed)
        fleet.on_fault(self._worker_faulted)

    # What serves

    def resolve(self, operation: str, algorithm: str, plugin: str = "") -> Resolved:
        """Which plugin serves an operation for an algorithm. `plugin` pins one: "name@version" or "name".

        Raises NotServedError naming what is served.
        """
        table = self._table
        if not plugin:
            instance, version = table.route(operation, algorithm), None
        else:
            name, _, pinned = plugin.partition("@")
            version = pinned or None
            instance = table.find(name, version)
        index = instance.manifest.index(f"{operation}/{algorithm}")
        if index is None:
            raise table.unserved(operation, algorithm, instance)
        return Resolved(instance, version, index)

    def lease(self, key: BatchKey) -> Lease:
        """A hold on the instance that serves `key` now. Raises NotServedError naming what is served."""
        with self._lock:
            instance = self._table.find(key.plugin, key.version)
            index = instance.manifest.index(key.operation)
            if index is None:
                raise self._table.unserved(*key.operation.partition("/")[::2], instance)
            instance.check_parameters(index, key.parameters)
            instance.leases += 1
            return Lease(instance, index, self._release)

    def active(self) -> list[Instance]:
        """The instances that new batches go to by default, one a plugin."""
        return list(self._table.active.values())

    def index(self) -> list[InstanceStatus]:
        """Every instance, also failed and unloaded ones, oldest first."""
        with self._lock:
            return [self._status(instance) for instance in self._instances.values()]

    def history(self, plugin: str = "") -> list[Transition]:
        """What became of every instance, oldest first; of one plugin where `plugin` is its name or name@version."""
        with self._lock:
            return [t for t in self._transitions if not plugin or t.label.startswith((f"{plugin}@", f"{plugin}#"))]

    def subscribe(self, listener: Callable[[InstanceStatus], None]) -> None:
        """Calls `listener` after every change of an instance. It must return at once and not call the registry."""
        with self._lock:
            self._listeners.append(listener)

    # Operations

    def load(self, what: str | Path | PluginSource, *, activate: bool = True, force: bool = False) -> InstanceStatus:
        """Brings a plugin to service: a name or name@version of the plugin folders, or a path to a folder or bundle.

        Blocks until every device gave every known answer. A failed load changes nothing. Where the same bytes serve
        already they are only activated, unless `force`. Raises TrustError, ManifestError, BuildError,
        DeviceUnavailableError, SelfTestError, BackendError, or ConflictError where a newer operation has won.
        """
        source = what if isinstance(what, PluginSource) else find_source(what, self.options.folders)
        scopes: list[object] = [(source.name, source.version)]
        if activate:
            scopes.append(source.name)
        ticket = self._tickets.take(f"load of {source.label}", *scopes)
        present = self._table.pinned.get((source.name, source.version))
        if present is not None and not force:
            return self._again(present, source, ticket, activate)
        instance = Instance(next(self._ids), source.manifest, source.digest, source.origin)
        with self._lock:
            self._instances[instance.id] = instance
            self._forget()
        try:
            self._prepare(instance, source, ticket)
            self._publish(instance, ticket, activate)
        except BaseException as error:
            self._abandon(instance, str(error) or repr(error))
            raise
        return self._status(instance)

    def unload(self, label: str, *, wait: bool = False, timeout_s: float | None = None) -> InstanceStatus:
        """Takes an instance out: "name" (all of it), "name@version" or "name@version#generation".

        New batches no longer get it; once its last lease is back its memory is freed. With `wait` it returns after
        that, or as DRAINING_STUCK when `timeout_s` (default: the options') has passed. Unloading what is unloaded
        is no error. A load of the same version that is under way is given up. Raises NotFoundError.
        """
        limit = self.options.drain_timeout_s if timeout_s is None else timeout_s
        instances = self._matching(label)
        for name, version in {(i.plugin, i.version) for i in instances}:
            self._tickets.take(f"unload of {label}", (name, version), name)
        for instance in instances:
            self._drain(instance, limit)
        if wait:
            until = time.monotonic() + limit
            for instance in instances:
                if not instance.gone.wait(max(0.0, until - time.monotonic())):
                    self._mark_stuck()
        return self._status(instances[-1])

    def reload(self, label: str) -> InstanceStatus:
        """Loads the plugin again from where it came from, even if nothing changed. Raises as `load`."""
        name, _, version = label.partition("@")
        origin = self._table.find(name, version or None).origin
        return self.load(Path(origin), force=True)

    def activate(self, label: str) -> InstanceStatus:
        """Makes a loaded instance its plugin's default: "name@version" or "name@version#generation".
        Raises NotFoundError, or ConflictError."""
        serving = [i for i in self._matching(label) if i.state in SERVING]
        if not serving:
            raise NotFoundError("plugin", f"{label} is not loaded")
        instance = serving[-1]
        ticket = self._tickets.take(f"activation of {instance.label}", instance.plugin)
        self._publish(instance, ticket, True)
        return self._status(instance)

    def rollback(self, plugin: str) -> InstanceStatus:
        """Returns to the instance that the active one replaced. Raises NotFoundError where it is gone."""
        with self._lock:
            previous = self._previous.get(plugin)
            if previous is None or previous.state not in SERVING:
                raise NotFoundError("plugin", f"{plugin}: no previous instance is at hand")
        ticket = self._tickets.take(f"roll-back of {plugin} to {previous.label}", plugin)
        self._publish(previous, ticket, True)
        return self._status(previous)

    def confirm(self, plugin: str) -> InstanceStatus:
        """Says that the active instance stays: what it replaced is drained now. Raises NotFoundError."""
        with self._lock:
            active = self._table.active.get(plugin)
            if active is None:
                raise NotFoundError("plugin", f"{plugin} has no active instance")
            previous = self._previous.pop(plugin, None)
        if previous is not None:
            self._drain(previous, self.options.drain_timeout_s)
        return self._status(active)

    def close(self) -> None:
        """Stops the registry's threads. The workers' instances end with the workers."""
        self._closing.set()
        self._keeper.join()
        self._jobs.shutdown(cancel_futures=True)

    # What the workers tell

    def _worker_changed(self, worker: WorkerLike) -> None:
        if worker.state.value == "up":
            self._jobs.submit(self._restore, worker)
            return
        with self._lock:
            for instance in self._instances.values():
                if worker in instance.workers:
                    instance.workers = tuple(other for other in instance.workers if other is not worker)
                    self._tell(instance)

    def _worker_faulted(self, worker: WorkerLike, instance_ids: Sequence[int], error: Exception) -> None:
        """Only the likeliest culprit is counted: its neighbours were on the device by chance."""
        for instance_id in instance_ids[:1]:
            instance = self._instances.get(instance_id)
            if instance is None or instance.state in GONE:
                continue
            if instance.state not in SERVING:
                worker.unload(instance_id)  # it fails its load; the new process must not meet it again
            elif self._faults.count((instance_id, worker.device.id)):
                self._quarantine(instance, worker, str(error))

    def _quarantine(self, instance: Instance, worker: WorkerLike, problem: str) -> None:
        """Takes the instance off the device it faults on; off the last one, its predecessor comes back."""
        device = worker.device.id
        with self._lock:
            instance.devices -= {device}
            instance.workers = tuple(other for other in instance.workers if other is not worker)
            reason = f"quarantined on {device}: {problem}"
            if instance.devices:
                instance.reason = reason
                self._tell(instance)
            else:
                previous = self._previous.get(instance.plugin)
                self._retire(instance, State.FAILED, reason)
                if previous is not None and previous.state in SERVING:
                    self._table = self._table.with_active(previous)
                    self._set(previous, State.ACTIVE)
        worker.unload(instance.id)

    # Steps

    def _again(self, present: Instance, source: PluginSource, ticket: Ticket, activate: bool) -> InstanceStatus:
        if present.digest != source.digest:
            raise PluginError(
                f"{source.label} is loaded with digest {present.digest}, this one has {source.digest}: "
                "give it another version, or load it with force"
            )
        if activate:
            self._publish(present, ticket, True)
        return self._status(present)

    def _prepare(self, instance: Instance, source: PluginSource, ticket: Ticket) -> None:
        self._set(instance, State.VERIFYING)
        siblings = [i for i in self._live() if i is not instance and i.plugin == instance.plugin]
        self._loader.verify(instance, source, siblings)
        self._set(instance, State.LOADING)
        workers: Sequence[WorkerLike] = list(self._fleet.workers)
        self._loader.build(instance, source, workers)
        ticket.check()
        instance.devices = frozenset(worker.device.id for worker in workers)
        self._loader.place(instance, workers)
        ticket.check()
        self._set(instance, State.SELFTEST)
        self._loader.test(instance, workers, full=True)
        with self._lock:
            instance.workers = tuple(workers)

    def _publish(self, instance: Instance, ticket: Ticket, activate: bool) -> None:
        """The swap: one assignment."""
        with self._lock:
            ticket.check()
            if instance.state in GONE or instance.state in (State.DRAINING, State.DRAINING_STUCK):
                raise ConflictError(f"{instance.label} is {instance.state}")
            before = self._table.active.get(instance.plugin)
            same_version = self._table.pinned.get((instance.plugin, instance.version))
            table = self._table
            self._table = table.with_active(instance) if activate else table.with_warm(instance)
            self._set(instance, State.ACTIVE if activate else State.WARM)
            instance.retire_at = None
            leaving = []
            if activate and before is not None and before is not instance:
                leaving = self._supersede(instance, before)
            elif not activate and same_version not in (None, instance, before):
                leaving = [same_version]
        for other in leaving:
            if other is not None:
                self._drain(other, self.options.drain_timeout_s)

    def _supersede(self, instance: Instance, before: Instance) -> list[Instance | None]:
        """Keeps `before` at hand for a roll-back, and lets go of the one that was kept until now."""
        kept = self._previous.get(instance.plugin)
        self._previous[instance.plugin] = before
        before.retire_at = time.monotonic() + self.options.keep_previous_s
        self._set(before, State.WARM)
        return [kept] if kept not in (None, instance, before) else []

    def _drain(self, instance: Instance, timeout_s: float) -> None:
        with self._lock:
            if instance.state in SERVING:
                instance.stuck_at = time.monotonic() + timeout_s
                self._retire(instance, State.DRAINING, "")

    def _abandon(self, instance: Instance, reason: str) -> None:
        """A failed load: nothing of it stays."""
        with self._lock:
            if instance.state not in GONE:
                self._retire(instance, State.FAILED, reason)

    def _retire(self, instance: Instance, state: State, reason: str) -> None:
        """No new leases from here on; freed when the last is back. Under the lock."""
        self._table = self._table.without(instance)
        if self._previous.get(instance.plugin) is instance:
            del self._previous[instance.plugin]
        self._set(instance, state, reason)
        if instance.leases == 0:
            self._jobs.submit(self._free, instance)

    def _release(self, instance: Instance) -> None:
        with self._lock:
            instance.leases -= 1
            if instance.leases == 0 and instance.state in LEAVING:
                self._jobs.submit(self._free, instance)

    def _free(self, instance: Instance) -> None:
        """Unloads it everywhere. A worker that fails at it is being replaced, and comes back without the instance."""
        for worker in self._fleet.workers:
            with contextlib.suppress(BackendError):
                worker.unload(instance.id)
            self._faults.forget((instance.id, worker.device.id))
        with self._lock:
            instance.workers, instance.images, instance.answers = (), {}, ()
            if instance.state is not State.FAILED:
                self._set(instance, State.UNLOADED)
            instance.gone.set()

    def _restore(self, worker: WorkerLike) -> None:
        """What serves is tested on a restarted worker before it gets batches there."""
        for instance in self._live():
            device = worker.device.id
            if instance.state not in SERVING or device not in instance.devices or worker in instance.workers:
                continue
            try:
                if instance.id not in worker.instances:
                    self._loader.place_on(instance, worker)
                self._loader.test(instance, [worker], full=False)
            except BackendError:
                return  # it went down again, and will be back
            except PluginError as error:
                self._quarantine(instance, worker, str(error))
                continue
            with self._lock:
                if instance.state in SERVING and worker.state.value == "up" and worker not in instance.workers:
                    instance.workers = (*instance.workers, worker)
                    self._tell(instance)

    def _keep(self) -> None:
        """Lets go of superseded instances in time, and notes which drain too long."""
        while not self._closing.wait(0.1):
            now = time.monotonic()
            for instance in self._live():
                if instance.retire_at is not None and now >= instance.retire_at and instance.state is State.WARM:
                    self._drain(instance, self.options.drain_timeout_s)
            self._mark_stuck()

    def _mark_stuck(self) -> None:
        now = time.monotonic()
        with self._lock:
            for instance in self._instances.values():
                if instance.state is State.DRAINING and instance.stuck_at is not None and now >= instance.stuck_at:
                    self._set(instance, State.DRAINING_STUCK, f"{instance.leases} leases are still out")

    # Bookkeeping

    def _live(self) -> list[Instance]:
        with self._lock:
            return [instance for instance in self._instances.values() if instance.state not in GONE]

    def _matching(self, label: str) -> list[Instance]:
        """Instances by name, name@version or name@version#generation, oldest first. Raises NotFoundError."""
        with self._lock:
            found = [
                instance
                for instance in self._instances.values()
                if label in (instance.plugin, instance.manifest.label, instance.label)
            ]
        if not found:
            raise NotFoundError("plugin", f"{label} is not known here; served are {self._table.plugins()}")
        return found

    def _forget(self) -> None:
        gone = [instance.id for instance in self._instances.values() if instance.gone.is_set()]
        for instance_id in gone[:-MAX_GONE]:
            del self._instances[instance_id]

    def _set(self, instance: Instance, state: State, reason: str = "") -> None:
        with self._lock:
            instance.state, instance.reason, instance.changed_at = state, reason, time.time()
            self._transitions.append(Transition(instance.changed_at, instance.label, state, reason))
            self._tell(instance)

    def _tell(self, instance: Instance) -> None:
        status = self._status(instance)
        for listener in self._listeners:
            listener(status)

    def _status(self, instance: Instance) -> InstanceStatus:
        with self._lock:
            present = frozenset(worker.device.id for worker in instance.workers)
            missing = instance.devices - present if instance.state in SERVING else frozenset()
            degraded = bool(missing) and instance.state is State.ACTIVE
            return InstanceStatus(
                id=instance.id,
                plugin=instance.plugin,
                version=instance.version,
                generation=instance.generation,
                digest=instance.digest,
                state=State.DEGRADED if degraded else instance.state,
                reason=instance.reason,
                active=self._table.active.get(instance.plugin) is instance,
                leases=instance.leases,
                devices=tuple(sorted(present)),
                missing_devices=tuple(sorted(missing)),
                origin=instance.origin,
                changed_at=instance.changed_at,
            )
