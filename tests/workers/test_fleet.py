"""Several workers side by side."""

from __future__ import annotations

import os
import signal
import threading

import pytest
from _toy import VERIFY, check_verify, random_values, variable_batch

from verifier.errors import ConfigError, DeviceUnavailableError
from verifier.workers import Fleet, WorkerOptions, WorkerState

WAIT_S = 60.0
BATCH = variable_batch(random_values(300, 4))


@pytest.fixture
def make_fleet():
    fleets = []

    def make(*device_ids: str, **options) -> Fleet:
        fleet = Fleet(device_ids, WorkerOptions(slot_bytes=1 << 20, **options))
        fleets.append(fleet)
        return fleet

    yield make
    for fleet in fleets:
        fleet.close()


def test_shares_of_the_cpu(make_fleet, manifest, image):
    fleet = make_fleet("cpu:0", "cpu:1")
    fleet.start()
    cores = len(os.sched_getaffinity(0))
    for worker in fleet.workers:
        assert worker.device.units == max(1, cores // 2)
        assert worker.device.id == worker.device_id
        worker.load(1, manifest, image)
        check_verify(BATCH, worker.run(1, VERIFY, BATCH.key, [BATCH]).result(WAIT_S)[0])
    assert fleet["cpu:1"] is fleet.workers[1]
    assert fleet["cpu:0"].pid != fleet["cpu:1"].pid


def test_threads_that_are_set_are_kept():
    options = WorkerOptions(driver={"threads": 1})
    fleet = Fleet(["cpu:0", "cpu:1"], per_device={"cpu:1": options})
    assert fleet["cpu:1"].options == options


def test_one_device_down_leaves_the_others_up(make_fleet, manifest, image):
    fleet = make_fleet("cpu", "fake:0", backoff_first_s=WAIT_S, backoff_max_s=WAIT_S)
    heard = threading.Condition()
    states: list[tuple[str, WorkerState]] = []
    faults: list[tuple[str, list[int]]] = []

    def changed(worker) -> None:
        with heard:
            states.append((worker.device_id, worker.state))
            heard.notify_all()

    def faulty(worker, instance_ids, error) -> None:
        with heard:
            faults.append((worker.device_id, list(instance_ids)))
            heard.notify_all()

    fleet.on_state(changed)
    fleet.on_fault(faulty)
    fleet.start()
    for worker in fleet.workers:
        worker.load(7, manifest, image)
    os.kill(fleet["fake:0"].pid, signal.SIGSTOP)
    future = fleet["fake:0"].run(7, VERIFY, BATCH.key, [BATCH])
    for number in (signal.SIGSEGV, signal.SIGCONT):  # as if the batch had done it
        os.kill(fleet["fake:0"].pid, number)
    assert future.exception(WAIT_S) is not None
    with heard:
        assert heard.wait_for(lambda: ("fake:0", WorkerState.DOWN) in states and faults, WAIT_S)
    assert faults == [("fake:0", [7])]
    assert fleet["cpu"].state is WorkerState.UP
    check_verify(BATCH, fleet["cpu"].run(7, VERIFY, BATCH.key, [BATCH]).result(WAIT_S)[0])
    fleet.close()
    assert {worker.state for worker in fleet.workers} == {WorkerState.STOPPED}


def test_a_device_that_is_not_there_stops_all(make_fleet):
    fleet = make_fleet("cpu", "fake:7")
    with pytest.raises(DeviceUnavailableError, match="fake:7"):
        fleet.start()
    assert {worker.state for worker in fleet.workers} == {WorkerState.STOPPED}


@pytest.mark.parametrize(("devices", "problem"), [(["cpu", "cpu"], "twice"), (["cpu", "cpu:0"], "beside")])
def test_devices_that_exclude_each_other(devices, problem):
    with pytest.raises(ConfigError, match=problem):
        Fleet(devices)
