"""What the registry needs of the workers; verifier.workers has it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Protocol

from verifier.drivers import DeviceInfo, Image
from verifier.manifest import Manifest
from verifier.model import Batch, BatchKey, BatchResult

__all__ = ["FleetLike", "WorkerLike"]


class WorkerLike(Protocol):
    """One device, as verifier.workers.Worker. It outlives the processes behind it."""

    device: DeviceInfo
    state: Any  # a WorkerState
    restarts: int  # processes so far that took over from another

    @property
    def instances(self) -> frozenset[int]: ...
    def load(self, instance_id: int, manifest: Manifest, image: Image) -> None: ...
    def unload(self, instance_id: int) -> None: ...
    def fits(self, items: int, nbytes: int, output_bytes: int = 0) -> bool: ...
    def run(
        self,
        instance_id: int,
        operation_index: int,
        key: BatchKey,
        parts: Sequence[Batch],
        deadline: float | None = None,
    ) -> Future[list[BatchResult]]: ...


class FleetLike(Protocol):
    """All workers, as verifier.workers.Fleet."""

    @property
    def workers(self) -> Sequence[Any]: ...
    def on_state(self, listener: Callable[[Any], None]) -> None: ...
    def on_fault(self, listener: Callable[[Any, Sequence[int], Exception], None]) -> None: ...
