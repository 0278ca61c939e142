"""What the page says of the last seconds, from readings on a clock of the test's."""

from __future__ import annotations

import numpy as np
import pytest
from _clock import Clock

from verifier.model import BatchResult, Code, Timings
from verifier.statuspage import History
from verifier.statuspage._history import SECONDS
from verifier.telemetry import Metrics, quantile


def answer(metrics: Metrics, codes: list[Code], total_s: float) -> None:
    result = BatchResult.undetermined(len(codes))
    result.codes[:] = codes
    result.decided[:] = np.packbits(result.codes != 0, bitorder="little")
    result.valid[:] = np.packbits(result.codes == Code.VALID, bitorder="little")
    result.timings = Timings(
        queue_ns=round(total_s * 2e8), device_ns=round(total_s * 5e8), total_ns=round(total_s * 1e9)
    )
    metrics.answered("sm2", result)
    metrics.launched("sm2", "cpu", len(codes), result.timings)


@pytest.fixture
def metrics():
    return Metrics()


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def history(metrics, clock):
    return History(metrics.totals, lambda: (7, 900), clock=clock)


def test_before_anything_came(history):
    recent = history.recent()
    assert recent.rates == {"items": 0, "calls": 0, "refused": 0}
    assert set(recent.latency_s.values()) == {None}
    assert recent.queue == {"items": 7, "bytes": 900, "calls": 0}
    assert recent.history == {"items_per_s": [], "p99_s": [], "queue_items": []}


def test_rates_are_over_the_last_ten_seconds(history, metrics, clock):
    for second in range(30):
        clock.now += 1
        answer(metrics, [Code.VALID] * 60 + [Code.INVALID] * 30 + [Code.KEY_RANGE] * 10, 0.01)
        metrics.request("Verify", "OK" if second % 2 else "RESOURCE_EXHAUSTED")
        history.read()
    recent = history.recent()
    assert recent.rates["items"] == pytest.approx(100)
    assert recent.rates["calls"] == pytest.approx(1)
    assert recent.rates["refused"] == pytest.approx(0.5)
    assert recent.verdict_rates == {"valid": 60, "invalid": 30, "malformed": 10}
    assert (recent.device_rates, recent.plugin_rates) == ({"cpu": 100}, {"sm2": 100})
    assert recent.totals.items == {"valid": 1800, "invalid": 900, "malformed": 300}
    assert recent.history["items_per_s"] == [pytest.approx(100)] * 30
    for _ in range(15):
        clock.now += 1
        history.read()
    quiet = history.recent()
    assert quiet.rates["items"] == 0
    assert quiet.latency_s["p99"] is None
    assert quiet.history["p99_s"][-15:] == [None] * 15


def test_readings_that_came_late_still_give_rates_a_second(history, metrics, clock):
    clock.now += 4
    answer(metrics, [Code.VALID] * 100, 0.01)
    history.read()
    assert history.recent().rates["items"] == pytest.approx(25)


def test_two_minutes_are_kept(history, clock):
    for _ in range(3 * SECONDS):
        clock.now += 1
        history.read()
    assert len(history.recent().history["items_per_s"]) == SECONDS


def test_quantiles_of_what_came_between_two_readings(metrics):
    for _ in range(100):
        answer(metrics, [Code.VALID], 3.0)  # before: must not count
    first = metrics.totals().total_s
    for _ in range(90):
        answer(metrics, [Code.VALID], 0.0015)
    for _ in range(10):
        answer(metrics, [Code.VALID], 0.3)
    last = metrics.totals().total_s
    assert 0.001 < quantile(0.5, first, last) < 0.002
    assert 0.256 < quantile(0.99, first, last) < 0.512
    assert quantile(0.5, last, last) is None
    assert quantile(0.5, (), ()) is None


def test_a_time_beyond_the_last_bucket_is_the_last_bound(metrics):
    answer(metrics, [Code.VALID], 60.0)
    assert quantile(0.99, (), metrics.totals().total_s) == 10
