"""This machine's devices and plugins without a listener: batches go straight to the scheduler."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self

import structlog

from node_adapter.client import Priority
from node_adapter.client._columns import Column
from node_adapter.ledger._calls import Call
from verifier.api import ColumnarRequest, Given, tune_malloc
from verifier.api.requests import Limits, Requests
from verifier.config import load_settings
from verifier.core import Core
from verifier.errors import CapacityError
from verifier.keys import KeySetLimits, KeySets
from verifier.manifest import load_manifest
from verifier.model import BatchResult
from verifier.registry import find_source, plugin_paths, shipped_folder
from verifier.telemetry import set_up_logs
from verifier.v1 import verifier_pb2 as pb

__all__ = ["AT_ONCE", "Engine", "plugin_digests"]

AT_ONCE = 4  # row groups that are read, verified and written down at the same time, a device
MAX_ITEMS = 1 << 18
MAX_BYTES = 32 << 20
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
    """Use it in a with statement. `threads` bounds the CPU's threads; None takes all cores."""

    def __init__(self, devices: Sequence[str], plugins: Sequence[str], *, threads: int | None = None) -> None:
        tune_malloc()
        self._core = Core(
            load_settings(
                overrides={
                    "devices": {"use": list(devices)} | ({"cpu_threads": threads} if threads else {}),
                    "plugins": {"load": list(plugins)},
                    "scheduling": {"launch_s": LAUNCH_S},
                }
            )
        )
        self._requests: Requests

    def __enter__(self) -> Self:
        if not structlog.is_configured():
            set_up_logs("warning", "console")  # in an actor of a cluster
        self._core.start()
        limits = Limits(MAX_ITEMS, 2 * MAX_BYTES)
        self._requests = Requests(self._core.registry, limits, KeySets(KeySetLimits()))
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
        fields: dict[str, Any] = {
            "items": stop - start,
            "scheme": call.scheme.message(),
            "priority": int(Priority.BULK),
        }
        given = {}
        for name, column in columns.items():
            data, offsets = column.views(start, stop)  # where Arrow has them: the worker's slot takes the only copy
            given[name] = Given(data.data, memoryview(offsets))
        if call.recover:
            fields["address_hash"] = int(call.address_hash)
            prepared = self._requests.recover(ColumnarRequest(pb.RecoverRequest(**fields), given))
        else:
            prepared = self._requests.verify(ColumnarRequest(pb.VerifyRequest(**fields), given))
        while True:
            try:
                return self._core.named.submit(prepared.batch, priority=prepared.priority, caller="ledger")
            except CapacityError as full:
                time.sleep(full.retry_after_s)
