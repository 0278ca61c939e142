"""What the metrics have come to, read in one go, and what lies between two such readings."""

from __future__ import annotations

from collections import Counter as Sums
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from prometheus_client import Counter, Gauge, Histogram

__all__ = ["Buckets", "Totals", "buckets_of", "quantile", "summed"]

Buckets = tuple[tuple[float, float], ...]  # (upper bound in seconds, how many were at most that), rising


@dataclass(frozen=True, slots=True)
class Totals:
    """Counts since the start. `items` by verdict, `requests` by status, `launched` items by device."""

    items: Mapping[str, float]
    requests: Mapping[str, float]
    launched: Mapping[str, float]
    by_plugin: Mapping[str, float]
    in_flight: float
    total_s: Buckets
    queue_s: Buckets
    device_s: Buckets


def summed(metric: Counter | Gauge, label: str) -> dict[str, float]:
    """A metric's values, added up by one of its labels."""
    sums: Sums[str] = Sums()
    for family in metric.collect():
        for sample in family.samples:
            if not sample.name.endswith("_created"):
                sums[sample.labels[label]] += sample.value  # type: ignore[assignment]
    return dict(sums)


def buckets_of(metric: Histogram) -> Buckets:
    """A histogram's buckets, added up over its labels."""
    sums: Sums[float] = Sums()
    for family in metric.collect():
        for sample in family.samples:
            if sample.name.endswith("_bucket"):
                sums[float(sample.labels["le"])] += sample.value  # type: ignore[assignment]
    return tuple(sorted(sums.items()))


def quantile(share: float, earlier: Buckets, later: Buckets) -> float | None:
    """The time that `share` of what came between two readings took at most; None where nothing came.

    As Prometheus's histogram_quantile: linear within a bucket, and the last bound where it lies beyond that.
    """
    before = dict(earlier)
    between: Sequence[tuple[float, float]] = [(bound, count - before.get(bound, 0)) for bound, count in later]
    if not between or between[-1][1] <= 0:
        return None
    rank = share * between[-1][1]
    low_bound = low_count = 0.0
    for bound, count in between:
        if count >= rank:
            if bound == float("inf"):
                return low_bound
            inside = count - low_count
            return bound if inside <= 0 else low_bound + (bound - low_bound) * (rank - low_count) / inside
        low_bound, low_count = bound, count
    return low_bound
