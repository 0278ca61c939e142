"""The scheduler on real workers with the toy plugin: what is merged, cut and moved is still right."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import pytest

from verifier.model import Batch, BatchResult, Column
from verifier.registry import Registry, RegistryOptions
from verifier.scheduling import Scheduler, SchedulingOptions, measure
from verifier.workers import Fleet

PARITY = Path(__file__).parents[1] / "fixtures" / "plugins" / "parity"
TIMEOUT_S = 60


@pytest.fixture
def stack(monkeypatch, tmp_path):
    """Two fake devices, the toy on both, a scheduler with small launches."""
    monkeypatch.setenv("VERIFIER_FAKE_DEVICES", "2")
    fleet = Fleet(["fake:0", "fake:1"])
    registry = Registry(fleet, RegistryOptions(trust="any", cache=tmp_path))
    fleet.start()
    registry.load(PARITY)
    scheduler = Scheduler(fleet.workers, registry.lease, SchedulingOptions(launch_items=5000, unserved_wait_s=60))
    for worker in fleet.workers:
        worker.on_room = scheduler.wake
    scheduler.start()
    yield fleet, registry, scheduler
    scheduler.close()
    registry.close()
    fleet.close()


def _batch(registry: Registry, data: np.ndarray) -> Batch:
    resolved = registry.resolve("verify", "PARITY")
    return Batch(resolved.key({"input_kind": 2}), len(data), (Column(data.reshape(-1), 32),))


def _assert_right(result: BatchResult, data: np.ndarray) -> None:
    def bits(bitmap):
        return np.unpackbits(bitmap, count=len(data), bitorder="little").astype(bool)

    assert bits(result.decided).all()
    np.testing.assert_array_equal(bits(result.valid), data.sum(axis=1) % 2 == 0)
    np.testing.assert_array_equal(result.codes == 1, data.sum(axis=1) % 2 == 0)


def test_a_large_batch_is_done_by_both_devices(stack):
    _, registry, scheduler = stack
    data = np.random.default_rng(1).integers(0, 256, (200_001, 32), dtype=np.uint8)
    result = scheduler.submit(_batch(registry, data)).result(TIMEOUT_S)
    _assert_right(result, data)
    assert result.device == "fake:0,fake:1"
    assert result.served_by == registry.active()[0].label


def test_many_small_batches_at_once(stack):
    _, registry, scheduler = stack
    rng = np.random.default_rng(2)
    batches = [rng.integers(0, 256, (int(n), 32), dtype=np.uint8) for n in rng.integers(1, 300, 500)]
    futures = [scheduler.submit(_batch(registry, data), caller=str(i % 7)) for i, data in enumerate(batches)]
    for future, data in zip(futures, batches, strict=True):
        _assert_right(future.result(TIMEOUT_S), data)
    assert scheduler.held() == {}
    assert registry.index()[0].leases == 0


def test_a_worker_that_dies_costs_no_verdict(stack):
    fleet, registry, scheduler = stack
    data = np.random.default_rng(3).integers(0, 256, (500_000, 32), dtype=np.uint8)
    future = scheduler.submit(_batch(registry, data))
    os.kill(fleet.workers[0].pid, signal.SIGKILL)
    _assert_right(future.result(TIMEOUT_S), data)
    assert registry.index()[0].leases == 0


def test_a_swap_under_load_fails_nothing(stack):
    _, registry, scheduler = stack
    data = np.random.default_rng(4).integers(0, 256, (50_000, 32), dtype=np.uint8)
    futures = [scheduler.submit(_batch(registry, data)) for _ in range(4)]
    second = registry.load(PARITY, force=True)
    futures += [scheduler.submit(_batch(registry, data)) for _ in range(4)]
    results = [future.result(TIMEOUT_S) for future in futures]
    for result in results:
        _assert_right(result, data)
    assert {result.served_by for result in results[4:]} == {second.label}


class _Long:
    """Known answers of a quarter of a megabyte each."""

    operation_index = 0

    def __init__(self, registry: Registry) -> None:
        self.key = registry.resolve("verify", "PARITY").key({"input_kind": 1})
        self.codes = np.ones(4, np.uint8)
        self.asked: list[int] = []

    def tiled(self, items: int):
        self.asked.append(items)
        width = 1 << 18
        offsets = (np.arange(items + 1) * width).astype(np.uint32)
        column = Column(np.zeros(items * width, np.uint8), 0, offsets)
        return Batch(self.key, items, (column,)), np.arange(items)


def test_measuring_with_long_messages_is_bounded_in_bytes(stack):
    _, registry, scheduler = stack
    answers = _Long(registry)
    measure(scheduler, registry.active()[0], [answers])
    assert 4 < max(answers.asked) <= 32, "8 MiB of them, not 512 items"
    assert all(cost.measured for cost in scheduler._core.router._costs.values())


def test_measuring_replaces_the_guess(stack):
    _, registry, scheduler = stack
    instance = registry.active()[0]
    before = scheduler.preferred_items()
    measure(scheduler, instance, instance.answers)
    costs = scheduler._core.router._costs
    measured = {(key[0], key[2]) for key, cost in costs.items() if cost.measured}
    assert measured == {(d, o) for d in ("fake:0", "fake:1") for o in ("verify/PARITY", "digest/PARITY")}
    assert all(cost.fixed > 0 and cost.per_unit > 0 for cost in costs.values())
    assert before == 65536
    assert scheduler.preferred_items() in {1 << n for n in range(10, 19)}
