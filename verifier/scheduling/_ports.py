"""What the scheduler asks of the layers it stands on: workers and leases of plugin instances."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Protocol

from verifier.drivers import DeviceInfo
from verifier.manifest import Manifest
from verifier.model import Batch, BatchKey, BatchResult
from verifier.workers import WorkerState

__all__ = ["Device", "Instance", "Lease", "LeaseSource"]


class Instance(Protocol):
    """A loaded plugin."""

    @property
    def id(self) -> int: ...
    @property
    def plugin(self) -> str: ...
    @property
    def manifest(self) -> Manifest: ...
    @property
    def label(self) -> str: ...
    @property
    def workers(self) -> Sequence[Device]:
        """Those on which it may run now; none while its devices restart."""


class Device(Protocol):
    """The parent's side of a worker."""

    @property
    def device(self) -> DeviceInfo: ...
    @property
    def state(self) -> WorkerState: ...

    def room(self) -> int:
        """How many launches it takes now; 0 while it is full or down."""

    def fits(self, items: int, nbytes: int, output_bytes: int = 0) -> bool: ...
    def run(
        self,
        instance_id: int,
        operation: int,
        key: BatchKey,
        parts: Sequence[Batch],
        deadline: float | None,
        *,
        urgent: bool = False,
    ) -> Future[list[BatchResult]]:
        """An `urgent` batch overtakes the others where the device can do several at a time."""


class Lease(Protocol):
    """A hold on one instance: it is not unloaded before `release`."""

    @property
    def instance(self) -> Instance: ...
    @property
    def operation_index(self) -> int: ...
    def release(self) -> None: ...


LeaseSource = Callable[[BatchKey], Lease]
