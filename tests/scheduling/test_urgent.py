"""What is urgent overtakes the rest, on devices that can do several batches at a time."""

from __future__ import annotations

import pytest
from _by_hand import KEY, HandDevice, batch, firsts

from verifier.scheduling import Priority


@pytest.fixture
def device() -> HandDevice:
    return HandDevice("cuda:0", kind="cuda", unified=False)


@pytest.fixture
def made(bench, device):
    """Two launches in flight, as many as may be, and more that waits."""
    made = bench(device, launches_per_device=2, launch_items=64)
    made.submit(batch([0] * 640))
    made.poll()
    assert len(device.running) == 2
    return made


def urgent_ones(device: HandDevice) -> list[list[int]]:
    return [[int(firsts(part)[0]) for part in each.parts] for each in device.running if each.urgent]


def test_it_begins_beside_what_is_in_flight(made, device):
    urgent = made.submit(batch([2]), priority=Priority.CONSENSUS)
    made.poll()
    assert urgent_ones(device) == [[2]]
    device.finish(2)
    assert urgent.result(0).decided.all()
    assert len(device.running) == 2
    made.submit(batch([4]), priority=Priority.BLOCK)
    made.poll()
    assert len(device.running) == 2


def test_one_at_a_time_and_those_that_came_meanwhile_together(made, device):
    for value in (2, 4, 6):
        made.submit(batch([value]), priority=Priority.CONSENSUS)
        made.poll()
    assert urgent_ones(device) == [[2]]
    device.finish(2)
    made.poll()
    assert urgent_ones(device) == [[4, 6]]


@pytest.mark.parametrize("why", ["batches are done one by one", "no slot is free"])
def test_elsewhere_it_is_the_next(made, device, why):
    device.unified, device.slots = (True, 4) if why == "batches are done one by one" else (False, 2)
    made.submit(batch([2]), priority=Priority.CONSENSUS)
    made.poll()
    assert urgent_ones(device) == []
    device.finish()
    made.poll()
    assert urgent_ones(device) == [[2]]


def test_what_it_takes_beside_others_says_nothing_of_the_device(made, device):
    made.scheduler.measure(device, KEY, (1, 1e-4), (1000, 2e-4))
    made.submit(batch([2]), priority=Priority.CONSENSUS)
    made.poll()
    made.clock.now += 5.0
    device.finish(2, device_ns=5_000_000_000)
    cost = made.scheduler._core.router.cost(device.device, KEY)
    assert cost.fixed == pytest.approx(1e-4, rel=0.01)


def test_an_urgent_one_that_fails_is_run_again(made, device):
    urgent = made.submit(batch([2, 3]), priority=Priority.CONSENSUS)
    made.poll()
    device.fail(2)
    while not urgent.done():
        device.finish()
        made.poll()
    assert urgent.result(0).decided.all()
