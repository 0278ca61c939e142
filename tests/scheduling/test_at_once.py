"""Which thread hands a batch over, its submitter's or one of the scheduler's, and which one brings its answer."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass, field

import pytest
from _by_hand import HandDevice, Leases, batch
from _verdicts import assert_right, assert_undetermined
from _waiting import until

from verifier.attended import Attended
from verifier.errors import DeadlineError, NotServedError
from verifier.model import BatchResult
from verifier.scheduling import Scheduler, SchedulingOptions, _scheduler
from verifier.scheduling._core import Core


@dataclass(eq=False)
class Told(HandDevice):
    """Notes by which threads it is given batches."""

    threads: list[str] = field(default_factory=list)

    def run(self, *arguments, **how):  # type: ignore[no-untyped-def]
        self.threads.append(threading.current_thread().name)
        return super().run(*arguments, **how)


@pytest.fixture
def device() -> Told:
    return Told("cpu")


@pytest.fixture
def scheduler(device):
    made = Scheduler([device], Leases(device), SchedulingOptions(launches_per_device=1))
    made.start()
    yield made
    made.close()


HERE = threading.main_thread().name
THERE = "dispatch-cpu"


def test_a_batch_with_nothing_in_front_of_it_is_on_its_device_when_submit_returns(scheduler, device):
    for value in (2, 3):
        future = scheduler.submit(batch([value]))
        assert len(device.running) == 1
        device.finish()
        assert_right(future.result(0), [value])
    assert device.threads == [HERE, HERE]


def test_what_waits_is_handed_over_in_its_order_by_the_threads(scheduler, device):
    futures = [scheduler.submit(batch([value])) for value in (2, 3, 5)]
    assert device.given == [[1]]
    device.finish()
    until(lambda: device.running)
    device.finish()
    assert device.given == [[1], [1, 1]]
    assert device.threads == [HERE, THERE]
    for value, future in zip((2, 3, 5), futures, strict=True):
        assert_right(future.result(0), [value])


def test_nobody_looks_for_room_while_there_is_none(scheduler, device, monkeypatch):
    looks = []
    look = Core.next_launch
    monkeypatch.setattr(Core, "next_launch", lambda core, now: looks.append(now) or look(core, now))
    futures = []
    for value in range(2, 22):
        futures.append(scheduler.submit(batch([value])))
        time.sleep(0.002)  # for a thread that was woken
    assert len(looks) <= 2  # the first one's, and the thread's own when it has just begun
    device.finish()
    until(lambda: device.running)
    device.finish()
    for value, future in zip(range(2, 22), futures, strict=True):
        assert_right(future.result(0), [value])


def test_a_deadline_before_all_others_is_kept_though_the_device_is_busy(scheduler, device):
    first, second = scheduler.submit(batch([2])), scheduler.submit(batch([3]))
    hurried = scheduler.submit(batch([4]), deadline=time.monotonic() + 0.1)
    with pytest.raises(DeadlineError):
        hurried.result(60)
    assert not second.done()
    device.finish()
    until(lambda: device.running)
    device.finish()
    assert_right(first.result(0), [2])
    assert_right(second.result(0), [3])


def test_where_no_device_is_up_nobody_waits_for_ever(device):
    device.die()
    with closing(Scheduler([device], Leases(device), SchedulingOptions(unserved_wait_s=0.2))) as made:
        made.start()
        futures = [made.submit(batch([value])) for value in (2, 3)]
        for future in futures:
            assert_undetermined(future.result(60), 1)


def test_a_large_batch_is_handed_over_by_the_threads(scheduler, device, monkeypatch):
    monkeypatch.setattr(_scheduler, "_AT_ONCE_BYTES", 2)
    scheduler.submit(batch([2, 3, 5]))
    until(lambda: device.running)
    assert device.threads == [THERE]


def test_what_a_callback_submits_is_handed_over_by_the_threads(scheduler, device):
    """The thread that calls back may be the one that frees the device's slots."""
    inner: list[Future[BatchResult]] = []
    scheduler.submit(batch([2])).add_done_callback(lambda _: inner.append(scheduler.submit(batch([3]))))
    device.finish()
    until(lambda: device.running)
    device.finish()
    assert_right(inner[0].result(0), [3])
    assert device.threads == [HERE, THERE]


def test_what_is_not_served_is_told_through_the_future(device):
    leases = Leases(device)
    leases.active = None
    made = Scheduler([device], leases)
    made.start()
    with pytest.raises(NotServedError):
        made.submit(batch([2])).result(0)
    made.close()
    assert made.held() == {}


@dataclass(eq=False)
class ReadByCallers(Told):
    """Answers whoever waits, in the waiting thread."""

    def run(self, *arguments, **how):  # type: ignore[no-untyped-def]
        super().run(*arguments, **how)
        future: Attended[list[BatchResult]] = Attended()
        future.attend = lambda *_: self.finish()
        self.running[-1].future = future
        return future


def test_whoever_waits_for_a_batch_attends_to_its_launch():
    device = ReadByCallers("cpu")
    made = Scheduler([device], Leases(device))
    made.start()
    for value in (2, 3):
        assert_right(made.submit(batch([value])).result(), [value])
    made.close()
    assert device.running == []
    assert made.held() == {}


def test_a_launch_that_fails_while_its_caller_attends_is_run_again():
    device = ReadByCallers("cpu")
    made = Scheduler([device], Leases(device))
    made.start()
    future = made.submit(batch([2]))
    future.attend = lambda *_: device.fail()
    waiting = threading.Thread(target=future.result)
    waiting.start()
    until(lambda: len(device.given) == 2)
    device.finish()
    waiting.join()
    assert_right(future.result(0), [2])
    made.close()
