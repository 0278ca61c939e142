"""All workers of a daemon."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from verifier.workers._options import WorkerOptions
from verifier.workers._worker import Worker

__all__ = ["FaultListener", "Fleet", "StateListener"]

StateListener = Callable[[Worker], None]
FaultListener = Callable[[Worker, Sequence[int], Exception], None]


class Fleet:
    """The workers of `device_ids`, in that order. `cpu` has all cores; `cpu:0`, `cpu:1`, ... share them."""

    def __init__(
        self,
        device_ids: Sequence[str],
        options: WorkerOptions | None = None,
        per_device: Mapping[str, WorkerOptions] | None = None,
    ) -> None: ...

    workers: tuple[Worker, ...]

    def __getitem__(self, device_id: str) -> Worker:
        """The worker of that device. Raises KeyError."""
        raise NotImplementedError

    def on_state(self, listener: StateListener) -> None:
        """`listener(worker)` is called after every change of a worker's state; it must not block."""
        raise NotImplementedError

    def on_fault(self, listener: FaultListener) -> None:
        """`listener(worker, instance_ids, error)`: a process was lost while these instances ran, the likeliest first.

        Called before the process is replaced: an instance that the listener unloads is not loaded again.
        """
        raise NotImplementedError

    def start(self) -> None:
        """Starts all at once and waits until each is UP. Raises what the first that failed raised."""
        raise NotImplementedError

    def close(self) -> None:
        """Closes all at once, bounded in time."""
        raise NotImplementedError
