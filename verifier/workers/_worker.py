"""The parent's side of one device."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from enum import Enum

from verifier.drivers._driver import DeviceInfo, Image
from verifier.manifest import Manifest
from verifier.model import Batch, BatchKey, BatchResult
from verifier.workers._options import WorkerOptions

__all__ = ["Worker", "WorkerState"]


class WorkerState(Enum):
    """Whether a device takes batches. DOWN has a reason and is followed by STARTING; STOPPED is the end."""

    STARTING = "starting"
    UP = "up"
    DOWN = "down"
    STOPPED = "stopped"


class Worker:
    """One device. It lives as long as the daemon; the process behind it is replaced when it fails."""

    device_id: str
    device: DeviceInfo  # known once `start` has returned
    state: WorkerState
    reason: str  # why it is DOWN
    on_room: Callable[[], None] | None  # called by another thread when room() has risen; must not block
    restarts: int
    errors: Mapping[str, int]  # by kind: died, sticky, watchdog, start, load, batch

    def __init__(self, device_id: str, options: WorkerOptions | None = None) -> None: ...

    def start(self) -> None:
        """Starts the process and waits until it is UP. Raises DeviceUnavailableError, BackendError."""
        raise NotImplementedError

    @property
    def instances(self) -> frozenset[int]:
        """Ids of the instances that are loaded here (or will be again, when it is UP)."""
        raise NotImplementedError

    def load(self, instance_id: int, manifest: Manifest, image: Image) -> None:
        """Loads an instance and returns when it is warm. Raises PluginError, BackendError."""
        raise NotImplementedError

    def unload(self, instance_id: int) -> None:
        """Waits for the instance's batches, then frees it. An unknown id is no error. Raises BackendError."""
        raise NotImplementedError

    def fits(self, items: int, nbytes: int, output_bytes: int = 0) -> bool:
        """Whether a batch of `items` items with `nbytes` bytes of columns fits; `output_bytes` are an item's."""
        raise NotImplementedError

    def run(
        self,
        instance_id: int,
        operation_index: int,
        key: BatchKey,
        parts: Sequence[Batch],
        deadline: float | None = None,
    ) -> Future[list[BatchResult]]:
        """Runs `parts` as one batch; the results come one a part, in order.

        Waits where there is no room. `deadline` is a time.monotonic(): a batch not begun by then fails with
        DeadlineError. Everything that goes wrong is in the future: BackendError (`sticky`: run it elsewhere),
        RequestError where it does not fit. `served_by` is left to the caller.
        """
        raise NotImplementedError

    def room(self) -> int:
        """How many batches `run` takes without waiting; 0 unless UP."""
        raise NotImplementedError

    def close(self) -> None:
        """Refuses new batches, waits for those in flight, ends the process. Bounded in time; idempotent."""
        raise NotImplementedError
