"""How fast one caller may go: token buckets of calls and of what they carry, for each role.

A bucket holds `burst_s` seconds' worth. A call passes where the bucket holds what it costs, or is full: so one that
costs more than a bucket can ever hold passes alone, and what it took too much is owed by the next.
"""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from verifier.api._roles import Role

__all__ = ["Rate", "Rates", "TokenBucket"]

_MOST_CALLERS = 4096
_LEAST_WAIT_S = 1e-9  # less is rounding


@dataclass(frozen=True, slots=True)
class Rate:
    """Limits of one caller in one role; None: no limit."""

    calls_per_s: float | None = None
    size_per_s: float | None = None  # items; of ciphers bytes
    most_size: float = math.inf  # of one call: what it claims beyond is refused later, and must not be owed here

    @property
    def limits_nothing(self) -> bool:
        """Whether every call passes."""
        return self.calls_per_s is None and self.size_per_s is None


class TokenBucket:
    """Not thread-safe: `Rates` holds a lock."""

    def __init__(self, per_s: float, burst_s: float, now: float) -> None:
        self._per_s = per_s
        self._full = per_s * burst_s
        self._tokens = self._full
        self._at = now

    def wait_s(self, cost: float, now: float) -> float:
        """Seconds until `cost` may be taken; 0 where it may be now."""
        self._tokens = min(self._full, self._tokens + (now - self._at) * self._per_s)
        self._at = now
        wait = (min(cost, self._full) - self._tokens) / self._per_s
        return wait if wait > _LEAST_WAIT_S else 0.0

    def take(self, cost: float) -> None:
        """Takes tokens, more than there are where that must be."""
        self._tokens -= cost


class Rates:
    """The buckets of every caller. Thread-safe; the least recent callers are forgotten beyond some thousands."""

    def __init__(
        self, rates: Mapping[Role, Rate], burst_s: float = 1.0, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rates = {role: rate for role, rate in rates.items() if not rate.limits_nothing}
        self._burst_s = burst_s
        self._clock = clock
        self._lock = threading.Lock()
        self._callers: OrderedDict[tuple[Role, str], tuple[TokenBucket | None, TokenBucket | None]] = OrderedDict()

    def wait_s(self, role: Role, caller: str, size: int) -> float:
        """Takes one call of `size` and returns 0; or takes nothing and returns when to come again."""
        rate = self._rates.get(role)
        if rate is None:
            return 0.0
        with self._lock:
            now = self._clock()
            buckets = self._buckets(role, caller, rate, now)
            claims = (1, min(size, rate.most_size))
            costs = [(bucket, cost) for bucket, cost in zip(buckets, claims, strict=True) if bucket is not None]
            wait = max(bucket.wait_s(cost, now) for bucket, cost in costs)
            if wait <= 0:
                for bucket, cost in costs:
                    bucket.take(cost)
            return wait

    def _buckets(
        self, role: Role, caller: str, rate: Rate, now: float
    ) -> tuple[TokenBucket | None, TokenBucket | None]:
        key = (role, caller)
        buckets = self._callers.get(key)
        if buckets is None:
            buckets = self._bucket(rate.calls_per_s, now), self._bucket(rate.size_per_s, now)
            self._callers[key] = buckets
            if len(self._callers) > _MOST_CALLERS:
                self._callers.popitem(last=False)
        self._callers.move_to_end(key)
        return buckets

    def _bucket(self, per_s: float | None, now: float) -> TokenBucket | None:
        return None if per_s is None else TokenBucket(per_s, self._burst_s, now)
