"""What workers' faults and restarts mean for the instances on them."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from verifier.errors import BackendError, PluginError
from verifier.registry._audit import AuditLog, AuditRecord
from verifier.registry._book import Book
from verifier.registry._faults import FaultCounter
from verifier.registry._fleet import FleetLike, WorkerLike
from verifier.registry._instance import PREPARING, SERVING, Instance, State
from verifier.registry._loader import Loader
from verifier.registry._retirement import Retirement

__all__ = ["Supervision"]


class Supervision:
    """Takes instances off workers that are down, and back on them after they gave the known answers again; takes an
    instance that keeps ending its worker off that device for good."""

    def __init__(
        self,
        book: Book,
        fleet: FleetLike,
        jobs: ThreadPoolExecutor,
        loader: Loader,
        retirement: Retirement,
        audit: AuditLog,
        replace: Callable[[Instance], None],
    ) -> None:
        """`replace` loads an instance's plugin anew, and leaves what fails to the log."""
        self._book = book
        self._fleet = fleet
        self._jobs = jobs
        self._loader = loader
        self._retirement = retirement
        self._audit = audit
        self._replace = replace
        self._faults = FaultCounter(loader.options.quarantine_faults, loader.options.quarantine_window_s)
        # One after the other on each worker: a second load of an instance there would leave the first one's memory.
        self._turns = {worker: threading.Lock() for worker in fleet.workers}
        fleet.on_state(self._changed)
        fleet.on_fault(self._faulted)

    def check_all(self, instance: Instance) -> None:
        """Brings an instance to the workers that came up while it was loaded on the others."""
        for worker in self._fleet.workers:
            if worker.state.value == "up" and worker not in instance.workers:
                self._restore_soon(worker, [instance])

    def _changed(self, worker: WorkerLike) -> None:
        if worker.state.value == "up":
            self._restore_soon(worker, None)
            return
        with self._book.lock:
            for instance in self._book.live():
                if worker in instance.workers:
                    instance.workers = tuple(other for other in instance.workers if other is not worker)
                    self._book.tell(instance)

    def _faulted(self, worker: WorkerLike, instance_ids: Sequence[int], error: Exception) -> None:
        """A fault counts against an instance only where no other may have done it. Where several may, the scheduler
        runs their batches again one at a time, and the next fault tells."""
        for instance_id in instance_ids:
            instance = self._book.get(instance_id)
            if instance is None:
                continue
            if instance.state in PREPARING:
                worker.unload(instance_id)  # its load has failed; the new process must not meet it again
            elif (
                instance.state in SERVING
                and len(instance_ids) == 1
                and self._faults.count((instance_id, worker.device.id))
            ):
                self._quarantine(instance, worker, str(error))

    def _restore_soon(self, worker: WorkerLike, instances: Sequence[Instance] | None) -> None:
        with contextlib.suppress(RuntimeError):  # the registry is closed
            self._jobs.submit(self._restore, worker, instances)

    def _restore(self, worker: WorkerLike, instances: Sequence[Instance] | None) -> None:
        """What serves is tested on a restarted worker before it gets batches there."""
        if instances is None:
            # Those that pin a version, and roll-backs, can wait until the defaults are served.
            instances = sorted(self._book.live(), key=lambda instance: instance.state is not State.ACTIVE)
        with self._turns[worker]:
            for instance in instances:
                if not self._hold(instance, worker):
                    continue
                restarts = worker.restarts
                try:
                    self._bring_back(instance, worker)
                except BackendError:
                    if worker.state.value != "up" or worker.restarts != restarts:
                        return  # it went down again, and will be back
                except PluginError as error:
                    self._quarantine(instance, worker, str(error))
                finally:
                    self._retirement.release(instance)

    def _hold(self, instance: Instance, worker: WorkerLike) -> bool:
        """Takes a lease where the instance is missing on a worker: it must not be freed while it is tested there."""
        with self._book.lock:
            wanted = instance.state in SERVING and worker.device.id in instance.devices
            if not wanted or worker in instance.workers:
                return False
            instance.leases += 1
            return True

    def _bring_back(self, instance: Instance, worker: WorkerLike) -> None:
        restarts = worker.restarts
        if instance.id not in worker.instances:
            self._loader.place(instance, [worker])
        self._loader.test(instance, [worker], brief=True)
        with self._book.lock:
            if instance.state in SERVING and worker.state.value == "up" and worker.restarts == restarts:
                have = (*instance.workers, worker)
                instance.workers = tuple(other for other in self._fleet.workers if other in have)
                self._book.tell(instance)

    def _quarantine(self, instance: Instance, worker: WorkerLike, problem: str) -> None:
        """Takes the instance off the device it faults on; where that was its last, its predecessor comes back.
        Where a provider was at work there the plugin is loaded anew without it."""
        device = worker.device.id
        reason = f"quarantined on {device}: {problem}"
        returned = None
        with self._book.lock:
            if instance.state not in SERVING or device not in instance.devices:
                return
            instance.devices -= {device}
            instance.workers = tuple(other for other in instance.workers if other is not worker)
            if instance.devices:
                instance.reason = reason
                self._book.tell(instance)
            else:
                returned = self._give_up(instance, reason)
        worker.unload(instance.id)
        self._record("quarantine", instance, reason)
        if returned is not None:
            self._record("rollback", returned, reason)
        if device in instance.provided:
            self._loader.refuse(instance, reason)
            with contextlib.suppress(RuntimeError):  # the registry is closed
                self._jobs.submit(self._replace, instance)

    def _give_up(self, instance: Instance, reason: str) -> Instance | None:
        """Under the book's lock. The instance that is active instead, if any."""
        was_active = self._book.table.active.get(instance.plugin) is instance
        previous = self._retirement.previous(instance.plugin)
        self._retirement.retire(instance, State.FAILED, reason)
        if not was_active or previous is None or previous is instance:
            return None
        self._book.table = self._book.table.with_active(previous)
        previous.retire_at = None
        self._book.set(previous, State.ACTIVE, f"{instance.label} was quarantined")
        return previous

    def _record(self, operation: str, instance: Instance, detail: str) -> None:
        self._audit.note(
            AuditRecord(
                time.time(), "daemon", operation, instance.plugin, instance.label, instance.digest, "OK", detail
            )
        )
