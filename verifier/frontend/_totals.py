"""What all front ends count, as one daemon's metrics."""

from __future__ import annotations

import threading

from verifier.frontend._messages import Counts
from verifier.telemetry import Metrics

__all__ = ["FrontEndTotals"]


class FrontEndTotals:
    """Counters add up; of calls being handled every front end's last word counts. Thread-safe."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._lock = threading.Lock()
        self._in_flight: dict[int, dict[str, int]] = {}

    def add(self, number: int, counts: Counts) -> None:
        """What a front end has counted since the last time."""
        for rpc, code, count in counts.requests:
            self._metrics.request(rpc, code, count)
        for role, reason, count in counts.denials:
            self._metrics.denied(role, reason, count)
        if counts.refused:
            self._metrics.front_ends_refused(counts.refused)
        if counts.tls is not None:
            self._metrics.tls_files_read(*counts.tls)
        self._handling(number, counts.in_flight)

    def lost(self, number: int) -> None:
        """A front end has ended, and with it the calls that it was handling."""
        self._handling(number, {})

    def _handling(self, number: int, in_flight: dict[str, int]) -> None:
        with self._lock:
            names = {*self._in_flight.get(number, {}), *in_flight}
            self._in_flight[number] = in_flight
            for rpc in names:
                calls = sum(each.get(rpc, 0) for each in self._in_flight.values())
                self._metrics.in_flight(rpc).set(calls)
