"""The cost model: who gets a batch, and how one is shared."""

from __future__ import annotations

import pytest
from _by_hand import KEY, HandDevice
from hypothesis import given
from hypothesis import strategies as st

from verifier.model import BatchKey
from verifier.scheduling import Load, Router

CPU, GPU, GPU2 = (
    HandDevice(name, kind).device for name, kind in (("cpu", "cpu"), ("cuda:0", "cuda"), ("cuda:1", "cuda"))
)


@pytest.fixture
def router() -> Router:
    """A CPU of 20 us + 10 us an item; GPUs of 200 us + 0.1 us an item: they meet at about 18 items."""
    router = Router()
    router.measure(CPU, KEY, (1, 30e-6), (1001, 10030e-6))
    for gpu in (GPU, GPU2):
        router.measure(gpu, KEY, (1, 200.1e-6), (10001, 1200.1e-6))
    return router


def test_a_measurement_gives_both_terms(router):
    cost = router.cost(CPU, KEY)
    assert cost.fixed == pytest.approx(20e-6)
    assert cost.per_unit == pytest.approx(10e-6)


def test_few_items_go_to_the_cpu_and_many_to_the_gpu(router):
    loads = [Load(CPU), Load(GPU)]
    assert router.shares(KEY, 10, loads)[0].device_id == "cpu"
    assert router.shares(KEY, 30, loads)[0].device_id == "cuda:0"
    assert [share.device_id for share in router.shares(KEY, 100_000, loads)] == ["cuda:0"], "the CPU's part is crumbs"


def test_a_busy_gpu_gives_small_work_to_the_cpu_and_keeps_what_it_does_sooner(router):
    loads = [Load(CPU), Load(GPU, busy_s=0.002)]
    assert router.shares(KEY, 100, loads)[0].device_id == "cpu"
    assert router.shares(KEY, 1000, loads)[0].device_id == "cuda:0"


def test_a_large_batch_is_shared_so_that_all_finish_together(router):
    shares = router.shares(KEY, 1_000_000, [Load(GPU), Load(GPU2, busy_s=0.01)])
    assert {share.device_id for share in shares} == {"cuda:0", "cuda:1"}
    assert sum(share.units for share in shares) == pytest.approx(1_000_000, abs=1)
    units = {share.device_id: share.units for share in shares}
    assert units["cuda:0"] - units["cuda:1"] == pytest.approx(100_000, rel=0.01), "0.01 s are 100,000 items"


def test_no_devices_no_shares(router):
    assert router.shares(KEY, 100, []) == []


def test_observations_move_the_term_that_dominates(router):
    for _ in range(60):
        router.observe(CPU, KEY, 10_000, 0.2)
        router.observe(GPU, KEY, 1, 0.001)
    assert router.cost(CPU, KEY).per_unit == pytest.approx(20e-6, rel=0.05)
    assert router.cost(GPU, KEY).fixed == pytest.approx(1e-3, rel=0.05)
    assert router.cost(GPU, KEY).per_unit == pytest.approx(1e-7)


def test_other_parameters_begin_with_what_is_known_of_the_operation(router):
    like = router.cost(CPU, BatchKey(KEY.plugin, KEY.operation, (2,)))
    assert (like.fixed, like.per_unit) == (router.cost(CPU, KEY).fixed, router.cost(CPU, KEY).per_unit)
    router.observe(CPU, BatchKey(KEY.plugin, KEY.operation, (2,)), 10_000, 1.0)
    assert router.cost(CPU, KEY).per_unit == pytest.approx(10e-6), "and then have costs of their own"


def test_what_is_known_of_the_operation_counts_as_measured(router):
    """Bounds in time rest on it: otherwise a scheme's first launches on each device would have none."""
    other = BatchKey(KEY.plugin, KEY.operation, (2,))
    assert router.knows(other, [CPU, GPU])
    assert router.cost(CPU, other).measured
    assert not router.knows(BatchKey(KEY.plugin, "digest/EVEN"), [CPU])


def test_a_guess_gives_way_to_the_first_measurement_of_the_operation():
    router, other = Router(), BatchKey(KEY.plugin, KEY.operation, (2,))
    assert not router.cost(CPU, other).measured
    router.measure(CPU, KEY, (1, 30e-6), (1001, 10030e-6))
    assert router.cost(CPU, other).per_unit == pytest.approx(10e-6)


def test_a_guess_is_moved_by_what_is_observed():
    router = Router()
    for _ in range(60):
        router.observe(CPU, KEY, 10_000, 0.2)
    assert router.cost(CPU, KEY).per_unit == pytest.approx(20e-6, rel=0.05)


def test_unmeasured_devices_are_guessed_by_kind():
    router = Router()
    assert router.shares(KEY, 1, [Load(CPU), Load(GPU)])[0].device_id == "cpu"
    assert router.shares(KEY, 100_000, [Load(CPU), Load(GPU)])[0].device_id == "cuda:0"
    assert router.preferred_units() is None


@given(
    units=st.integers(1, 10**7),
    busy=st.lists(st.floats(0, 1), min_size=1, max_size=5),
    per_unit=st.lists(st.floats(1e-9, 1e-3), min_size=5, max_size=5),
)
def test_shares_cover_the_batch_and_are_no_slower_than_one_device(units, busy, per_unit):
    router = Router()
    devices = [HandDevice(f"d{i}").device for i in range(len(busy))]
    for device, rate in zip(devices, per_unit, strict=False):
        router.measure(device, KEY, (1, 1e-4 + rate), (1001, 1e-4 + 1001 * rate))
    loads = [Load(device, seconds) for device, seconds in zip(devices, busy, strict=True)]
    shares = router.shares(KEY, units, loads)
    assert sum(share.units for share in shares) == pytest.approx(units, abs=len(shares))
    alone = min(load.busy_s + router.cost(load.device, KEY).seconds(units) for load in loads)
    assert max(share.done_s for share in shares) <= alone * (1 + 1e-9) + 1e-9
