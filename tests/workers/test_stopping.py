"""A worker can be closed in every state, in bounded time, and leaves nothing behind."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from _toy import VERIFY, alive, check_verify, random_values, variable_batch
from _waiting import until

from verifier.drivers.fake import Fault
from verifier.errors import BackendError
from verifier.workers import WorkerState

WAIT_S = 60.0
BATCH = variable_batch(random_values(500, 3))


def belongings() -> Counter[str]:
    """What a leak would show in, each thing as often as it is there."""
    gc.collect()
    return Counter(
        [
            *(f"file {name}" for name in _open_files()),
            *(f"shared {name}" for name in os.listdir("/dev/shm")),  # noqa: PTH208
            *["mapped slots"] * Path("/proc/self/maps").read_text().count("verifier-slots"),
            *(f"child {pid}" for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()),
            *(f"thread {thread.name}" for thread in threading.enumerate()),
        ]
    )


def new_since(before: Counter[str]) -> Counter[str]:
    """What is there that was not; what earlier tests left may go meanwhile."""
    return belongings() - before


def test_a_leak_is_seen():
    before = belongings()
    with Path("/dev/null").open() as leak:
        assert sum(new_since(before).values()) == 1, leak


def child_belongings(pid: int) -> dict[str, int]:
    """What a plugin that is loaded again and again would leave in the worker's process."""
    proc = Path(f"/proc/{pid}")
    maps = (proc / "maps").read_text().splitlines()
    return {
        "fds": len(list((proc / "fd").iterdir())),
        "threads": len(list((proc / "task").iterdir())),
        "libraries": sum(".so" in line or "memfd" in line or "deleted" in line for line in maps),
    }


def _open_files() -> Iterator[str]:
    for path in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the one that this listing had open
            yield str(path.readlink()).partition(":")[0]  # sockets and pipes are numbered


def test_closed_before_it_was_started(make_worker):
    worker = make_worker("cpu")
    worker.close()
    assert worker.state is WorkerState.STOPPED


def test_closed_while_idle_the_process_ends_by_itself(worker):
    assert worker._process is not None
    popen = worker._process._popen
    worker.close()
    assert popen.returncode == 0
    assert worker.state is WorkerState.STOPPED
    assert worker.pid is None
    worker.close()
    with pytest.raises(BackendError, match="stop"):
        worker.run(1, VERIFY, BATCH.key, [BATCH]).result(WAIT_S)


def test_batches_in_flight_are_finished(make_worker, manifest, image):
    worker = make_worker("fake:0", driver={"faults": [Fault("launch parity_sum", after=1, times=0, delay_s=0.1)]})
    worker.start()
    worker.load(1, manifest, image)
    futures = [worker.run(1, VERIFY, BATCH.key, [BATCH]) for _ in range(4)]
    worker.close()
    for future in futures:
        assert future.done()
        check_verify(BATCH, future.result()[0])


def test_a_batch_that_hangs_does_not_hold_up_the_end(make_worker, manifest, image):
    hang = Fault("launch parity_sum", after=1, hang=True)
    worker = make_worker("fake:0", drain_timeout_s=0.2, stop_timeout_s=0.5, driver={"faults": [hang]})
    worker.start()
    worker.load(1, manifest, image)
    future = worker.run(1, VERIFY, BATCH.key, [BATCH])
    pid = worker.pid
    worker.close()
    with pytest.raises(BackendError, match="stopped before the batch was done"):
        future.result(0)
    assert not alive(pid)


def test_closed_while_it_starts(make_worker):
    worker = make_worker("fake:0", driver={"faults": [Fault("register", hang=True)]})
    failures: list[Exception] = []

    def start() -> None:
        try:
            worker.start()
        except BackendError as error:
            failures.append(error)

    starting = threading.Thread(target=start)
    starting.start()
    until(lambda: worker.pid is not None)
    pid = worker.pid
    worker.close()
    starting.join(WAIT_S)
    assert len(failures) == 1
    assert not alive(pid)
    assert worker.state is WorkerState.STOPPED


def test_closed_while_it_is_down(make_worker):
    worker = make_worker("cpu", backoff_first_s=WAIT_S, backoff_max_s=WAIT_S)
    worker.start()
    os.kill(worker.pid, signal.SIGKILL)
    until(lambda: worker.state is WorkerState.DOWN)
    worker.close()
    assert worker.state is WorkerState.STOPPED


def test_closed_while_an_instance_loads(make_worker, manifest, image):
    hang = Fault("launch parity_table", hang=True)
    worker = make_worker("fake:0", stop_timeout_s=0.5, driver={"faults": [hang]})
    worker.start()
    failures: list[Exception] = []

    def load() -> None:
        try:
            worker.load(1, manifest, image)
        except BackendError as error:
            failures.append(error)

    loading = threading.Thread(target=load)
    loading.start()
    until(lambda: worker._process._loading == 1)
    pid = worker.pid
    worker.close()
    loading.join(WAIT_S)
    assert len(failures) == 1
    assert not alive(pid)


def test_interrupts_from_the_keyboard_leave_it_running(worker):
    os.kill(worker.pid, signal.SIGINT)
    check_verify(BATCH, worker.run(1, VERIFY, BATCH.key, [BATCH]).result(WAIT_S)[0])
    assert worker.restarts == 0


def test_nothing_is_left_behind(make_worker, manifest, image):
    before = belongings()
    worker = make_worker("fake:0", backoff_first_s=0.0, backoff_max_s=0.0)
    worker.start()
    running, child = before, {}
    for cycle in range(50):
        worker.load(cycle, manifest, image)
        check_verify(BATCH, worker.run(cycle, VERIFY, BATCH.key, [BATCH]).result(WAIT_S)[0])
        worker.unload(cycle)
        if cycle == 5:
            running, child = belongings(), child_belongings(worker.pid)
    assert not new_since(running)
    assert child_belongings(worker.pid) == child
    worker.close()
    assert not new_since(before)


def test_nothing_is_left_behind_by_lost_processes(make_worker, manifest, image):
    before = belongings()
    worker = make_worker("cpu", backoff_first_s=0.0, backoff_max_s=0.0)
    worker.start()
    worker.load(1, manifest, image)
    for restarts in range(20):
        pid = worker.pid
        future = worker.run(1, VERIFY, BATCH.key, [BATCH])
        os.kill(pid, signal.SIGKILL)
        until(lambda restarts=restarts: worker.restarts > restarts and worker.state is WorkerState.UP)
        assert future.done()
        assert not alive(pid)
    check_verify(BATCH, worker.run(1, VERIFY, BATCH.key, [BATCH]).result(WAIT_S)[0])
    worker.close()
    del future
    assert not new_since(before)


PARENT = """
import sys
from verifier.drivers.fake import Fault
from verifier.workers import Worker, WorkerOptions
worker = Worker(sys.argv[1], WorkerOptions())
worker.start()
print(worker.pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("parent_device", ["cpu", "fake:0"])
def test_the_process_ends_with_its_parent(parent_device):
    shared_memory = sorted(os.listdir("/dev/shm"))  # noqa: PTH208
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, parent_device],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert alive(pid)
        parent.kill()
        until(lambda: not alive(pid))
        assert parent.stderr is not None
        assert parent.stderr.read() == b""
    assert sorted(os.listdir("/dev/shm")) == shared_memory  # noqa: PTH208
