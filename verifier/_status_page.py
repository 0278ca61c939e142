"""What the status page is told of the daemon, and its listener."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import structlog

from verifier.api import split_address
from verifier.errors import BackendError, ConfigError
from verifier.registry import InstanceStatus, Registry
from verifier.registry import State as PluginState
from verifier.scheduling import Scheduler
from verifier.statuspage import DeviceNow, History, PluginNow, Snapshot, State, StatusServer
from verifier.telemetry import Metrics
from verifier.workers import Fleet, Worker

__all__ = ["DEFAULT_ADDRESS", "StatusPage"]

_log = structlog.get_logger(__name__)

DEFAULT_ADDRESS = "127.0.0.1:9465"
_LOCAL_NAMES = frozenset(("localhost", "127.0.0.1", "::1"))
_MOST_PLUGINS = 100
_LONGEST_REASON = 200


class StatusPage:
    """The page of one daemon: reads once a second, answers whoever looks.

    `state()` says whether the daemon serves. `any_host`: other hosts may ask, by whatever name.
    """

    def __init__(
        self,
        fleet: Fleet,
        registry: Registry,
        scheduler: Scheduler,
        metrics: Metrics,
        listen: tuple[str, ...],
        state: Callable[[], State],
    ) -> None:
        self._fleet = fleet
        self._registry = registry
        self._scheduler = scheduler
        self._listen = listen
        self._state = state
        self._begun = time.monotonic()
        self._history = History(metrics.totals, self._queue)
        self._server: StatusServer | None = None

    def open(self, setting: str, *, any_host: bool) -> int | None:
        """Listens on `setting`, and returns the port. None where that is "auto" and something else has the port.

        Raises ConfigError where the address cannot be opened.
        """
        host, port = split_address(DEFAULT_ADDRESS if setting == "auto" else setting)
        try:
            self._server = StatusServer((host, port), self._now, None if any_host else _LOCAL_NAMES | {host})
        except OSError as error:
            if setting != "auto":
                raise ConfigError(f"status.listen: {host}:{port}: {error.strerror}") from None
            _log.warning("status_page_missing", address=DEFAULT_ADDRESS, error=error.strerror)
            return None
        self._history.start()
        self._server.start()
        return self._server.port

    def close(self) -> None:
        """Ends the listener."""
        if self._server is not None:
            self._server.close()
            self._history.close()

    def _queue(self) -> tuple[int, int]:
        held = self._scheduler.held().values()
        return sum(h.items for h in held), sum(h.bytes for h in held)

    def _now(self) -> dict[str, Any]:
        devices = [
            DeviceNow(worker.device_id, _name(worker), worker.state.value, sum(worker.errors.values()))
            for worker in self._fleet.workers
        ]
        up_s = time.monotonic() - self._begun
        return Snapshot(self._state(), self._listen, up_s, devices, self._plugins()).with_recent(
            self._history.recent()
        )

    def _plugins(self) -> list[PluginNow]:
        operations = {
            instance.label: tuple(o.id for o in instance.manifest.operations if o.role == "call")
            for instance in self._registry.active()
        }
        shown = [status for status in self._registry.index() if status.state is not PluginState.UNLOADED]
        shown.sort(key=lambda status: (status.plugin, not status.active, -status.generation))
        return [_plugin(status, operations.get(status.label, ())) for status in shown[:_MOST_PLUGINS]]


def _name(worker: Worker) -> str:
    try:
        return worker.device.name
    except BackendError:  # it has never started
        return ""


def _plugin(status: InstanceStatus, operations: tuple[str, ...]) -> PluginNow:
    reason = status.reason.partition("\n")[0]
    return PluginNow(
        status.label,
        status.plugin,
        status.state.value.lower(),
        status.active,
        reason if len(reason) <= _LONGEST_REASON else f"{reason[:_LONGEST_REASON]}...",
        operations,
        status.devices,
        status.missing_devices,
        status.leases,
        status.changed_at,
    )
