"""What happens when a worker's process fails: it is replaced, and nothing of its batches is read."""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from _toy import VERIFY, check_verify, random_values, variable_batch
from _waiting import until

from verifier.drivers.fake import Fault
from verifier.errors import BackendError, DeviceUnavailableError
from verifier.workers import Worker, WorkerState, _process
from verifier.workers._messages import Problem

WAIT_S = 60.0
BATCH = variable_batch(random_values(500, 3))
VERIFIES = "launch parity_sum"


class Watch:
    """What a worker's listeners heard."""

    def __init__(self, worker: Worker) -> None:
        self.states: list[WorkerState] = []
        self.reasons: list[str] = []
        self.faults: list[tuple[list[int], str]] = []
        self.heard = threading.Condition()
        worker.on_state = self._state
        worker.on_fault = self._fault

    def _state(self, worker: Worker) -> None:
        with self.heard:
            self.states.append(worker.state)
            self.reasons.append(worker.reason)
            self.heard.notify_all()

    def _fault(self, worker: Worker, instance_ids, error) -> None:
        with self.heard:
            self.faults.append((list(instance_ids), str(error)))

    def wait_up(self, times: int) -> None:
        """Waits until it has been UP for the `times`-th time."""
        with self.heard:
            assert self.heard.wait_for(lambda: self.states.count(WorkerState.UP) >= times, WAIT_S), self.states


@pytest.fixture
def start(make_worker, manifest, image):
    """Starts a fake that suffers `faults` once it has the toy; a marker keeps them from its first process's load."""

    def started(*faults: Fault, device_id: str = "fake:0", **options) -> tuple[Worker, Watch]:
        worker = make_worker(device_id, driver={"faults": faults} if faults else {}, **options)
        watch = Watch(worker)
        worker.start()
        worker.load(1, manifest, image)
        return worker, watch

    return started


def run(worker: Worker):
    return worker.run(1, VERIFY, BATCH.key, [BATCH])


def works(worker: Worker) -> None:
    check_verify(BATCH, run(worker).result(WAIT_S)[0])


def fails_sticky(worker: Worker, problem: str) -> None:
    with pytest.raises(BackendError, match=problem) as caught:
        run(worker).result(WAIT_S)
    assert caught.value.sticky


@pytest.mark.parametrize(
    ("fault", "kind", "problem"),
    [
        ({"crash": True}, "died", "SIGSEGV"),
        ({"error": "illegal address", "sticky": True}, "sticky", "illegal address"),
        ({"error": "passing trouble"}, "sticky", "passing trouble"),
        ({"hang": True}, "watchdog", "longer than its limit"),
    ],
)
def test_a_fault_costs_one_process(start, tmp_path, fault, kind, problem):
    # The second such launch: loading makes the first.
    once = Fault(VERIFIES, after=1, once=str(tmp_path / "once"), **fault)
    worker, watch = start(once, batch_limit_s=0.3, item_limit_s=0.0)
    first = worker.pid
    fails_sticky(worker, problem)
    watch.wait_up(2)
    works(worker)
    assert worker.pid != first
    assert (worker.errors, worker.restarts) == ({kind: 1}, 1)
    assert [ids for ids, _ in watch.faults] == [[1]]
    assert problem in watch.faults[0][1]
    up, down, starting = WorkerState.UP, WorkerState.DOWN, WorkerState.STARTING
    assert watch.states == [starting, up, down, starting, up]
    assert problem in watch.reasons[2]


def test_every_batch_in_flight_fails_at_once(start, tmp_path):
    marker = tmp_path / "once"
    worker, watch = start(Fault(VERIFIES, after=1, hang=True, once=str(marker)), slots=4)
    futures = [run(worker)]
    until(marker.exists)
    futures += [run(worker) for _ in range(3)]
    assert worker.pid is not None
    os.kill(worker.pid, signal.SIGKILL)
    for future in futures:
        assert isinstance(future.exception(WAIT_S), BackendError)
    watch.wait_up(2)
    assert worker.room() == 4
    works(worker)
    assert watch.faults == [], "killed from outside: no plugin did it"


@pytest.mark.parametrize("killed_device", ["cpu", "fake:0"])
def test_killed_under_load(start, killed_device):
    worker, watch = start(device_id=killed_device)
    stop = threading.Event()
    outcomes = {"right": 0, "failed": 0}

    def call() -> None:
        while not stop.is_set():
            future = run(worker)
            error = future.exception(WAIT_S)
            if error is None:
                check_verify(BATCH, future.result()[0])  # whatever is answered must be right
                outcomes["right"] += 1
            else:
                assert isinstance(error, BackendError)
                assert error.sticky
                outcomes["failed"] += 1
                stop.wait(0.05)

    with ThreadPoolExecutor(4) as pool:
        callers = [pool.submit(call) for _ in range(4)]
        for kills in range(1, 4):
            right = outcomes["right"]
            until(lambda right=right: outcomes["right"] > right)
            assert worker.pid is not None
            os.kill(worker.pid, signal.SIGKILL)
            watch.wait_up(1 + kills)
        stop.set()
        for caller in callers:
            caller.result(WAIT_S)
    assert outcomes["failed"]
    assert worker.errors == {"died": 3}


def test_a_load_that_hangs_is_bounded_and_named(start, manifest, image, tmp_path):
    slow = Fault("launch parity_table", after=1, hang=True, once=str(tmp_path / "once"))
    worker, watch = start(slow, load_timeout_s=0.5)
    with pytest.raises(BackendError, match=r"load took longer than 0\.5 s"):
        worker.load(2, manifest, image)
    watch.wait_up(2)
    assert watch.faults[0][0] == [2]
    assert worker.instances == {1}
    works(worker)
    worker.load(2, manifest, image)


def test_a_crash_while_loading_names_the_plugin(start, manifest, image, tmp_path):
    worker, watch = start(Fault("load", after=1, crash=True, once=str(tmp_path / "once")))
    with pytest.raises(BackendError, match="SIGSEGV"):
        worker.load(2, manifest, image)
    watch.wait_up(2)
    assert watch.faults[0][0] == [2]
    works(worker)


def test_a_listener_may_keep_an_instance_from_being_loaded_again(start, tmp_path):
    worker, watch = start(Fault(VERIFIES, after=1, crash=True, once=str(tmp_path / "once")))
    worker.on_fault = lambda worker, instance_ids, error: [worker.unload(i) for i in instance_ids]
    fails_sticky(worker, "SIGSEGV")
    watch.wait_up(2)
    assert worker.instances == frozenset()


def test_an_instance_that_fails_to_load_again_is_dropped(start, tmp_path):
    marker = tmp_path / "once"
    marker.touch()
    worker, watch = start(Fault("load", error="no such thing", once=str(marker)))
    marker.unlink()
    os.kill(worker.pid, signal.SIGKILL)
    watch.wait_up(2)
    assert worker.instances == frozenset()
    assert watch.faults == [([1], "no such thing")]
    with pytest.raises(BackendError, match="not loaded here"):
        run(worker).result(WAIT_S)


def test_an_instance_that_ends_every_process_is_dropped(start, tmp_path):
    markers = [tmp_path / "first", tmp_path / "second"]
    for marker in markers:
        marker.touch()
    worker, watch = start(
        Fault("load", crash=True, once=str(markers[0])),
        Fault("launch parity_table", crash=True, once=str(markers[1])),
        load_attempts=2,
    )
    for marker in markers:
        marker.unlink()
    os.kill(worker.pid, signal.SIGKILL)
    watch.wait_up(2)
    assert [ids for ids, _ in watch.faults] == [[1], [1]]
    assert worker.instances == frozenset()
    assert worker.restarts == 3


def test_a_device_that_will_not_open_is_tried_again(start, tmp_path):
    markers = [tmp_path / "first", tmp_path / "second"]
    for marker in markers:
        marker.touch()
    worker, watch = start(
        Fault("register", error="busy", once=str(markers[0])), Fault("stream", crash=True, once=str(markers[1]))
    )
    for marker in markers:
        marker.unlink()
    os.kill(worker.pid, signal.SIGKILL)
    watch.wait_up(2)
    works(worker)
    assert worker.restarts == 3
    assert any("busy" in reason for reason in watch.reasons)
    assert worker.errors["start"] == 1
    assert worker.errors["died"] == 2
    assert watch.faults == []  # no instance had to do with it


def test_a_device_that_will_not_open_is_told_from_a_process_that_died(make_worker, monkeypatch):
    """However late the parent is to hear why."""
    error = Problem.error

    def later(problem):
        threading.Event().wait(0.5)
        return error(problem)

    monkeypatch.setattr(Problem, "error", later)
    worker = make_worker("fake:0", driver={"faults": [Fault("register", error="busy")]})
    with pytest.raises(BackendError, match="busy"):
        worker.start()
    assert worker.errors == {"start": 1}


@pytest.mark.parametrize("scarce", ["memory", "fake:0 results", "fake:0 urgent results"])
def test_a_device_comes_back_though_there_is_no_memory_or_thread_at_first(start, monkeypatch, scarce):
    worker, watch = start()
    failures = [MemoryError("none left"), MemoryError("none left")]
    spawn, begin, made = _process.spawn_worker, threading.Thread.start, []

    def spawn_later(*arguments):
        if scarce == "memory" and failures:
            raise failures.pop()
        made.append(spawn(*arguments))
        return made[-1]

    def begin_later(thread):
        if thread.name == scarce and failures:
            failures.pop()
            raise RuntimeError("can't start new thread")
        begin(thread)

    monkeypatch.setattr(_process, "spawn_worker", spawn_later)
    monkeypatch.setattr(threading.Thread, "start", begin_later)
    os.kill(worker.pid, signal.SIGKILL)
    watch.wait_up(2)
    works(worker)
    assert worker.restarts == 3
    *given_up, last = made
    assert last.popen.pid == worker.pid
    for each in given_up:
        assert each.popen.returncode == -signal.SIGKILL
        assert each.control.closed
    assert worker.errors == {"died": 1, "start": 2}


def test_a_worker_that_is_down_refuses_and_says_why(start):
    worker, watch = start(backoff_first_s=WAIT_S, backoff_max_s=WAIT_S)
    os.kill(worker.pid, signal.SIGKILL)
    with watch.heard:
        assert watch.heard.wait_for(lambda: worker.state is WorkerState.DOWN, WAIT_S)
    assert worker.room() == 0
    fails_sticky(worker, "down.*SIGKILL")
    worker.unload(1)  # nothing is there to be freed
    assert worker.instances == frozenset()


def test_a_device_that_is_not_there_is_said_so(make_worker):
    worker = make_worker("fake:9")
    with pytest.raises(DeviceUnavailableError, match="fake:9"):
        worker.start()
    assert worker.state is WorkerState.STOPPED


def test_a_first_process_that_dies_is_not_tried_again(make_worker):
    worker = make_worker("fake:0", driver={"faults": [Fault("register", crash=True)]})
    with pytest.raises(BackendError, match="SIGSEGV"):
        worker.start()
    assert worker.state is WorkerState.STOPPED
    assert worker.restarts == 0


def test_a_start_that_hangs_is_bounded(make_worker):
    worker = make_worker("fake:0", start_timeout_s=1.0, driver={"faults": [Fault("register", hang=True)]})
    with pytest.raises(BackendError, match="hello took longer than 1 s"):
        worker.start()


def test_processes_are_fresh_interpreters(start):
    """Never a fork: a forked child would share grpc's and CUDA's threads and locks."""
    worker, _ = start()
    assert b"verifier-worker fake:0" in Path(f"/proc/{worker.pid}/cmdline").read_bytes().split(b"\0")
    maps = Path(f"/proc/{worker.pid}/maps").read_text()
    assert "pytest" not in maps
    assert "grpc" not in maps
