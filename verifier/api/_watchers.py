"""Statuses of services, and who is told when one changes.

Nothing is sent while the lock is held: sending waits for gRPC's own thread, and that thread runs the callbacks of
calls that end, which want the lock. (The servicer that comes with grpcio-health-checking 1.85 does so, and a watcher
that leaves at the wrong moment stops its whole server.)
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass

import structlog

__all__ = ["Statuses"]

_log = structlog.get_logger(__name__)

Send = Callable[[int | None], None]  # a status, or None: the end


@dataclass(eq=False, slots=True)
class _Watcher:
    """A call that is told of one service. A status that was not sent before the next one came is not sent at all."""

    service: str
    send: Send
    pending: int | None
    sending: bool = True
    gone: bool = False


class Statuses:
    """Thread-safe. `unknown` is what is said of services that nobody has set."""

    def __init__(self, pool: Executor, unknown: int) -> None:
        """Changes are sent by threads of `pool`."""
        self._pool = pool
        self._unknown = unknown
        self._lock = threading.Lock()
        self._statuses: dict[str, int] = {}
        self._watchers: dict[str, set[_Watcher]] = {}

    def get(self, service: str) -> int | None:
        """A service's status; None where nobody has set it."""
        with self._lock:
            return self._statuses.get(service)

    def all(self) -> dict[str, int]:
        """Every service that was set."""
        with self._lock:
            return dict(self._statuses)

    def update(self, statuses: Mapping[str, int]) -> None:
        """Sets services. Who watches is told of what has changed."""
        with self._lock:
            changed = {name: status for name, status in statuses.items() if self._statuses.get(name) != status}
            self._statuses |= changed
            due = [watcher for name in changed for watcher in self._watchers.get(name, ())]
            for watcher in due:
                watcher.pending = changed[watcher.service]
            idle = [watcher for watcher in due if not watcher.sending]
            for watcher in idle:
                watcher.sending = True
        for watcher in idle:
            self._pool.submit(self._deliver, watcher)

    def watch(self, service: str, on_end: Callable[[Callable[[], None]], bool], send: Send) -> None:
        """Sends the service's status now and whenever it changes, until the call ends.

        `on_end(callback)` has the callback called then; False where the call is over already.
        """
        with self._lock:
            watcher = _Watcher(service, send, self._statuses.get(service, self._unknown))
            self._watchers.setdefault(service, set()).add(watcher)
        if on_end(lambda: self._leave(watcher)):
            self._deliver(watcher)
        else:
            self._leave(watcher)

    def watching(self) -> int:
        """How many calls watch."""
        with self._lock:
            return sum(map(len, self._watchers.values()))

    def _deliver(self, watcher: _Watcher) -> None:
        while True:
            with self._lock:
                status, watcher.pending = watcher.pending, None
                if status is None or watcher.gone:
                    watcher.sending = False
                    return
            try:
                watcher.send(status)
            except Exception:
                _log.exception("health_not_sent", service=watcher.service)
                self._leave(watcher)

    def _leave(self, watcher: _Watcher) -> None:
        with self._lock:
            if watcher.gone:
                return
            watcher.gone = True
            others = self._watchers[watcher.service]
            others.discard(watcher)
            if not others:
                del self._watchers[watcher.service]
        watcher.send(None)
