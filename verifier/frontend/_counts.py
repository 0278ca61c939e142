"""What a front end counts, sent to the core's metrics once a second."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from verifier.api import Denial
from verifier.frontend._messages import Counts, Denied

__all__ = ["FrontEndCounts"]


class _Gauge:
    def __init__(self) -> None:
        self.value = 0
        self._lock = threading.Lock()

    @contextmanager
    def track_inprogress(self) -> Iterator[None]:
        """Counts one call while it is handled."""
        with self._lock:
            self.value += 1
        try:
            yield
        finally:
            with self._lock:
                self.value -= 1


class FrontEndCounts:
    """The part of `verifier.telemetry.Metrics` that calls need. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: Counter[tuple[str, str]] = Counter()
        self._denials: Counter[tuple[str, str]] = Counter()
        self._audit: list[Denied] = []
        self._tls: tuple[bool, float] | None = None
        self._gauges: dict[str, _Gauge] = {}
        self._refused = 0

    def refused(self) -> None:
        """A request was refused without asking the core."""
        with self._lock:
            self._refused += 1

    def request(self, rpc: str, code: str) -> None:
        """A request was answered with a status."""
        with self._lock:
            self._requests[rpc, code] += 1

    def denied(self, role: str, reason: str) -> None:
        """A call was refused for its role or its rate."""
        with self._lock:
            self._denials[role, reason] += 1

    def audit(self, denial: Denial) -> None:
        """A refusal that the audit is told of."""
        with self._lock:
            self._audit.append(Denied(denial.caller, denial.method, str(denial.role)))

    def tls_files_read(self, taken: bool, expires: float) -> None:
        """The certificates were read."""
        with self._lock:
            self._tls = (taken, expires)

    def in_flight(self, rpc: str) -> _Gauge:
        """The gauge of calls being handled, for `track_inprogress`."""
        with self._lock:
            return self._gauges.setdefault(rpc, _Gauge())

    def take(self) -> Counts:
        """What was counted since the last time."""
        with self._lock:
            counts = Counts(
                [(*key, number) for key, number in self._requests.items()],
                [(*key, number) for key, number in self._denials.items()],
                self._audit,
                self._tls,
                {rpc: gauge.value for rpc, gauge in self._gauges.items()},
                self._refused,
            )
            self._refused = 0
            self._requests.clear()
            self._denials.clear()
            self._audit = []
            self._tls = None
        return counts
