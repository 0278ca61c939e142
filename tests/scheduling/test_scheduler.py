"""Merging, cutting, faults and swaps, on devices that the test moves."""

from __future__ import annotations

import pytest
from _by_hand import KEY, HandDevice, batch, ragged
from _verdicts import RNG, _values, assert_right, assert_undetermined

from verifier.errors import BackendError, NotServedError, StoppingError
from verifier.model import BatchKey


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


def test_what_needs_tables_goes_where_tables_are(bench):
    """But where none of those devices is up another one may say what it lacks."""
    key = BatchKey("even", "verify_enrolled/EVEN")
    without, having = HandDevice("cpu:0"), HandDevice("cpu:1")
    made = bench(without, having, table_devices=("cpu:1",))
    futures = [made.submit(batch([2, 3], key)) for _ in range(2)]
    made.submit(batch([2, 3]))
    made.poll()
    (launch,), (other,) = having.running, without.running
    assert [part.key for part in launch.parts] == [key, key]
    assert [part.key for part in other.parts] == [batch([2]).key]
    having.die()
    made.settle()
    for future in futures:
        assert_right(future.result(0), [2, 3])
        assert future.result(0).device == "cpu:0"


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


def test_a_launch_behind_another_counts_for_what_it_adds(bench):
    """The device had both from the start, and says that the second one took two seconds."""
    device, values = HandDevice("cpu"), _values(100_000)
    made = bench(device, launch_s=10.0, launch_items=values.size)
    cost = made.scheduler._core.router.measure(device.device, KEY, (1, 1e-3), (values.size, 3.0))
    futures = [made.submit(batch(values)) for _ in range(2)]
    made.poll()
    assert len(device.running) == 2
    for future, device_ns in zip(futures, (1_000_000_000, 2_000_000_000), strict=True):
        made.clock.now += 1
        before = cost.seconds(values.size)
        device.finish(device_ns=device_ns)
        assert_right(future.result(0), values)
        assert cost.seconds(values.size) - before == pytest.approx(0.2 * (1 - before), rel=0.05), "towards one second"


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
