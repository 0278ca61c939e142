"""The list of all instances, what became of them, and who wants to know."""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from verifier.errors import NotFoundError
from verifier.manifest import Choice
from verifier.registry._instance import GONE, SERVING, Instance, InstanceStatus, State
from verifier.registry._source import PluginSource
from verifier.registry._table import Table

__all__ = ["Book", "Transition"]

MAX_GONE = 200  # instances that are gone and still listed
MAX_TRANSITIONS = 10_000


@dataclass(frozen=True, slots=True)
class Transition:
    """One step of an instance's life. `at` is seconds since the epoch."""

    at: float
    label: str
    state: State
    reason: str


class Book:
    """Instances under one lock, which nobody holds while computing. `table` says which of them serve."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.table = Table()
        self._ids = itertools.count(1)
        self._instances: dict[int, Instance] = {}
        self._transitions: deque[Transition] = deque(maxlen=MAX_TRANSITIONS)
        self._listeners: list[Callable[[InstanceStatus], None]] = []

    def add(self, source: PluginSource, choice: Choice | None = None) -> Instance:
        """A new instance of a plugin, with a number never used before."""
        with self.lock:
            instance = Instance(next(self._ids), source.manifest, source.digest, source.origin, choice=choice)
            self._instances[instance.id] = instance
            gone = [other.id for other in self._instances.values() if other.gone.is_set()]
            for instance_id in gone[:-MAX_GONE]:
                del self._instances[instance_id]
            return instance

    def get(self, instance_id: int) -> Instance | None:
        """The instance of that number, or None."""
        with self.lock:
            return self._instances.get(instance_id)

    def live(self) -> list[Instance]:
        """Instances that are not gone, oldest first."""
        with self.lock:
            return [instance for instance in self._instances.values() if instance.state not in GONE]

    def matching(self, label: str) -> list[Instance]:
        """Instances by name, name@version or name@version#generation, oldest first. Raises NotFoundError."""
        with self.lock:
            found = [
                instance
                for instance in self._instances.values()
                if label in (instance.plugin, instance.manifest.label, instance.label)
            ]
        if not found:
            raise NotFoundError("plugin", f"{label} is not known here; served are {self.table.plugins()}")
        return found

    def set(self, instance: Instance, state: State, reason: str = "") -> None:
        """Moves an instance to a state."""
        with self.lock:
            instance.state, instance.reason, instance.changed_at = state, reason, time.time()
            self._transitions.append(Transition(instance.changed_at, instance.label, state, reason))
            self.tell(instance)

    def tell(self, instance: Instance) -> None:
        """Tells the listeners of a change."""
        with self.lock:
            status = self.status(instance)
            for listener in self._listeners:
                listener(status)

    def subscribe(self, listener: Callable[[InstanceStatus], None]) -> None:
        """Adds a listener."""
        with self.lock:
            self._listeners.append(listener)

    def statuses(self) -> list[InstanceStatus]:
        """Of every instance, oldest first."""
        with self.lock:
            return [self.status(instance) for instance in self._instances.values()]

    def transitions(self, plugin: str) -> list[Transition]:
        """Oldest first; of one plugin where `plugin` is its name or name@version."""
        with self.lock:
            return [t for t in self._transitions if not plugin or t.label.startswith((f"{plugin}@", f"{plugin}#"))]

    def status(self, instance: Instance) -> InstanceStatus:
        """What the index says of an instance."""
        with self.lock:
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
                active=self.table.active.get(instance.plugin) is instance,
                leases=instance.leases,
                devices=tuple(sorted(present)),
                missing_devices=tuple(sorted(missing)),
                origin=instance.origin,
                changed_at=instance.changed_at,
                builds={device: build.choice.text for device, build in sorted(instance.builds.items())},
            )
