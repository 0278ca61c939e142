"""The registry: which instance serves, and how one replaces another under load."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import structlog

from verifier.errors import (
    BackendError,
    ConflictError,
    NotFoundError,
    PluginError,
    ProviderError,
    VerifierError,
)
from verifier.manifest import Choice
from verifier.model import BatchKey
from verifier.registry._audit import AuditLog, AuditRecord
from verifier.registry._book import Book, Transition
from verifier.registry._fleet import FleetLike
from verifier.registry._folders import find_source
from verifier.registry._images import Build
from verifier.registry._instance import SERVING, Instance, InstanceStatus, Lease, Resolved, State
from verifier.registry._loader import Loader
from verifier.registry._options import RegistryOptions
from verifier.registry._retirement import Retirement
from verifier.registry._source import PluginSource
from verifier.registry._supervision import Supervision
from verifier.registry._tickets import Ticket, Tickets

__all__ = ["Registry"]

_log = structlog.get_logger(__name__)

RESTART_S = 10.0  # how long a load waits for devices that a provider's build has brought down


class Registry:
    """Plugins and their instances.

    Thread-safe. `lease`, `resolve` and the listings never wait behind a load: what they read is replaced by one
    assignment under a lock that nobody holds while computing. Loads, unloads and roll-backs block their caller.
    `actor` names who asked, for the audit.
    """

    def __init__(self, fleet: FleetLike, options: RegistryOptions | None = None) -> None:
        """Raises ConfigError where a lock file, a key or the audit file cannot be used."""
        self.options = options or RegistryOptions()
        self._fleet = fleet
        self._loader = Loader(self.options)
        self._audit = AuditLog(self.options.audit)
        self._book = Book()
        self._tickets = Tickets()
        self._jobs = ThreadPoolExecutor(4, "registry")
        self._retirement = Retirement(self._book, fleet, self._jobs, self.options)
        self._supervision = Supervision(
            self._book, fleet, self._jobs, self._loader, self._retirement, self._audit, self._replace
        )

    # What serves

    def resolve(self, operation: str, algorithm: str | None, plugin: str = "") -> Resolved:
        """Which plugin serves an operation for an algorithm.

        `plugin` asks for one by "name" or pins "name@version". `algorithm` may be None where a plugin is named that
        has the operation for one algorithm only. Raises NotServedError naming what is served.
        """
        table = self._book.table
        if not plugin:
            return table.route(operation, algorithm or "none")
        name, _, version = plugin.partition("@")
        return table.find(name, version or None).resolve(operation, algorithm, version or None)

    def lease(self, key: BatchKey) -> Lease:
        """A hold on the instance that serves `key` now. Raises NotServedError naming what is served."""
        with self._book.lock:
            instance = self._book.table.find(key.plugin, key.version)
            index = instance.operation_index(key.operation)
            instance.check_parameters(index, key.parameters)
            instance.leases += 1
            return Lease(instance, index, self._retirement.release)

    def active(self) -> list[Instance]:
        """The instances that new batches go to by default, one a plugin."""
        return list(self._book.table.active.values())

    def index(self) -> list[InstanceStatus]:
        """Every instance, also failed and unloaded ones, oldest first."""
        return self._book.statuses()

    def history(self, plugin: str = "") -> list[Transition]:
        """What became of every instance, oldest first; of one plugin where `plugin` is its name or name@version."""
        return self._book.transitions(plugin)

    def audit(self, limit: int = 1000) -> list[AuditRecord]:
        """The newest admin operations, oldest first."""
        return self._audit.records(limit)

    def denied(self, actor: str, method: str, why: str) -> None:
        """Records a call that its caller may not make."""
        self._audit.note(AuditRecord(time.time(), actor, method, "", outcome="DeniedError", detail=why))

    def subscribe(self, listener: Callable[[InstanceStatus], None]) -> None:
        """Calls `listener` after every change of an instance. It must return at once and not call the registry."""
        self._book.subscribe(listener)

    # Operations

    def load(
        self,
        what: str | Path | PluginSource,
        *,
        variant: str = "",
        tunables: Mapping[str, int | str] | None = None,
        activate: bool = True,
        force: bool = False,
        actor: str = "daemon",
    ) -> InstanceStatus:
        """Brings a plugin to service: a name or name@version of the plugin folders, or a path to a folder or bundle.

        `variant` ("default": none) and `tunables` are names and values of the manifest; where neither is given the
        registry's options decide.

        Blocks until every device gave every known answer. A failed load changes nothing. Where the same bytes serve
        already, built with the same choice, they are only activated, unless `force`. Without `activate` it serves
        only those who pin its version. Raises TrustError, ManifestError (also for an unknown variant or tunable),
        BuildError, DeviceUnavailableError, SelfTestError, BackendError, NotFoundError, or ConflictError where a newer
        operation has won.
        """
        target = what.label if isinstance(what, PluginSource) else str(what)
        with self._audit.operation(actor, "load", target) as record:
            source = what if isinstance(what, PluginSource) else find_source(what, self.options.folders)
            record.label, record.digest = source.label, source.digest
            choice = source.manifest.choice(variant, tunables) if variant or tunables else None
            return self._load(source, choice, activate, force, record)

    def unload(
        self, label: str, *, wait: bool = False, timeout_s: float | None = None, actor: str = "daemon"
    ) -> InstanceStatus:
        """Takes instances out: "name" (all of it), "name@version" or "name@version#generation".

        New batches no longer get it; once its last lease is back its memory is freed. With `wait` it returns after
        that, or as DRAINING_STUCK when `timeout_s` (default: the options') has passed. Unloading what is unloaded
        is no error. A load of the same version that is under way is given up. Raises NotFoundError.
        """
        limit = self.options.drain_timeout_s if timeout_s is None else timeout_s
        with self._audit.operation(actor, "unload", label) as record:
            instances = self._book.matching(label)
            scopes: set[object] = {(instance.plugin, instance.version) for instance in instances}
            if "@" not in label:
                scopes.add(label)  # all of the plugin: a load that would activate another version is given up too
            self._tickets.take(f"unload of {label}", *scopes)
            until = time.monotonic() + limit
            for instance in instances:
                self._retirement.drain(instance, limit)
            if wait:
                for instance in instances:
                    self._retirement.wait(instance, until)
            record.label, record.digest = instances[-1].label, instances[-1].digest
            return self._book.status(instances[-1])

    def reload(self, label: str, *, actor: str = "daemon") -> InstanceStatus:
        """Loads a served plugin, "name" or "name@version", again from where it came from. Raises as `load`."""
        with self._audit.operation(actor, "reload", label) as record:
            name, _, version = label.partition("@")
            instance = self._book.table.find(name, version or None)
            activate = self._book.table.active.get(name) is instance
            source = find_source(Path(instance.origin), self.options.folders)
            record.label, record.digest = source.label, source.digest
            return self._load(source, instance.choice, activate, True, record)

    def activate(self, label: str, *, actor: str = "daemon") -> InstanceStatus:
        """Makes a loaded instance its plugin's default: "name@version" or "name@version#generation".

        Raises NotFoundError, or ConflictError where a newer operation has won.
        """
        with self._audit.operation(actor, "activate", label) as record:
            serving = [instance for instance in self._book.matching(label) if instance.state in SERVING]
            if not serving:
                raise NotFoundError("plugin", f"{label} is not loaded")
            return self._switch(serving[-1], f"activation of {label}", record)

    def rollback(self, plugin: str, *, actor: str = "daemon") -> InstanceStatus:
        """Returns to the instance that the active one replaced. Raises NotFoundError where none is at hand."""
        with self._audit.operation(actor, "rollback", plugin) as record:
            previous = self._retirement.previous(plugin)
            if previous is None:
                raise NotFoundError("plugin", f"{plugin}: no previous instance is at hand")
            return self._switch(previous, f"roll-back of {plugin}", record)

    def confirm(self, plugin: str, *, actor: str = "daemon") -> InstanceStatus:
        """Says that the active instance stays: what it replaced is drained now. Raises NotFoundError."""
        with self._audit.operation(actor, "confirm", plugin) as record:
            active = self._book.table.active.get(plugin)
            if active is None:
                raise NotFoundError("plugin", f"{plugin} has no active instance")
            record.label, record.digest = active.label, active.digest
            previous = self._retirement.previous(plugin)
            if previous is not None:
                self._retirement.drain(previous, self.options.drain_timeout_s)
            return self._book.status(active)

    def close(self) -> None:
        """Stops the registry's threads. The workers' instances end with the workers."""
        self._retirement.close()
        self._jobs.shutdown(cancel_futures=True)
        self._audit.close()

    # Steps

    def _load(
        self, source: PluginSource, choice: Choice | None, activate: bool, force: bool, record: AuditRecord
    ) -> InstanceStatus:
        scopes: list[object] = [(source.name, source.version)]
        if activate:
            scopes.append(source.name)
        ticket = self._tickets.take(f"load of {source.label}", *scopes)
        present = self._book.table.pinned.get((source.name, source.version))
        if present is not None and not force:
            return self._again(present, source, choice, ticket, activate)
        while True:
            instance = self._book.add(source, choice)
            record.label = instance.label
            try:
                self._prepare(instance, source, ticket)
                self._publish(instance, ticket, activate)
                return self._book.status(instance)
            except BaseException as error:
                self._retirement.abandon(instance, str(error) or repr(error))
                # A provider is an extra: where one that nobody asked for fails, the plugin's own source serves.
                if not isinstance(error, ProviderError) or not instance.provided:
                    raise
                self._loader.refuse(instance, str(error))
            self._await_devices()

    def _replace(self, instance: Instance) -> None:
        """Loads what an instance was loaded from, in its place."""
        self._await_devices()
        try:
            with self._audit.operation("daemon", "reload", instance.label) as record:
                source = find_source(Path(instance.origin), self.options.folders)
                active = self._book.table.active.get(instance.plugin)
                record.label, record.digest = source.label, source.digest
                self._load(source, instance.choice, active in (None, instance), True, record)
        except VerifierError as error:
            _log.error("not_replaced", plugin=instance.label, error=str(error))

    def _await_devices(self) -> None:
        """Devices that a provider's build has brought down come back, within limits."""
        until = time.monotonic() + RESTART_S
        while any(w.state.value in ("down", "starting") for w in self._fleet.workers) and time.monotonic() < until:
            time.sleep(0.02)

    def _again(
        self, present: Instance, source: PluginSource, choice: Choice | None, ticket: Ticket, activate: bool
    ) -> InstanceStatus:
        if present.digest != source.digest:
            raise PluginError(
                f"{source.label} is loaded with digest {present.digest}, this one has {source.digest}: "
                "give it another version, or load it with force"
            )
        if choice is not None and present.choice != choice:
            have = ", ".join(sorted({build.choice.text for build in present.builds.values()}))
            wanted = {Build.of(source.manifest, build.target, choice) for build in present.builds.values()}
            if wanted != set(present.builds.values()):
                raise PluginError(
                    f"{present.label} serves as {have}, not as {choice.text}: load it with force to replace it"
                )
        if activate:
            self._publish(present, ticket, True)
        return self._book.status(present)

    def _prepare(self, instance: Instance, source: PluginSource, ticket: Ticket) -> None:
        self._book.set(instance, State.VERIFYING)
        others = [other for other in self._book.live() if other is not instance]
        self._loader.verify(instance, source, others)
        every = list(self._fleet.workers)
        workers = [worker for worker in every if worker.state.value == "up"]
        if not workers:
            raise BackendError(f"{instance.label}: no device is up")
        self._loader.build(instance, source, every)
        self._loader.check_budget(instance, workers, others)
        ticket.check()
        self._book.set(instance, State.LOADING)
        with self._book.lock:
            instance.devices = frozenset(worker.device.id for worker in every)
        restarts = [worker.restarts for worker in workers]
        self._loader.place(instance, workers)
        ticket.check()
        self._book.set(instance, State.SELFTEST)
        self._loader.test(instance, workers)
        ticket.check()
        with self._book.lock:
            # A process that took over meanwhile has not given the answers itself: it is asked after the swap.
            instance.workers = tuple(
                worker
                for worker, before in zip(workers, restarts, strict=True)
                if worker.state.value == "up" and worker.restarts == before
            )
        self._book.set(instance, State.WARM)

    def _switch(self, instance: Instance, what: str, record: AuditRecord) -> InstanceStatus:
        record.label, record.digest = instance.label, instance.digest
        self._publish(instance, self._tickets.take(what, instance.plugin), True)
        return self._book.status(instance)

    def _publish(self, instance: Instance, ticket: Ticket, activate: bool) -> None:
        """The swap: one assignment. What it replaces is kept for a roll-back, or drained."""
        book = self._book
        with book.lock:
            ticket.check()
            if instance.state not in SERVING:
                raise ConflictError(f"{instance.label} is {instance.state}")
            before = book.table.active.get(instance.plugin)
            same_version = book.table.pinned.get((instance.plugin, instance.version))
            book.table = book.table.with_active(instance) if activate else book.table.with_warm(instance)
            instance.retire_at = None
            if activate:
                book.set(instance, State.ACTIVE)
            leaving = []
            if activate and before is not None and before is not instance:
                leaving.append(self._retirement.keep(before))
            if same_version is not before and same_version is not instance:
                leaving.append(same_version)  # no pin leads to it any more
        for other in leaving:
            if other is not None:
                self._retirement.drain(other, self.options.drain_timeout_s)
        self._supervision.check_all(instance)
