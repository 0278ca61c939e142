"""What is counted of batches is put off, and there when it is looked at."""

from __future__ import annotations

import weakref

import numpy as np
import pytest
from prometheus_client import generate_latest

from verifier.model import BatchResult, Code, Timings
from verifier.telemetry import Metrics, _metrics


@pytest.fixture
def metrics():
    return Metrics()


def answer(metrics: Metrics) -> None:
    codes = np.array([Code.VALID, Code.INVALID, Code.KEY_RANGE, Code.UNDECIDED], np.uint8)
    valid, decided = (np.packbits(bits, bitorder="little") for bits in (codes == Code.VALID, codes != Code.UNDECIDED))
    metrics.answered("sm2", BatchResult(4, valid, decided, codes, timings=Timings(1, 2, 3)))
    metrics.launched("sm2", "cpu", 4, Timings(device_ns=2))


def test_whoever_looks_sees_what_was_put_off(metrics):
    for looks in range(1, 4):
        answer(metrics)
        for verdict in ("valid", "invalid", "malformed", "undetermined"):
            labels = {"plugin": "sm2", "verdict": verdict}
            assert metrics.registry.get_sample_value("verifier_items_total", labels) == looks


def test_so_does_whoever_asks_for_some_metrics_only(metrics):
    answer(metrics)
    some = metrics.registry.restricted_registry(["verifier_batches_total"])
    assert b'verifier_batches_total{device="cpu",plugin="sm2"} 1.0' in generate_latest(some)


def test_so_does_the_status_page(metrics):
    answer(metrics)
    totals = metrics.totals()
    assert totals.items == {"valid": 1, "invalid": 1, "malformed": 1, "undetermined": 1}
    assert totals.launched == {"cpu": 4}


def test_what_is_put_off_is_bounded(metrics):
    for _ in range(_metrics._MOST_PUT_OFF):
        answer(metrics)
        assert len(metrics._put_off) <= _metrics._MOST_PUT_OFF


@pytest.mark.parametrize("part", [False, True], ids=["a large one", "a part of a launch"])
def test_what_is_put_off_holds_on_to_no_more_than_a_small_answer(metrics, part):
    items = 10 if part else _metrics._FEW + 1
    launch = np.full(2 * items, Code.VALID, np.uint8)
    codes = launch[:items] if part else launch[:items].copy()
    bits = np.packbits(codes == Code.VALID, bitorder="little")
    metrics.answered("sm2", BatchResult(items, bits, bits.copy(), codes))
    held = [weakref.ref(launch), weakref.ref(codes)]
    del launch, codes
    assert [each() for each in held] == [None, None]
    assert metrics.totals().items == {"valid": items}


def test_who_has_time_settles_what_is_put_off(metrics):
    answer(metrics)
    assert metrics._put_off
    metrics.settle()
    assert not metrics._put_off
