"""One loaded build of a plugin, and a batch's hold on it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import TracebackType
from typing import Any

from verifier.drivers import Image, PluginInfo
from verifier.errors import NotServedError
from verifier.manifest import Choice, Manifest, Operation
from verifier.model import BatchKey
from verifier.registry._answers import Group
from verifier.registry._images import Build
from verifier.registry._parameters import parameter_number

__all__ = ["Instance", "InstanceStatus", "Lease", "Resolved", "State"]


class State(StrEnum):
    """Where an instance is in its life.

    ABSENT → VERIFYING → LOADING → SELFTEST → WARM → ACTIVE → DRAINING → UNLOADED, or FAILED from anywhere before
    ACTIVE and by quarantine after it. WARM serves callers that pin its version; ACTIVE is its plugin's default.
    DEGRADED is ACTIVE with a device missing. DRAINING_STUCK is DRAINING past its time: never freed by force.
    """

    ABSENT = "ABSENT"
    VERIFYING = "VERIFYING"
    LOADING = "LOADING"
    SELFTEST = "SELFTEST"
    WARM = "WARM"
    ACTIVE = "ACTIVE"
    DEGRADED = "DEGRADED"
    DRAINING = "DRAINING"
    DRAINING_STUCK = "DRAINING_STUCK"
    UNLOADED = "UNLOADED"
    FAILED = "FAILED"


PREPARING = frozenset({State.VERIFYING, State.LOADING, State.SELFTEST})
SERVING = frozenset({State.WARM, State.ACTIVE, State.DEGRADED})
LEAVING = frozenset({State.DRAINING, State.DRAINING_STUCK, State.FAILED})
GONE = frozenset({State.UNLOADED, State.FAILED})


@dataclass(frozen=True, slots=True)
class InstanceStatus:
    """What the index says of an instance. Times are seconds since the epoch."""

    id: int
    plugin: str
    version: str
    generation: int
    digest: str
    state: State
    reason: str
    active: bool
    leases: int
    devices: tuple[str, ...]
    missing_devices: tuple[str, ...]
    origin: str
    changed_at: float
    builds: dict[str, str] = field(default_factory=dict)  # device id to variant and tunables

    @property
    def label(self) -> str:
        """plugin@version#generation."""
        return f"{self.plugin}@{self.version}#{self.generation}"


@dataclass(eq=False)
class Instance:
    """One loaded build of a plugin version. Only the registry changes it, under its lock."""

    id: int
    manifest: Manifest
    digest: str
    origin: str = ""
    state: State = State.ABSENT
    reason: str = ""
    workers: tuple[Any, ...] = ()
    leases: int = 0
    devices: frozenset[str] = frozenset()  # where it belongs; those missing in `workers` are down
    retire_at: float | None = None  # monotonic: when a superseded instance is drained
    stuck_at: float | None = None  # monotonic: when draining counts as stuck
    choice: Choice | None = None  # what the load asked for; None: the daemon's settings decide
    builds: dict[str, Build] = field(default_factory=dict, repr=False)  # by device id: what is chosen there
    provided: dict[str, str] = field(default_factory=dict, repr=False)  # by device id: a provider's variant, unasked
    images: dict[Build, Image] = field(default_factory=dict, repr=False)  # for workers that restart
    infos: dict[Build, PluginInfo] = field(default_factory=dict, repr=False)
    answers: tuple[Group, ...] = field(default=(), repr=False)
    parameters: tuple[dict[str, frozenset[int]], ...] = field(default=(), repr=False)
    changed_at: float = field(default_factory=time.time)
    gone: threading.Event = field(default_factory=threading.Event, repr=False)

    @property
    def plugin(self) -> str:
        """The plugin's name."""
        return self.manifest.name

    @property
    def version(self) -> str:
        """The plugin's version."""
        return self.manifest.version

    @property
    def generation(self) -> int:
        """Rises with every load of any plugin, so a label names one build for the daemon's life."""
        return self.id

    @property
    def label(self) -> str:
        """plugin@version#generation."""
        return f"{self.manifest.label}#{self.id}"

    def operation_index(self, operation_id: str) -> int:
        """Where the operation stands in the manifest. Raises NotServedError naming what the plugin has."""
        index = self.manifest.index(operation_id)
        if index is None:
            have = ", ".join(operation.id for operation in self.manifest.operations)
            raise NotServedError("scheme", f"{self.label} does not serve {operation_id}; it has {have}")
        return index

    def resolve(self, operation: str, algorithm: str | None, version: str | None) -> Resolved:
        """The operation of this instance; `algorithm` None where it has the operation for one only.
        Raises NotServedError."""
        if algorithm is None:
            algorithms = [o.algorithm for o in self.manifest.operations if o.name == operation]
            if len(algorithms) > 1:
                raise NotServedError(
                    "scheme.algorithm", f"{self.label} serves {operation} for {', '.join(algorithms)}: name one"
                )
            algorithm = algorithms[0] if algorithms else "anything"
        return Resolved(self, version, self.operation_index(f"{operation}/{algorithm}"))

    def check_parameters(self, index: int, numbers: tuple[int, ...]) -> None:
        """Raises NotServedError naming the parameter where operation `index` does not serve these values."""
        allowed = self.parameters[index]
        if len(numbers) != len(allowed):
            raise NotServedError("scheme", f"{len(numbers)} parameters, {self.label} takes {len(allowed)}")
        for number, (name, values) in zip(numbers, allowed.items(), strict=True):
            if number not in values:
                served = ", ".join(str(value) for value in self.manifest.operations[index].parameters[name])
                raise NotServedError(f"scheme.{name}", f"{number} is not served by {self.label}, which has {served}")


@dataclass(frozen=True, slots=True)
class Resolved:
    """Which plugin serves an operation, and how its batches are keyed."""

    instance: Instance
    version: str | None  # the version that the caller pinned, None: the active one
    index: int  # of the operation in the manifest

    @property
    def operation(self) -> Operation:
        """The manifest's operation: its columns, outputs and parameters."""
        return self.instance.manifest.operations[self.index]

    def key(self, parameters: Mapping[str, int], constant: bytes = b"") -> BatchKey:
        """The key of a batch with these parameters, numbers of the contract's enums. One that is not given takes the
        manifest's first value. Raises NotServedError naming the parameter and what the plugin serves."""
        operation = self.operation
        for name in parameters:
            if name not in operation.parameters:
                raise NotServedError(f"scheme.{name}", f"{self.instance.plugin} has no such parameter")
        numbers = tuple(
            parameters[name] if name in parameters else parameter_number(name, values[0])
            for name, values in operation.parameters.items()
        )
        self.instance.check_parameters(self.index, numbers)
        return BatchKey(self.instance.plugin, operation.id, numbers, constant, self.version)


class Lease:
    """A batch's hold on exactly one instance. Release it once, or leave its `with` block."""

    __slots__ = ("_release", "instance", "operation_index", "workers")

    def __init__(self, instance: Instance, operation_index: int, release: Callable[[Instance], None]) -> None:
        self.instance = instance
        self.operation_index = operation_index
        self.workers: tuple[Any, ...] = instance.workers  # on which it may run; may be empty while devices restart
        self._release: Callable[[Instance], None] | None = release

    def release(self) -> None:
        """Gives the hold back. Idempotent."""
        release, self._release = self._release, None
        if release is not None:
            release(self.instance)

    def __enter__(self) -> Lease:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
