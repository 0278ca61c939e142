"""Prometheus metrics, in a registry of their own. Updated once a request or launch, never once an item."""

from __future__ import annotations

import platform
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TypeVar, cast

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, start_http_server
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector, RestrictedRegistry

from verifier import __version__
from verifier.model import BatchResult, Bytes, Timings
from verifier.telemetry._key_tables import KeyTableCollector, KeyTableStats
from verifier.telemetry._totals import Totals, buckets_of, summed

__all__ = ["Metrics", "MetricsServer"]

_FIRST_MALFORMED = 16
_MOST_PUT_OFF = 64  # counts
_FEW = 16384  # items, whose bitmaps and codes are 20 KB
_LONG_BITMAP = 2048  # bytes: from here on numpy counts faster
_SECONDS = (25e-6, 1e-4, 2.5e-4, 5e-4, 1e-3, 2e-3, 4e-3, 8e-3, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1, 2, 5, 10)
_ITEMS = tuple(float(1 << exponent) for exponent in range(0, 21, 2))

Labelled = TypeVar("Labelled", Counter, Histogram)
QueueSizes = Callable[[], Mapping[str, tuple[int, int]]]


class _Queues(Collector):
    """Reads queue sizes when they are asked for."""

    def __init__(self, sizes: QueueSizes) -> None:
        self._sizes = sizes

    def describe(self) -> Iterable[GaugeMetricFamily]:
        return self._families({})

    def collect(self) -> Iterable[GaugeMetricFamily]:
        return self._families(self._sizes())

    def _families(self, sizes: Mapping[str, tuple[int, int]]) -> list[GaugeMetricFamily]:
        items = GaugeMetricFamily("verifier_queue_items", "Items accepted and not answered.", labels=["plugin"])
        nbytes = GaugeMetricFamily("verifier_queue_bytes", "Bytes accepted and not answered.", labels=["plugin"])
        for plugin, (count, size) in sizes.items():
            items.add_metric([plugin], count)
            nbytes.add_metric([plugin], size)
        return [items, nbytes]


class _Registry(CollectorRegistry):
    """Counts what was put off before anybody looks."""

    def __init__(self, settle: Callable[[], None]) -> None:
        super().__init__()
        self._settle = settle

    def collect(self) -> Iterable[Metric]:
        self._settle()
        return super().collect()

    def restricted_registry(self, names: Iterable[str]) -> RestrictedRegistry:
        self._settle()
        return super().restricted_registry(names)


class MetricsServer:
    """The listener that Prometheus scrapes."""

    def __init__(self, registry: CollectorRegistry, address: str, port: int) -> None:
        self._server, self._thread = start_http_server(port, address, registry)
        self.port: int = self._server.server_port

    def close(self) -> None:
        """Ends the listener."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class Metrics:
    """What the daemon counts. One object a daemon; the names are documented in docs/operating.md.

    What is counted of each batch is put off until `settle`, or until it is looked at: its caller waits for the
    thread that has its results.
    """

    def __init__(self) -> None:
        self.registry: CollectorRegistry = _Registry(self.settle)
        self._put_off: deque[Callable[[], None]] = deque()
        self._children: dict[tuple[object, tuple[str, ...]], Counter | Histogram] = {}
        self._requests = self._counter("requests", "Requests answered, by status.", "rpc", "code")
        self._items = self._counter("items", "Items answered, by verdict.", "plugin", "verdict")
        self._batches = self._counter("batches", "Launches on a device.", "plugin", "device")
        self._launched = self._counter("launched_items", "Items that a device has finished.", "plugin", "device")
        self._rejected = self._counter("rejected", "Requests given up before they ran.", "plugin", "reason")
        self._fallback = self._counter("fallback_items", "Items run again elsewhere.", "plugin", "why")
        self._given_up = self._counter("undetermined_items", "Items left undecided.", "plugin", "why")
        self._device_errors = self._counter("device_errors", "Faults of workers.", "device", "error")
        self._swaps = self._counter("plugin_swaps", "Loads and unloads of plugins.", "plugin", "result")
        self._batch_items = Histogram(
            "verifier_batch_items", "Items of a launch.", ["plugin"], buckets=_ITEMS, registry=self.registry
        )
        self._queue_s = self._seconds("queue", "From acceptance until the first launch.")
        self._device_s = self._seconds("device", "Copies and kernels of a launch.")
        self._stages_s = (
            self._seconds("copy_in", "Columns to the device, of a launch that was measured."),
            self._seconds("kernel", "Kernels, of a launch that was measured."),
            self._seconds("copy_out", "Results to the host, of a launch that was measured."),
        )
        self._total_s = self._seconds("total", "From acceptance until the answer was ready.")
        self._plugin_state = self._gauge("plugin_state", "1 for the state it is in.", "plugin", "version", "state")
        self._device_up = self._gauge("device_up", "Whether the device's worker takes work.", "device")
        self._in_flight = self._gauge("rpcs_in_flight", "Calls being handled.", "rpc")
        self._denied = self._counter("denied", "Calls refused for want of a role, or of rate.", "role", "reason")
        self._tls_reads = self._counter("tls_reloads", "Readings of new certificate files.", "result")
        self._tls_expires = self._gauge("tls_expiry_timestamp_seconds", "When the certificate in use expires.")
        self._front_ends = self._gauge("front_ends", "Front-end processes that accept calls.")
        self._front_ends_lost = self._counter("front_ends_lost", "Front-end processes that ended by themselves.")
        self._front_ends_refused = self._counter(
            "front_ends_refused", "Requests that front ends refused because the core had just refused such a one."
        )
        self._regions = self._gauge("shared_regions", "Regions that clients have registered.")
        self._region_bytes = self._gauge("shared_region_bytes", "Bytes of those.")
        self._start_s = self._gauge("start_seconds", "From the start of the process until ready.")
        build = self._gauge("build_info", "What runs here.", "version", "python")
        build.labels(__version__, platform.python_version()).set(1)
        ProcessCollector(registry=self.registry)  # process_resident_memory_bytes, process_open_fds, ...

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"verifier_{name}", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"verifier_{name}", text, labels, registry=self.registry)

    def _seconds(self, name: str, text: str) -> Histogram:
        return Histogram(f"verifier_{name}_seconds", text, ["plugin"], buckets=_SECONDS, registry=self.registry)

    def _labelled(self, metric: Labelled, *labels: str) -> Labelled:
        """`metric.labels(*labels)`, which takes a lock and checks the labels: done once for those of every launch."""
        known = self._children.get((metric, labels))
        if known is None:
            known = self._children[metric, labels] = metric.labels(*labels)
        return cast("Labelled", known)

    def serve(self, address: str, port: int) -> MetricsServer:
        """Opens the listener; port 0 takes a free one."""
        return MetricsServer(self.registry, address, port)

    def settle(self) -> None:
        """Counts what was put off. For threads that have time, while a device works for instance."""
        while self._put_off:
            try:
                count = self._put_off.popleft()
            except IndexError:  # another thread had it
                return
            count()

    def _later(self, count: Callable[[], None]) -> None:
        self._put_off.append(count)
        if len(self._put_off) > _MOST_PUT_OFF:
            self.settle()

    def totals(self) -> Totals:
        """What has been counted so far, for the status page."""
        self.settle()
        return Totals(
            items=summed(self._items, "verdict"),
            requests=summed(self._requests, "code"),
            launched=summed(self._launched, "device"),
            by_plugin=summed(self._items, "plugin"),
            in_flight=sum(summed(self._in_flight, "rpc").values()),
            total_s=buckets_of(self._total_s),
            queue_s=buckets_of(self._queue_s),
            device_s=buckets_of(self._device_s),
        )

    def watch_queues(self, sizes: QueueSizes) -> None:
        """`sizes()` gives (items, bytes) by plugin."""
        self.registry.register(_Queues(sizes))

    def request(self, rpc: str, code: str, count: int = 1) -> None:
        """A request was answered with a status, or so many were."""
        self._requests.labels(rpc, code).inc(count)

    def in_flight(self, rpc: str) -> Gauge:
        """The gauge of calls being handled, for `track_inprogress`."""
        return self._in_flight.labels(rpc)

    def watch_key_tables(self, stats: Callable[[], Mapping[str, KeyTableStats]]) -> None:
        """`stats()` gives what became of keys by algorithm."""
        self.registry.register(KeyTableCollector(stats))

    def answered(self, plugin: str, result: BatchResult) -> None:
        """A request has its result."""
        columns = result.items, result.valid, result.decided, result.codes
        seconds = result.timings.queue_ns / 1e9, result.timings.total_ns / 1e9
        if result.items <= _FEW and result.codes.base is None:
            self._later(lambda: self._count_answer(plugin, _verdicts(*columns), *seconds))
        else:  # the numbers alone: what is put off may not hold on to much, nor to a whole launch's codes
            self._later(partial(self._count_answer, plugin, _verdicts(*columns), *seconds))

    def _count_answer(self, plugin: str, counts: dict[str, int], queue_s: float, total_s: float) -> None:
        for verdict, count in counts.items():
            if count > 0:
                self._labelled(self._items, plugin, verdict).inc(count)
        self._labelled(self._queue_s, plugin).observe(queue_s)
        self._labelled(self._total_s, plugin).observe(total_s)

    def launched(self, plugin: str, device: str, items: int, timings: Timings) -> None:
        """A launch came back."""
        self._later(partial(self._count_launch, plugin, device, items, timings))

    def _count_launch(self, plugin: str, device: str, items: int, timings: Timings) -> None:
        self._labelled(self._batches, plugin, device).inc()
        self._labelled(self._launched, plugin, device).inc(items)
        self._labelled(self._batch_items, plugin).observe(items)
        self._labelled(self._device_s, plugin).observe(timings.device_ns / 1e9)
        if timings.stages is not None:
            for histogram, ns in zip(self._stages_s, timings.stages, strict=True):
                self._labelled(histogram, plugin).observe(ns / 1e9)

    def rejected(self, plugin: str, reason: str) -> None:
        """A request was given up before it ran: queue_full, deadline, cancelled."""
        self._rejected.labels(plugin, reason).inc()

    def fallback(self, plugin: str, why: str, items: int) -> None:
        """Items were run again on another device."""
        self._fallback.labels(plugin, why).inc(items)

    def undetermined(self, plugin: str, why: str, items: int) -> None:
        """Items were given up undecided."""
        self._given_up.labels(plugin, why).inc(items)

    def device_error(self, device: str, error: str) -> None:
        """A worker's process was lost or a device failed."""
        self._device_errors.labels(device, error).inc()

    def device_up(self, device: str, up: bool) -> None:
        """A worker's state changed."""
        self._device_up.labels(device).set(up)

    def denied(self, role: str, reason: str, count: int = 1) -> None:
        """A call was refused, or so many were: reason "role" or "rate"."""
        self._denied.labels(role, reason).inc(count)

    def tls_files_read(self, taken: bool, expires: float) -> None:
        """Certificate files were read: taken over, or refused. `expires`: what is in use, seconds since the epoch."""
        self._tls_reads.labels("taken" if taken else "refused").inc()
        self._tls_expires.set(expires)

    def front_ends(self, up: int) -> None:
        """So many front-end processes accept calls."""
        self._front_ends.set(up)

    def front_ends_refused(self, count: int) -> None:
        """Front ends refused requests without asking the core."""
        self._front_ends_refused.inc(count)

    def front_end_lost(self) -> None:
        """A front-end process has ended by itself."""
        self._front_ends_lost.inc()

    def shared_memory(self, regions: int, nbytes: int) -> None:
        """What clients have registered."""
        self._regions.set(regions)
        self._region_bytes.set(nbytes)

    def plugin_state(self, plugin: str, version: str, state: str, states: Iterable[str]) -> None:
        """An instance is in `state`, one of `states`."""
        for name in states:
            self._plugin_state.labels(plugin, version, name).set(name == state)

    def swapped(self, plugin: str, result: str) -> None:
        """A load or unload ended."""
        self._swaps.labels(plugin, result).inc()

    def started(self, seconds: float) -> None:
        """The daemon is ready."""
        self._start_s.set(seconds)


def _verdicts(items: int, valid: Bytes, decided: Bytes, codes: Bytes) -> dict[str, int]:
    """How many items have each verdict."""
    known = _ones(decided)
    good = _ones(valid & decided)
    malformed = int(np.count_nonzero(codes >= _FIRST_MALFORMED)) if good < known else 0
    return {
        "valid": good,
        "invalid": known - good - malformed,
        "malformed": malformed,
        "undetermined": items - known,
    }


def _ones(bitmap: Bytes) -> int:
    """Bits that are set. Of short bitmaps in a fifth of the time that numpy takes."""
    if bitmap.size > _LONG_BITMAP:
        return int(np.bitwise_count(bitmap).sum(dtype=np.int64))
    return int.from_bytes(bitmap.tobytes(), "little").bit_count()
