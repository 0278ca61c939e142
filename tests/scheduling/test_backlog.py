"""Bounds, order, fairness, deadlines and cancellation of what waits."""

from __future__ import annotations

from concurrent.futures import CancelledError
from dataclasses import replace

import numpy as np
import pytest
from _by_hand import KEY, HandDevice, batch, firsts, ragged
from hypothesis import given
from hypothesis import strategies as st

from verifier.errors import CapacityError, DeadlineError
from verifier.model import Batch, BatchKey, Column
from verifier.scheduling import Priority, QueueLimits
from verifier.scheduling._work import Work, units


def _one_at_a_time(bench, **options):
    device = HandDevice("cpu")
    made = bench(device, launches_per_device=1, **options)
    first = made.submit(batch([0]))
    made.poll()
    assert len(device.running) == 1
    return made, device, first


def _order(device):
    """Which values were launched, launch by launch."""
    seen = []
    while device.running:
        seen.append([int(v) for part in device.running[0].parts for v in part.inputs[0].data])
        device.finish()
    return seen


def _serve_all(made, device):
    seen = []
    while True:
        made.poll()
        if not device.running:
            return seen
        seen += _order(device)


def _keyed(value: int) -> BatchKey:
    return BatchKey("even", "verify/EVEN", (value,))


def test_urgent_classes_go_first(bench):
    made, device, _ = _one_at_a_time(bench)
    for value, priority in ((4, Priority.BULK), (3, Priority.POOL), (1, Priority.CONSENSUS), (2, Priority.BLOCK)):
        made.submit(batch([value], _keyed(value)), priority=priority)
    assert _serve_all(made, device) == [[0], [1], [2], [3], [4]]


def test_a_caller_with_many_requests_does_not_keep_another_waiting(bench):
    made, device, _ = _one_at_a_time(bench)
    for value in range(10, 20):
        made.submit(batch([value], _keyed(value)), caller="busy")
    made.submit(batch([99], _keyed(99)), caller="quiet")
    served = _serve_all(made, device)
    assert served.index([99]) <= 2


def test_fairness_counts_items_not_requests(bench):
    made, device, _ = _one_at_a_time(bench)
    for value in range(10, 14):
        made.submit(batch([value] * 100, _keyed(value)), caller="big")
    for value in range(20, 30):
        made.submit(batch([value], _keyed(value)), caller="small")
    served = [launch[0] for launch in _serve_all(made, device)]
    # After one big request the ten small ones, which together are less, all come before the second.
    assert set(served[: served.index(11)]) >= set(range(20, 30))


def test_a_launch_is_filled_with_less_urgent_work_of_the_same_key(bench):
    made, device, _ = _one_at_a_time(bench)
    made.submit(batch([2]), priority=Priority.BULK)
    made.submit(batch([4]), priority=Priority.BLOCK)
    made.submit(batch([6]), priority=Priority.CONSENSUS)
    assert _serve_all(made, device) == [[0], [6], [4, 2]]  # but for what overtakes


@pytest.mark.parametrize(
    ("limits", "what"),
    [
        (QueueLimits(items=100, bytes=1 << 20, caller_share=1.0), "items"),
        (QueueLimits(1 << 20, 100, caller_share=1.0), "bytes"),
    ],
)
def test_queues_are_bounded(bench, limits, what):
    made = bench(HandDevice("cpu"), queue=limits)
    made.submit(batch([0] * 60), priority=Priority.CONSENSUS)
    with pytest.raises(CapacityError, match=rf"queue of even is full: 60 of 100 {what}") as refused:
        made.submit(batch([0] * 60), priority=Priority.CONSENSUS)
    assert 0 < refused.value.retry_after_s <= 5
    made.settle()
    made.submit(batch([0] * 60), priority=Priority.CONSENSUS)


def test_what_is_in_flight_still_counts(bench):
    made, _, _ = _one_at_a_time(bench, queue=QueueLimits(items=1, bytes=100, caller_share=1.0))
    with pytest.raises(CapacityError):
        made.submit(batch([0]))


def test_one_caller_may_not_fill_the_queue(bench):
    made = bench(HandDevice("cpu"), queue=QueueLimits(items=100, bytes=1 << 20, caller_share=0.5))
    made.submit(batch([0] * 50), caller="a")
    with pytest.raises(CapacityError, match="caller's share"):
        made.submit(batch([0]), caller="a")
    made.submit(batch([0]), caller="b")


def test_bulk_work_leaves_room_for_consensus(bench):
    made = bench(HandDevice("cpu"), queue=QueueLimits(items=100, bytes=1 << 20, caller_share=1.0))
    made.submit(batch([0] * 75), priority=Priority.BULK)
    with pytest.raises(CapacityError):
        made.submit(batch([0]), priority=Priority.BULK)
    made.submit(batch([0] * 25), priority=Priority.CONSENSUS)


def test_an_empty_queue_takes_a_batch_above_its_bound(bench):
    made = bench(HandDevice("cpu"), queue=QueueLimits(items=10, bytes=10))
    future = made.submit(batch([0] * 1000))
    made.settle()
    assert future.result(0).items == 1000


def test_a_deadline_that_passes_in_the_queue(bench):
    made, device, _ = _one_at_a_time(bench)
    late = made.submit(batch([2]), deadline=made.clock.now + 1)
    in_time = made.submit(batch([4]), deadline=made.clock.now + 10)
    made.clock.now += 1
    made.poll()
    with pytest.raises(DeadlineError, match="while the batch waited"):
        late.result(0)
    assert _serve_all(made, device) == [[0], [4]]
    assert in_time.result(0).items == 1


def test_a_deadline_in_the_past_is_refused(bench):
    made = bench(HandDevice("cpu"))
    with pytest.raises(DeadlineError, match="had passed"):
        made.submit(batch([0]), deadline=made.clock.now)


def test_the_device_is_told_the_latest_deadline(bench):
    made, device, _ = _one_at_a_time(bench)
    now = made.clock.now
    made.submit(batch([2]), deadline=now + 5)
    made.submit(batch([4]), deadline=now + 9)
    device.finish()
    made.poll()
    assert device.running[0].deadline == now + 9
    made.submit(batch([6]), deadline=now + 5)
    made.submit(batch([8]))
    device.finish()
    made.poll()
    assert device.running[0].deadline is None


def test_cancelled_work_is_not_launched_and_frees_its_place(bench):
    made, device, _ = _one_at_a_time(bench, queue=QueueLimits(items=3, bytes=100, caller_share=1.0))
    dropped = made.submit(batch([2, 2]), priority=Priority.CONSENSUS)
    assert dropped.cancel()
    kept = made.submit(batch([4, 4]), priority=Priority.CONSENSUS)
    assert _serve_all(made, device) == [[0], [4, 4]]
    with pytest.raises(CancelledError):
        dropped.result(0)
    assert kept.result(0).items == 2
    assert made.scheduler.held() == {}
    assert made.leases.active.leases == 0


def test_work_cancelled_in_flight_keeps_its_place_until_the_device_is_done(bench):
    made, device, first = _one_at_a_time(bench)
    assert first.cancel()
    assert made.scheduler.held()["even"].items == 1
    assert made.leases.active.leases == 1
    device.finish()
    assert made.scheduler.held() == {}
    assert made.leases.active.leases == 0


def test_the_batch_delay_waits_for_company_and_no_longer(bench):
    device = HandDevice("cpu")
    made = bench(device, batch_delay_s=0.010, launch_items=64)
    made.submit(batch([2]))
    assert made.poll() == 0
    made.clock.now += 0.004
    made.submit(batch([4]))
    assert made.poll() == 0
    made.clock.now += 0.006
    assert made.poll() == 1
    assert device.given == [[1, 1]]
    made.submit(batch([0] * 64))
    assert made.poll() == 1, "a full launch does not wait"


def test_what_is_due_and_waits_for_a_device_is_not_looked_at_by_the_clock(bench):
    device = HandDevice("cpu")
    made = bench(device, batch_delay_s=0.010, launches_per_device=1)
    made.submit(batch([2]))
    made.poll()
    assert made.scheduler._core.next_time() == pytest.approx(made.clock() + 0.010)
    made.clock.now += 0.020
    assert made.poll() == 1
    made.submit(batch([4]))
    made.clock.now += 0.020
    assert made.poll() == 0
    assert made.scheduler._core.next_time() == float("inf")
    device.finish()
    assert made.poll() == 1


def test_without_a_delay_an_idle_device_gets_work_at_once(bench):
    device = HandDevice("cpu")
    made = bench(device)
    made.submit(batch([2]))
    assert made.poll() == 1


@given(
    widths=st.lists(st.integers(0, 300), min_size=1, max_size=200),
    taken=st.integers(0, 199),
    max_items=st.integers(0, 250),
    max_bytes=st.integers(0, 20000),
    max_units=st.integers(-1, 300),
)
def test_fitting_is_the_longest_run_within_all_bounds(widths, taken, max_items, max_bytes, max_units):
    offsets = np.concatenate([[0], np.cumsum(widths)]).astype(np.uint32)
    columns = (
        Column(np.zeros(int(offsets[-1]), np.uint8), 0, offsets),
        Column(np.zeros(7 * len(widths), np.uint8), 7),
    )
    work = Work(Batch(KEY, len(widths), columns), Priority.POOL, "", None, 0.0)
    work.taken = min(taken, len(widths) - 1)
    best = 0
    for count in range(1, work.waiting + 1):
        nbytes = sum(widths[work.taken : work.taken + count]) + 7 * count + 4 * (count + 1)
        if count <= max_items and nbytes <= max_bytes and count + nbytes // 1024 <= max_units:
            best = count
    assert work.fitting(max_items, max_bytes, max_units) == best


def test_the_queue_is_bounded_in_seconds_of_work_where_the_rate_is_known(bench):
    """1,000 items a second; what is less urgent waits behind a request, so it does not count."""
    device = HandDevice("cpu")
    made = bench(device, launches_per_device=1, queue=QueueLimits(seconds=4.0, caller_share=1.0))
    made.submit(batch([0] * 3900))  # nothing is measured yet: an empty queue takes anything
    made.scheduler.measure(device, KEY, (1, 0.001), (1000, 1.0))
    for priority in (Priority.POOL, Priority.BULK):
        with pytest.raises(CapacityError, match=r"the queue of even is full: 3\.9 of 4\.0 s of work"):
            made.submit(batch([1] * 101), priority=priority, caller="another")
    made.submit(batch([2] * 3000), priority=Priority.CONSENSUS)
    with pytest.raises(CapacityError, match=r"full: 3\.0 of 4\.0 s of work"):
        made.submit(batch([2] * 1001), priority=Priority.CONSENSUS, caller="another")
    made.settle()
    made.submit(batch([1] * 3900), priority=Priority.BULK)


def test_one_caller_fills_its_share_of_the_seconds_only(bench):
    device = HandDevice("cpu")
    made = bench(device, launches_per_device=1, queue=QueueLimits(seconds=4.0, caller_share=0.5))
    made.scheduler.measure(device, KEY, (1, 0.001), (1000, 1.0))
    made.submit(batch([0] * 1900), caller="busy")
    with pytest.raises(
        CapacityError, match=r"the caller's share of the queue of even is full: 1\.9 of 2\.0 s of work"
    ):
        made.submit(batch([0] * 200), caller="busy")
    made.submit(batch([0] * 200), caller="other")


def test_both_bounds_in_time_hold_for_parameters_that_nobody_asked_for_before(bench):
    """10 us an item are known of the operation; a launch is 1,000 items, and 0.04 s are 4,000."""
    device = HandDevice("cpu")
    made = bench(device, launch_s=0.01, queue=QueueLimits(seconds=0.04, caller_share=1.0))
    made.scheduler.measure(device, KEY, (1, 1e-5), (100_000, 1.0))
    other = replace(KEY, parameters=(2,))
    made.submit(batch([0] * 3_900, other), priority=Priority.BULK)
    with pytest.raises(CapacityError, match=r"the queue of even is full: 0\.0 of 0\.0 s of work"):
        made.submit(batch([0] * 200, other), priority=Priority.BULK)
    made.poll()
    sizes = [sum(part.items for part in running.parts) for running in device.running]
    assert sizes == [pytest.approx(1000, rel=0.1)] * 2


def test_a_launch_is_no_longer_than_the_time_that_the_urgent_may_have_to_wait(bench):
    """10 us an item and 10 ms a launch: 1,000 items at a time, two in flight, and consensus is the third."""
    device = HandDevice("cpu")
    made = bench(device, launches_per_device=4, launch_s=0.01)
    made.scheduler.measure(device, KEY, (1, 1e-5), (100_000, 1.0))
    bulk = made.submit(batch([0] * 50_000), priority=Priority.BULK)
    made.poll()
    sizes = [sum(part.items for part in running.parts) for running in device.running]
    assert len(sizes) == 2
    assert all(900 <= size <= 1024 for size in sizes)
    made.submit(batch([2] * 10), priority=Priority.CONSENSUS)
    made.poll()
    assert len(device.running) == 2
    made.clock.now += 0.01  # the second one waited for the first, and has all of its work ahead
    device.finish()
    made.poll()
    assert firsts(device.running[1].parts[0])[0] == 2
    while device.running:
        device.finish()
        made.poll()
    assert bulk.result(0).items == 50_000
    assert bulk.result(0).decided.all()


def test_a_launch_is_no_longer_where_long_items_are_merged_with_a_short_one(bench):
    """10 us a unit and 10 ms a launch, which are 1,000 units; an item of 4,096 bytes is 5 of them."""
    device = HandDevice("cpu")
    made = bench(device, launches_per_device=1, launch_s=0.01)
    made.scheduler.measure(device, KEY, (1, 1e-5), (100_000, 1.0))
    futures = [made.submit(ragged([2] * 10, [1] * 10))]
    futures += [made.submit(ragged([2] * 50, [4096] * 50)) for _ in range(20)]
    sizes = []
    while made.poll():
        parts = device.running[0].parts
        sizes.append(sum(units(part.items, part.nbytes) for part in parts))
        device.finish()
    assert len(device.given[0]) > 1, "they are merged"
    assert max(sizes) <= 1024
    assert all(future.result(0).decided.all() for future in futures)
