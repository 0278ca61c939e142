"""This machine's devices and plugins without a listener: batches go straight to the scheduler."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

import structlog

from node_adapter.client._columns import Column
from node_adapter.ledger._calls import Call
from node_adapter.ledger._outcome import first_line
from node_adapter.ledger._requests import CALLER, MAX_BYTES, MAX_ITEMS, columnar_request
from verifier.api import Operations, Pending, RefusedError, SharedRegions, status_of, tune_malloc
from verifier.api.requests import Limits, Requests
from verifier.config import load_settings
from verifier.core import Core
from verifier.errors import CapacityError, VerifierError
from verifier.keys import KeySetLimits, KeySets
from verifier.manifest import load_manifest
from verifier.model import BatchResult
from verifier.regions import Region
from verifier.registry import find_source, plugin_paths, shipped_folder
from verifier.telemetry import set_up_logs

__all__ = ["AT_ONCE", "Engine", "plugin_digests"]

AT_ONCE = 4  # row groups that are read, verified and written down at the same time, a device
LAUNCH_S = 0.2  # nothing here is more urgent than anything else


def plugin_digests(calls: Iterable[Call]) -> dict[str, str]:
    """The shipped plugins that serve these calls, and the digests of their sources, by name.

    A call that none serves is found when it is run.
    """
    wanted = {(call.operation, call.scheme.algorithm.name) for call in calls}
    found = {}
    for path in plugin_paths(shipped_folder()):
        manifest = load_manifest(path)
        if any((operation.name, operation.algorithm) in wanted for operation in manifest.operations):
            found[manifest.name] = find_source(manifest.name, load_settings().plugins.folders).digest
    return found


class Engine:
    """Use it in a with statement. `threads` bounds the CPU's threads; None takes all cores.

    `operations` take batches, of this process and of those that read for it.
    """

    def __init__(self, devices: Sequence[str], plugins: Sequence[str], *, threads: int | None = None) -> None:
        tune_malloc()
        self._core = Core(
            load_settings(
                overrides={
                    "devices": {"use": list(devices)} | ({"cpu_threads": threads} if threads else {}),
                    # One run has one plugin's verdicts: outcomes name its digest.
                    "plugins": {"load": list(plugins), "watch": False},
                    "scheduling": {"launch_s": LAUNCH_S},
                }
            )
        )
        self.operations: Operations

    def __enter__(self) -> Self:
        if not structlog.is_configured():
            set_up_logs("warning", "console")  # in an actor of a cluster
        self._core.start()
        limits = Limits(MAX_ITEMS, 2 * MAX_BYTES)
        requests = Requests(self._core.registry, limits, KeySets(KeySetLimits()))
        self.operations = _PatientOperations(requests, self._core.named, SharedRegions())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._core.close()

    @property
    def devices(self) -> tuple[str, ...]:
        """The devices in use."""
        return tuple(worker.device_id for worker in self._core.fleet.workers)

    def plugins(self, calls: Iterable[Call]) -> dict[str, str]:
        """Digests of the plugins that serve these calls, by name. Raises NotServedError."""
        found = {}
        for call in calls:
            instance = self._core.registry.resolve(call.operation, call.scheme.algorithm.name).instance
            found[instance.plugin] = instance.digest
        return found

    def submit(self, call: Call, columns: Mapping[str, Column], start: int, stop: int) -> Future[BatchResult]:
        """The items `start` to `stop` of these columns as a batch; waits while the queue is full.

        Raises VerifierError naming what is wrong.
        """
        rpc, request = columnar_request(call, columns, start, stop)
        # Nobody compares a digest: the columns have not left this process.
        return self.operations.submit(rpc, request, deadline=None, caller=CALLER, digested=True).future

    def unmap(self, region: Region) -> None:
        """Has the devices let go of a region that no batch uses any more."""
        self._core.fleet.unmap(region.id)


class _PatientOperations(Operations):
    """Waits while the queue is full; says what it refuses in the words of outcomes, wherever they are made."""

    def submit(self, *batch: Any, **how: Any) -> Pending:
        while True:
            try:
                return super().submit(*batch, **how)
            except CapacityError as full:
                time.sleep(full.retry_after_s)
            except VerifierError as error:
                raise RefusedError(replace(status_of(error), message=first_line(error))) from error
