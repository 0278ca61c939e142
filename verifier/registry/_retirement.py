"""How an instance leaves: superseded, drained of its leases, freed."""

from __future__ import annotations

import contextlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from verifier.errors import BackendError
from verifier.registry._book import Book
from verifier.registry._fleet import FleetLike
from verifier.registry._instance import GONE, LEAVING, SERVING, Instance, State
from verifier.registry._options import RegistryOptions

__all__ = ["Retirement"]

TICK_S = 0.1


class Retirement:
    """Drains and frees instances. Nothing is freed while a lease is out, however long that takes."""

    def __init__(self, book: Book, fleet: FleetLike, jobs: ThreadPoolExecutor, options: RegistryOptions) -> None:
        self._book = book
        self._fleet = fleet
        self._jobs = jobs
        self._options = options
        self._previous: dict[str, Instance] = {}  # by plugin: what a roll-back returns to
        self._closing = threading.Event()
        self._keeper = threading.Thread(target=self._keep, name="registry-keeper", daemon=True)
        self._keeper.start()

    def previous(self, plugin: str) -> Instance | None:
        """What a roll-back of the plugin returns to."""
        with self._book.lock:
            return self._previous.get(plugin)

    def keep(self, instance: Instance) -> Instance | None:
        """Keeps a superseded instance at hand for a while; the one that was kept until now is returned, to be
        drained. Under the book's lock."""
        kept = self._previous.get(instance.plugin)
        self._previous[instance.plugin] = instance
        instance.retire_at = time.monotonic() + self._options.keep_previous_s
        self._book.set(instance, State.WARM)
        active = self._book.table.active.get(instance.plugin)
        return None if kept is instance or kept is active else kept

    def drain(self, instance: Instance, timeout_s: float) -> None:
        """No new leases; it is freed when the last is back, and counts as stuck after `timeout_s`. Idempotent."""
        with self._book.lock:
            if instance.state in SERVING:
                instance.stuck_at = time.monotonic() + timeout_s
                self.retire(instance, State.DRAINING, "")

    def abandon(self, instance: Instance, reason: str) -> None:
        """A failed load: nothing of it stays."""
        with self._book.lock:
            if instance.state not in GONE and instance.state not in LEAVING:
                self.retire(instance, State.FAILED, reason)

    def retire(self, instance: Instance, state: State, reason: str) -> None:
        """Takes it from the table, to be freed when its last lease is back. Under the book's lock."""
        self._book.table = self._book.table.without(instance)
        if self._previous.get(instance.plugin) is instance:
            del self._previous[instance.plugin]
        self._book.set(instance, state, reason)
        if instance.leases == 0:
            self._free_soon(instance)

    def release(self, instance: Instance) -> None:
        """A lease is back."""
        with self._book.lock:
            instance.leases -= 1
            if instance.leases == 0 and instance.state in LEAVING:
                self._free_soon(instance)

    def wait(self, instance: Instance, until: float) -> None:
        """Waits until it is freed or the monotonic time has come; then it counts as stuck."""
        if not instance.gone.wait(max(0.0, until - time.monotonic())):
            with self._book.lock:
                instance.stuck_at = until
                self._mark_stuck(instance, until)

    def close(self) -> None:
        """Stops the keeper."""
        self._closing.set()
        self._keeper.join()

    def _free_soon(self, instance: Instance) -> None:
        with contextlib.suppress(RuntimeError):  # the registry is closed: the workers' end frees everything
            self._jobs.submit(self._free, instance)

    def _free(self, instance: Instance) -> None:
        for worker in self._fleet.workers:
            # A worker that fails at it is being replaced, and comes back without the instance.
            with contextlib.suppress(BackendError):
                worker.unload(instance.id)
        with self._book.lock:
            # It stays in the index; what is large of it does not.
            instance.workers, instance.images, instance.infos = (), {}, {}
            instance.answers, instance.parameters = (), ()
            if instance.state is not State.FAILED:
                self._book.set(instance, State.UNLOADED)
            instance.gone.set()

    def _keep(self) -> None:
        """Lets go of superseded instances in time, and notes which drain too long."""
        while not self._closing.wait(TICK_S):
            now = time.monotonic()
            for instance in self._book.live():
                if instance.state is State.WARM and instance.retire_at is not None and now >= instance.retire_at:
                    self.drain(instance, self._options.drain_timeout_s)
                self._mark_stuck(instance, now)

    def _mark_stuck(self, instance: Instance, now: float) -> None:
        with self._book.lock:
            if instance.state is State.DRAINING and instance.stuck_at is not None and now >= instance.stuck_at:
                self._book.set(instance, State.DRAINING_STUCK, f"leases still out: {instance.leases}")
