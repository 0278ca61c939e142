"""All workers of a daemon."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from verifier.errors import ConfigError, VerifierError
from verifier.workers._options import WorkerOptions
from verifier.workers._worker import FaultListener, StateListener, Worker

__all__ = ["Fleet"]


class Fleet:
    """The workers of `device_ids`, in that order. `cpu` has all cores; `cpu:0`, `cpu:1`, ... share them.

    Raises ConfigError where a device is named twice, or the CPU both as a whole and in shares.
    """

    def __init__(
        self,
        device_ids: Sequence[str],
        options: WorkerOptions | None = None,
        per_device: Mapping[str, WorkerOptions] | None = None,
    ) -> None:
        shares = sum(device_id.startswith("cpu:") for device_id in device_ids)
        if len(set(device_ids)) < len(device_ids):
            raise ConfigError(f"devices: {', '.join(device_ids)}: a device is named twice")
        if shares and "cpu" in device_ids:
            raise ConfigError("devices: cpu has all cores, so it cannot stand beside cpu:0")
        chosen = {
            device_id: (per_device or {}).get(device_id, options or WorkerOptions()) for device_id in device_ids
        }
        self.workers = tuple(
            Worker(device_id, _with_share(device_id, chosen[device_id], shares)) for device_id in device_ids
        )
        self._by_id = {worker.device_id: worker for worker in self.workers}
        self._state_listeners: list[StateListener] = []
        self._fault_listeners: list[FaultListener] = []
        for worker in self.workers:
            worker.on_state = self._state_changed
            worker.on_fault = self._fault

    def __getitem__(self, device_id: str) -> Worker:
        """The worker of that device. Raises KeyError."""
        return self._by_id[device_id]

    def on_state(self, listener: StateListener) -> None:
        """`listener(worker)` is called after every change of a worker's state; it must not block."""
        self._state_listeners.append(listener)

    def on_fault(self, listener: FaultListener) -> None:
        """`listener(worker, instance_ids, error)`: a process was lost, and one of these did it, the likeliest first.

        Also called where an instance could not be loaded again. The process is replaced afterwards: an instance
        that the listener unloads is not loaded again.
        """
        self._fault_listeners.append(listener)

    def start(self) -> None:
        """Starts all at once and waits until each is UP. Closes all where one fails, and raises what it raised."""
        try:
            _all(self.workers, Worker.start)
        except VerifierError:
            self.close()
            raise

    def unmap(self, number: int) -> None:
        """Has every worker let go of a region that no batch uses any more."""
        for worker in self.workers:
            worker.unmap(number)

    def close(self) -> None:
        """Closes all at once, bounded in time."""
        _all(self.workers, Worker.close)

    def _state_changed(self, worker: Worker) -> None:
        for listener in self._state_listeners:
            listener(worker)

    def _fault(self, worker: Worker, instance_ids: Sequence[int], error: VerifierError) -> None:
        for listener in self._fault_listeners:
            listener(worker, instance_ids, error)


def _with_share(device_id: str, options: WorkerOptions, shares: int) -> WorkerOptions:
    if not device_id.startswith("cpu:") or "threads" in options.driver:
        return options
    threads = max(1, len(os.sched_getaffinity(0)) // shares)
    return replace(options, driver={**options.driver, "threads": threads})


def _all(workers: Sequence[Worker], action: Callable[[Worker], None]) -> None:
    if not workers:
        return
    with ThreadPoolExecutor(len(workers)) as pool:
        for future in [pool.submit(action, worker) for worker in workers]:
            future.result()
