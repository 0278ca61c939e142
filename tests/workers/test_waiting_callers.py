"""Callers that read their worker's answers themselves, and what may come about meanwhile."""

from __future__ import annotations

import gc
import os
import signal
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest
from _toy import VERIFY, check_verify, random_values, variable_batch
from _waiting import until

from verifier.errors import BackendError
from verifier.workers import Worker, WorkerState
from verifier.workers._process import Process

WAIT_S = 60.0
BATCH = variable_batch(random_values(500, 3))
HERE = threading.main_thread().name


@pytest.fixture
def worker(make_worker, manifest, image, callers_read):
    made = make_worker("fake:0", backoff_first_s=0.0)
    made.start()
    made.load(1, manifest, image)
    return made


@pytest.fixture
def while_reading(monkeypatch):
    """Calls something once, when a caller has the turn to read."""

    def set_up(act) -> None:
        looks, real = iter(range(1 << 60)), Process._is_next

        def look(process, ticket):
            if next(looks) == 1:  # the first look is in front of the turn
                act()
            return real(process, ticket)

        monkeypatch.setattr(Process, "_is_next", look)

    return set_up


def run(worker: Worker, done: list[str] | None = None):
    future = worker.run(1, VERIFY, BATCH.key, [BATCH])
    if done is not None:
        future.add_done_callback(lambda _: done.append(threading.current_thread().name))
    return future


@pytest.mark.parametrize("waits", [True, False], ids=["who waits", "who is called"])
def test_an_answered_batch_is_let_go_of_without_the_collector(worker, waits):
    """Its columns may lie in memory that its caller has lent."""
    batch = variable_batch(random_values(500, 3))
    column = weakref.ref(batch.inputs[0].data)
    gc.collect()
    gc.disable()
    try:
        answered = threading.Event()
        future = worker.run(1, VERIFY, batch.key, [batch])
        future.add_done_callback(lambda _, batch=batch: answered.set())
        if waits:
            future.result(WAIT_S)
        assert answered.wait(WAIT_S)
        del batch, future
        until(lambda: column() is None, timeout_s=WAIT_S)
    finally:
        gc.enable()


def stop(worker: Worker) -> None:
    assert worker.pid is not None
    os.kill(worker.pid, signal.SIGSTOP)


def proceed(worker: Worker) -> None:
    assert worker.pid is not None
    os.kill(worker.pid, signal.SIGCONT)


def test_a_caller_that_waits_for_the_only_batch_reads_its_answer(worker, while_reading):
    stop(worker)
    while_reading(lambda: proceed(worker))
    done: list[str] = []
    check_verify(BATCH, run(worker, done).result(WAIT_S)[0])
    assert done == [HERE]
    assert worker.room() == worker.options.slots


def test_batches_that_nobody_waits_for_are_the_threads(worker):
    stop(worker)
    done: list[str] = []
    futures = [run(worker, done) for _ in range(3)]
    proceed(worker)
    until(lambda: len(done) == 3)
    assert HERE not in done
    for future in futures:
        check_verify(BATCH, future.result(0)[0])


def test_a_caller_leaves_reading_to_the_thread_when_another_batch_comes(worker, while_reading):
    stop(worker)
    done: list[str] = []
    more = []

    def another() -> None:
        more.append(run(worker, done))
        proceed(worker)

    while_reading(another)
    check_verify(BATCH, run(worker, done).result(WAIT_S)[0])
    check_verify(BATCH, more[0].result(WAIT_S)[0])
    assert done[0] != HERE


def test_a_callers_time_out_is_kept_and_the_answer_not_lost(worker):
    stop(worker)
    done: list[str] = []
    future = run(worker, done)
    with pytest.raises(TimeoutError):
        future.result(0.01)
    proceed(worker)
    check_verify(BATCH, future.result(WAIT_S)[0])
    assert len(done) == 1
    assert done != [HERE]


def test_the_process_dies_while_a_caller_reads(worker, while_reading):
    stop(worker)
    pid = worker.pid
    assert pid is not None
    while_reading(lambda: os.kill(pid, signal.SIGKILL))
    with pytest.raises(BackendError, match="SIGKILL") as caught:
        run(worker).result(WAIT_S)
    assert caught.value.sticky
    until(lambda: worker.pid != pid and worker.state is WorkerState.UP)
    assert worker.errors == {"died": 1}
    check_verify(BATCH, run(worker).result(WAIT_S)[0])


def test_a_worker_that_closes_while_a_caller_reads_finishes_its_batch(worker, while_reading):
    stop(worker)
    closing = threading.Thread(target=worker.close)

    def close() -> None:
        closing.start()
        until(worker._closing.is_set)
        proceed(worker)

    while_reading(close)
    check_verify(BATCH, run(worker).result(WAIT_S)[0])
    closing.join(WAIT_S)
    assert worker.state is WorkerState.STOPPED


def test_callers_that_wait_and_batches_that_nobody_waits_for(worker):
    def call(number: int) -> None:
        future = run(worker)
        if number % 3:
            check_verify(BATCH, future.result(WAIT_S)[0])
        else:
            came = threading.Event()
            future.add_done_callback(lambda _: came.set())
            assert came.wait(WAIT_S)
            check_verify(BATCH, future.result(0)[0])

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(call, range(300)))
    assert worker.room() == worker.options.slots
    assert worker.errors == {}
