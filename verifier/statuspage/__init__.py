"""A page to look at, served by the daemon on a listener of its own, and what `verifier top` reads."""

from verifier.statuspage._history import History
from verifier.statuspage._server import StatusServer
from verifier.statuspage._snapshot import DeviceNow, PluginNow, Snapshot, State

__all__ = ["DeviceNow", "History", "PluginNow", "Snapshot", "State", "StatusServer"]
