"""What the daemon is like now, as one JSON object: the status page and `verifier top` show it.

It holds no secret and no caller's name: little more than what a scrape of the metrics says.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from verifier import __version__
from verifier.statuspage._history import Recent

__all__ = ["DeviceNow", "PluginNow", "Snapshot", "State"]

State = Literal["serving", "not serving", "stopping"]


@dataclass(frozen=True, slots=True)
class DeviceNow:
    """A device. `faults`: how often its worker was lost."""

    id: str
    name: str
    state: str
    faults: int


@dataclass(frozen=True, slots=True)
class PluginNow:
    """An instance of a plugin. `changed_unix`: since when it is in its state, seconds since the epoch."""

    label: str
    plugin: str
    state: str
    active: bool
    reason: str
    operations: tuple[str, ...]
    devices: tuple[str, ...]
    missing_devices: tuple[str, ...]
    leases: int
    changed_unix: float


@dataclass(frozen=True, slots=True)
class Snapshot:
    """`listen`: where work is taken. `up_s`: since the daemon serves."""

    state: State
    listen: Sequence[str]
    up_s: float
    devices: Sequence[DeviceNow]
    plugins: Sequence[PluginNow]

    def with_recent(self, recent: Recent) -> dict[str, Any]:
        """Everything, ready for JSON."""
        return {
            "version": __version__,
            "at_unix": time.time(),
            "state": self.state,
            "listen": list(self.listen),
            "up_s": self.up_s,
            "rates_per_s": recent.rates,
            "latency_s": recent.latency_s,
            "queue": recent.queue,
            "verdicts": {
                name: {"total": total, "per_s": recent.verdict_rates.get(name, 0.0)}
                for name, total in recent.totals.items.items()
            },
            "calls": dict(recent.totals.requests),
            "history": recent.history,
            "devices": [
                asdict(device) | {"items_per_s": recent.device_rates.get(device.id, 0.0)} for device in self.devices
            ],
            "plugins": [
                asdict(plugin)
                | {"items_per_s": recent.plugin_rates.get(plugin.plugin, 0.0) if plugin.active else None}
                for plugin in self.plugins
            ],
        }
