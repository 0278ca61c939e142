"""Metrics of tables of keys, read where they are kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

__all__ = ["KeyTableCollector", "KeyTableStats"]


class KeyTableStats(Protocol):
    """What became of one algorithm's keys; verifier.keys has it."""

    enrolled: int
    waiting: int
    builds: int
    evictions: int
    hits: int
    misses: int
    promoted: int
    bytes_by_device: tuple[tuple[str, int], ...]


class KeyTableCollector(Collector):
    """Reads tables' numbers when they are asked for."""

    def __init__(self, stats: Callable[[], Mapping[str, KeyTableStats]]) -> None:
        self._stats = stats

    def describe(self) -> Iterable[Metric]:
        return self._families({})

    def collect(self) -> Iterable[Metric]:
        return self._families(self._stats())

    def _families(self, stats: Mapping[str, KeyTableStats]) -> list[Metric]:
        name = "verifier_key_table"
        keys = GaugeMetricFamily(f"{name}_keys", "Keys with a slot, by state.", labels=["algorithm", "state"])
        nbytes = GaugeMetricFamily(f"{name}_bytes", "Memory of tables in use.", labels=["algorithm", "device"])
        items = CounterMetricFamily(
            f"{name}_items", "Items of keys that may have a table: hit, miss.", labels=["algorithm", "result"]
        )
        events = CounterMetricFamily(
            f"{name}_events", "Tables built, evicted, promoted.", labels=["algorithm", "event"]
        )
        for algorithm, one in stats.items():
            keys.add_metric([algorithm, "enrolled"], one.enrolled)
            keys.add_metric([algorithm, "waiting"], one.waiting)
            for device, size in one.bytes_by_device:
                nbytes.add_metric([algorithm, device], size)
            items.add_metric([algorithm, "hit"], one.hits)
            items.add_metric([algorithm, "miss"], one.misses)
            for event, count in (("built", one.builds), ("evicted", one.evictions), ("promoted", one.promoted)):
                events.add_metric([algorithm, event], count)
        return [keys, nbytes, items, events]
