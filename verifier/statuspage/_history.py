"""The last two minutes, one reading a second."""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from verifier.telemetry import Totals, quantile

__all__ = ["SECONDS", "History", "Recent"]

SECONDS = 120
_WINDOW_S = 10  # rates and quantiles are over so long


@dataclass(frozen=True, slots=True)
class _Reading:
    at: float
    totals: Totals
    queue_items: int
    queue_bytes: int


@dataclass(frozen=True, slots=True)
class Recent:
    """What the last seconds were like. `history` has a value a second, the newest last."""

    totals: Totals
    rates: dict[str, float]  # items, calls, refused, a second
    verdict_rates: dict[str, float]
    device_rates: dict[str, float]
    plugin_rates: dict[str, float]
    latency_s: dict[str, float | None]
    queue: dict[str, int]
    history: dict[str, list[float | None]]


class History:
    """Reads `totals` and `queue` once a second in a thread of its own."""

    def __init__(
        self,
        totals: Callable[[], Totals],
        queue: Callable[[], tuple[int, int]],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`queue()` gives items and bytes that are accepted and not answered."""
        self._totals = totals
        self._queue = queue
        self._clock = clock
        self._lock = threading.Lock()
        self._readings: deque[_Reading] = deque(maxlen=SECONDS + 1)
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="status-history", daemon=True)
        self.read()

    def start(self) -> None:
        """Begins reading."""
        self._thread.start()

    def close(self) -> None:
        """Ends the thread."""
        self._end.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._end.wait(1.0):
            self.read()

    def read(self) -> None:
        """Takes one reading."""
        reading = _Reading(self._clock(), self._totals(), *self._queue())
        with self._lock:
            self._readings.append(reading)

    def recent(self) -> Recent:
        """What lies between the readings of the last seconds."""
        with self._lock:
            readings = list(self._readings)
        last = readings[-1]
        first = next((r for r in readings if r.at > last.at - _WINDOW_S - 0.5), last)
        seconds = max(last.at - first.at, 1e-9)

        def rates(name: str) -> dict[str, float]:
            before, after = getattr(first.totals, name), getattr(last.totals, name)
            return {key: (value - before.get(key, 0)) / seconds for key, value in after.items()}

        codes = rates("requests")
        verdicts = rates("items")
        return Recent(
            last.totals,
            {
                "items": sum(verdicts.values()),
                "calls": sum(codes.values()),
                "refused": sum(rate for code, rate in codes.items() if code != "OK"),
            },
            verdicts,
            rates("launched"),
            rates("by_plugin"),
            {
                "p50": quantile(0.5, first.totals.total_s, last.totals.total_s),
                "p99": quantile(0.99, first.totals.total_s, last.totals.total_s),
                "queue_p50": quantile(0.5, first.totals.queue_s, last.totals.queue_s),
                "device_p50": quantile(0.5, first.totals.device_s, last.totals.device_s),
            },
            {"items": last.queue_items, "bytes": last.queue_bytes, "calls": round(last.totals.in_flight)},
            _series(readings),
        )


def _series(readings: list[_Reading]) -> dict[str, list[float | None]]:
    items: list[float | None] = []
    p99: list[float | None] = []
    for before, after in itertools.pairwise(readings):
        seconds = max(after.at - before.at, 1e-9)
        items.append((sum(after.totals.items.values()) - sum(before.totals.items.values())) / seconds)
        p99.append(quantile(0.99, before.totals.total_s, after.totals.total_s))
    return {"items_per_s": items, "p99_s": p99, "queue_items": [r.queue_items for r in readings[1:]]}
