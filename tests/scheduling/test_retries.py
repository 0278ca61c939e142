"""What failed runs again, and what cannot is undetermined, never invalid."""

from __future__ import annotations

import numpy as np
import pytest
from _by_hand import HandDevice, batch, firsts, judge
from _verdicts import _values, assert_right, assert_undetermined

from verifier.errors import DeadlineError, RequestError
from verifier.scheduling import _work
from verifier.workers import WorkerState


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


def test_a_batch_that_cannot_be_cut_just_now_is_not_lost(bench, monkeypatch):
    """For want of memory, for instance. The launch would be in flight for good: no answer, and room for one less."""
    device = HandDevice("cpu")
    made = bench(device, launches_per_device=1, retries=1)
    cut, failures = _work.cut, [MemoryError()]

    def no_memory(*arguments):
        if failures:
            raise failures.pop()
        return cut(*arguments)

    monkeypatch.setattr(_work, "cut", no_memory)
    future = made.submit(batch([2, 3]))
    made.settle()
    assert_right(future.result(0), [2, 3])
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


@pytest.mark.parametrize("others", [["cpu:1"], []], ids=["another is up", "none is up"])
def test_requests_wait_for_a_device_and_are_undetermined_in_the_end(bench, others):
    device = HandDevice("cpu", state=WorkerState.DOWN)
    made = bench(device, *map(HandDevice, others), unserved_wait_s=10.0)
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


def test_a_callback_may_submit_again(bench):
    """Answers are given without the lock: a caller that submits from a callback is not stuck."""
    device = HandDevice("cpu")
    made = bench(device)
    again = []
    future = made.submit(batch([0]))
    future.add_done_callback(lambda _: again.append(made.submit(batch([2]))))
    made.settle()
    assert_right(again[0].result(0), [2])
