"""Merging, cutting, faults and swaps, on devices that the test moves."""

from __future__ import annotations

import numpy as np
import pytest
from _by_hand import HandDevice, batch, firsts, judge, ragged

from verifier.errors import BackendError, DeadlineError, NotServedError, RequestError, StoppingError
from verifier.model import BatchResult
from verifier.workers import WorkerState

RNG = np.random.default_rng(20260730)


def _values(items):
    return RNG.integers(0, 256, items, dtype=np.uint8)


def assert_right(result: BatchResult, values) -> None:
    whole = judge(batch(values))
    np.testing.assert_array_equal(result.valid, whole.valid)
    np.testing.assert_array_equal(result.decided, whole.decided)
    np.testing.assert_array_equal(result.codes, whole.codes)
    np.testing.assert_array_equal(result.outputs[0], whole.outputs[0])


def assert_undetermined(result: BatchResult, items: int) -> None:
    assert result.items == items
    assert not result.decided.any()
    assert not result.valid.any()
    assert not result.codes.any()


def test_what_waits_while_the_device_is_busy_is_merged(bench):
    device = HandDevice("cpu")
    made = bench(device, launches_per_device=1)
    values = [_values(n) for n in (1, 5, 33, 64, 7)]
    futures = [made.submit(batch(v)) for v in values[:1]]
    made.poll()
    futures += [made.submit(batch(v)) for v in values[1:]]
    made.settle()
    assert device.given == [[1], [5, 33, 64, 7]]
    for future, expected in zip(futures, values, strict=True):
        assert_right(future.result(0), expected)
        assert future.result(0).served_by == "even@1.0.0#1"
        assert future.result(0).device == "cpu"


def test_a_launch_is_bounded_in_items_and_the_rest_follows(bench):
    device = HandDevice("cpu")
    made = bench(device, launch_items=100)
    values = _values(250)
    future = made.submit(batch(values))
    made.settle()
    assert device.given == [[96], [96], [58]], "cuts are at whole words of the bitmap"
    assert_right(future.result(0), values)


def test_a_launch_is_bounded_in_bytes_with_uneven_items(bench):
    device = HandDevice("cpu")
    made = bench(device, launch_bytes=4000)
    values = _values(300)
    widths = RNG.integers(1, 60, 300)
    widths[10] = 1500
    future = made.submit(ragged(values, widths))
    made.settle()
    assert len(device.given) >= 3
    assert_right(future.result(0), values)


def test_a_launch_fits_the_devices_slot(bench):
    device = HandDevice("cpu", fits_bytes=400)
    made = bench(device, launch_bytes=300, launch_items=1 << 20)
    values = _values(500)
    future = made.submit(batch(values, width=2))
    made.settle()
    assert len(device.given) > 1
    assert_right(future.result(0), values)


def test_a_large_batch_is_cut_over_devices(bench):
    first, second = HandDevice("cuda:0", "cuda"), HandDevice("cuda:1", "cuda")
    made = bench(first, second)
    values = _values(100_003)
    future = made.submit(batch(values))
    made.poll()
    assert first.given
    assert second.given
    made.settle()
    assert_right(future.result(0), values)
    assert future.result(0).device == "cuda:0,cuda:1"


def test_batching_is_invisible_in_the_verdicts(bench):
    """The same requests, alone and merged and cut, give the same bits."""
    sizes = RNG.integers(1, 400, 60)
    values = [_values(n) for n in sizes]
    for options in ({}, {"launch_items": 64}, {"launches_per_device": 1}, {"launch_bytes": 256}):
        made = bench(HandDevice("cpu"), HandDevice("cuda:0", "cuda"), **options)
        futures = [made.submit(batch(v), caller=str(i % 5)) for i, v in enumerate(values)]
        made.settle()
        for future, expected in zip(futures, values, strict=True):
            assert_right(future.result(0), expected)


def test_a_failed_launch_runs_again_on_another_device(bench):
    cpu, gpu = HandDevice("cpu", state=WorkerState.DOWN), HandDevice("cuda:0", "cuda")
    made = bench(cpu, gpu)
    values = _values(100_000)
    future = made.submit(batch(values))
    made.poll()
    assert len(gpu.running) == 1
    cpu.state = WorkerState.UP
    gpu.fail()
    made.poll()
    assert len(cpu.running) == 1
    made.settle()
    assert_right(future.result(0), values)
    assert future.result(0).device == "cpu"


def test_a_failed_launch_runs_again_on_the_restarted_device_where_there_is_no_other(bench):
    device = HandDevice("cpu")
    made = bench(device)
    future = made.submit(batch([2, 3]))
    made.poll()
    device.die()
    assert made.poll() == 0
    assert not future.done()
    device.state = WorkerState.UP
    made.settle()
    assert_right(future.result(0), [2, 3])


def test_after_the_last_try_items_are_undetermined_never_invalid(bench):
    device = HandDevice("cpu")
    made = bench(device, retries=2)
    future = made.submit(batch([2, 3, 4]))
    for _ in range(3):
        made.poll()
        device.fail()
    assert made.poll() == 0
    assert_undetermined(future.result(0), 3)
    assert made.leases.active.leases == 0
    assert made.scheduler.held() == {}


def test_merged_requests_run_again_one_by_one(bench):
    """One caller's poison must not take the others' batches with it twice."""
    device = HandDevice("cpu")
    made = bench(device, launches_per_device=1, retries=1)
    made.submit(batch([0]))
    made.poll()
    good, poison = made.submit(batch([2])), made.submit(batch([4]))
    device.finish()
    made.poll()
    assert device.given[-1] == [1, 1]
    device.fail()
    made.poll()
    device.finish()
    made.poll()
    device.fail()
    assert_right(good.result(0), [2])
    assert_undetermined(poison.result(0), 1)


def test_what_a_lost_device_had_runs_again_alone(bench):
    """One batch ends the device whenever it runs there: it costs the two beside it one try, and a later one none."""
    device = HandDevice("cpu")
    made = bench(device, launches_per_device=3, retries=2)
    futures = []
    for value in (4, 2, 3):
        futures.append(made.submit(batch([value])))
        made.poll()
    assert len(device.running) == 3
    poison, *others = futures
    device.die()
    device.state = WorkerState.UP
    later = made.submit(batch([5]))
    order = []
    while not later.done():
        made.poll()
        (running,) = device.running
        value = int(firsts(running.parts[0])[0])
        order.append(value)
        if value == 4:
            device.die()
            device.state = WorkerState.UP
        else:
            device.finish()
    assert order == [3, 2, 4, 4, 5]
    assert_undetermined(poison.result(0), 1)
    for future, value in zip(others, (2, 3), strict=True):
        assert_right(future.result(0), [value])
    assert_right(later.result(0), [5])


def test_merged_requests_are_split_for_the_last_try_only(bench):
    device = HandDevice("cpu")
    made = bench(device, launches_per_device=1, retries=2)
    made.submit(batch([0]))
    made.poll()
    good, poison = made.submit(batch([2])), made.submit(batch([4]))
    device.finish()
    for expected in ([1, 1], [1, 1], [1]):
        made.poll()
        assert device.given[-1] == expected
        if len(expected) == 2:
            device.fail()
    device.finish()
    made.poll()
    device.fail()
    assert_right(good.result(0), [2])
    assert_undetermined(poison.result(0), 1)


def test_a_piece_that_fails_leaves_the_others_decided(bench):
    device = HandDevice("cpu")
    made = bench(device, launch_items=64, retries=0)
    values = _values(192)
    future = made.submit(batch(values))
    made.poll()
    assert device.given == [[64], [64], [64]]
    device.fail(1)
    made.settle()
    result = future.result(0)
    decided = np.unpackbits(result.decided, bitorder="little").astype(bool)
    np.testing.assert_array_equal(decided, np.repeat([True, False, True], 64))
    whole = judge(batch(values))
    np.testing.assert_array_equal(result.codes[decided], whole.codes[decided])
    assert not result.codes[~decided].any()
    assert not np.unpackbits(result.valid, bitorder="little")[~decided].any()


def test_a_batch_that_the_device_did_not_begin_in_time_is_undetermined(bench):
    device = HandDevice("cpu")
    made = bench(device)
    future = made.submit(batch([2]), deadline=made.clock.now + 1)
    made.poll()
    made.clock.now += 2
    device.fail(error=DeadlineError("late"))
    made.poll()
    assert_undetermined(future.result(0), 1)


def test_no_second_try_after_the_deadline(bench):
    device = HandDevice("cpu")
    made = bench(device)
    future = made.submit(batch([2]), deadline=made.clock.now + 1)
    made.poll()
    made.clock.now += 1
    device.fail()
    assert made.poll() == 0
    assert_undetermined(future.result(0), 1)


def test_a_batch_that_the_device_refuses_is_not_tried_again(bench):
    device = HandDevice("cpu")
    made = bench(device)
    future = made.submit(batch([2]))
    made.poll()
    device.fail(error=RequestError("batch", "does not fit"))
    assert made.poll() == 0
    assert_undetermined(future.result(0), 1)


def test_requests_wait_for_a_device_and_are_undetermined_in_the_end(bench):
    device = HandDevice("cpu", state=WorkerState.DOWN)
    other = HandDevice("cpu:1")
    made = bench(device, other, unserved_wait_s=10.0)
    made.leases.active.workers = [device]
    future = made.submit(batch([2]))
    made.clock.now += 9
    assert made.poll() == 0
    assert made.leases.active.leases == 0, "waiting for a device holds no instance"
    assert not future.done()
    made.clock.now += 2
    assert made.poll() == 0
    assert_undetermined(future.result(0), 1)
    later = made.submit(batch([2]))
    made.poll()
    device.state = WorkerState.UP
    made.settle()
    assert_right(later.result(0), [2])


def test_a_plugin_that_went_while_a_request_waited(bench):
    device = HandDevice("cpu")
    made = bench(device, launches_per_device=1)
    made.submit(batch([0]))
    made.poll()
    future = made.submit(batch([2]))
    made.leases.active = None
    device.finish()
    made.poll()
    with pytest.raises(NotServedError):
        future.result(0)


def test_a_registry_that_fails_unforeseen_costs_one_request_only(bench):
    device = HandDevice("cpu")
    made = bench(device)
    lease, calls = made.scheduler._core._lease, []

    def failing(key):
        calls.append(key)
        if len(calls) == 1:
            raise ZeroDivisionError
        return lease(key)

    made.scheduler._core._lease = failing
    first, second = made.submit(batch([2])), made.submit(batch([4]))
    made.settle()
    with pytest.raises(ZeroDivisionError):
        first.result(0)
    assert_right(second.result(0), [4])


def test_a_batch_never_mixes_instances(bench):
    device = HandDevice("cpu")
    made = bench(device, launch_items=32, launches_per_device=1)
    old = made.leases.active
    values = _values(96)
    cut = made.submit(batch(values))
    made.poll()
    new = made.leases.swap()
    after = made.submit(batch([2]))
    served = []
    while device.running:
        served.append((device.running[0].instance_id, [part.items for part in device.running[0].parts]))
        device.finish()
        made.poll()
    assert sorted(served) == [(old.id, [32]), (old.id, [32]), (old.id, [32]), (new.id, [1])]
    assert_right(cut.result(0), values)
    assert cut.result(0).served_by == old.label
    assert after.result(0).served_by == new.label
    assert old.leases == new.leases == 0


def test_another_run_stays_on_its_instance(bench):
    device = HandDevice("cpu")
    made = bench(device)
    old = made.leases.active
    future = made.submit(batch([2]))
    made.poll()
    made.leases.swap()
    device.fail()
    made.settle()
    assert future.result(0).served_by == old.label
    assert old.leases == 0


def test_launches_in_flight_are_bounded(bench):
    device = HandDevice("cpu", slots=8)
    made = bench(device, launches_per_device=2, launch_items=32)
    made.submit(batch(_values(320)))
    made.poll()
    assert len(device.running) == 2


def test_no_launch_without_room(bench):
    device = HandDevice("cpu", slots=1)
    made = bench(device, launch_items=32)
    made.submit(batch(_values(320)))
    made.poll()
    assert len(device.running) == 1


def test_timings(bench):
    device = HandDevice("cpu")
    made = bench(device, launches_per_device=1)
    made.submit(batch([0]))
    made.poll()
    future = made.submit(batch([2]))
    made.clock.now += 2
    device.finish()
    made.poll()
    made.clock.now += 3
    device.finish()
    timings = future.result(0).timings
    assert (timings.queue_ns, timings.total_ns, timings.device_ns) == (2_000_000_000, 5_000_000_000, 1000)


def test_drain_refuses_new_work_and_reports_what_is_left(bench):
    device = HandDevice("cpu")
    made = bench(device)
    future = made.submit(batch([2]))
    made.poll()
    made.clock.now += 1
    assert made.scheduler.drain(0) == {"even": 1}
    with pytest.raises(StoppingError):
        made.submit(batch([2]))
    device.finish()
    assert made.scheduler.drain(0) == {}
    assert_right(future.result(0), [2])


def test_close_answers_everything(bench):
    device = HandDevice("cpu")
    made = bench(device, launches_per_device=1)
    running = made.submit(batch([0]))
    made.poll()
    waiting = made.submit(batch([2]))
    made.scheduler.close()
    with pytest.raises(StoppingError):
        waiting.result(0)
    device.fail(error=BackendError("closed"))
    assert_undetermined(running.result(0), 1)


def test_a_callback_may_submit_again(bench):
    """Answers are given without the lock: a caller that submits from a callback is not stuck."""
    device = HandDevice("cpu")
    made = bench(device)
    again = []
    future = made.submit(batch([0]))
    future.add_done_callback(lambda _: again.append(made.submit(batch([2]))))
    made.settle()
    assert_right(again[0].result(0), [2])
