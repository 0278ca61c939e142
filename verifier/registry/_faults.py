"""Counts faults in a sliding window."""

from __future__ import annotations

import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Hashable

__all__ = ["FaultCounter"]


class FaultCounter:
    """Says when something has faulted `limit` times within `window_s` seconds."""

    def __init__(self, limit: int, window_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._window_s = window_s
        self._clock = clock
        self._lock = threading.Lock()
        self._times: defaultdict[Hashable, deque[float]] = defaultdict(lambda: deque(maxlen=limit))

    def count(self, what: Hashable) -> bool:
        """Counts one fault of `what`; whether that was one too many."""
        now = self._clock()
        with self._lock:
            # Of an instance that is gone nobody hears again.
            for old in [old for old, times in self._times.items() if now - times[-1] > self._window_s]:
                del self._times[old]
            times = self._times[what]
            times.append(now)
            return len(times) == self._limit and now - times[0] <= self._window_s
