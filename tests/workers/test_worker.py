"""Batches through a worker's process."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from _toy import DIGEST, VERIFY, check_digest, check_verify, fixed_batch, random_values, variable_batch

from verifier.drivers import Image
from verifier.drivers.fake import Fault
from verifier.errors import BackendError, ConfigError, DeadlineError, PluginError, RequestError
from verifier.model import Batch
from verifier.workers import WorkerOptions, WorkerState

RESULT_S = 60.0


def test_verify_and_digest(worker):
    for items in (1, 31, 32, 33, 1000):
        batch = variable_batch(random_values(items, items), constant=b"\x05")
        (result,) = worker.run(1, VERIFY, batch.key, [batch]).result(RESULT_S)
        check_verify(batch, result)
        assert result.device == worker.device_id
        batch = variable_batch(random_values(items, items), operation="digest")
        check_digest(batch, worker.run(1, DIGEST, batch.key, [batch]).result(RESULT_S)[0])


def test_many_callers_get_their_own_results(worker):
    def call(seed: int) -> None:
        parts = [variable_batch(random_values(1 + (7 * seed + i) % 90, seed + i)) for i in range(3)]
        results = worker.run(1, VERIFY, parts[0].key, parts).result(RESULT_S)
        for part, result in zip(parts, results, strict=True):
            check_verify(part, result)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(call, range(100)))
    assert worker.room() == worker.options.slots


def test_no_items(worker):
    empty = variable_batch([])
    some = variable_batch([b"\x02"])
    assert [r.items for r in worker.run(1, VERIFY, empty.key, [empty]).result(RESULT_S)] == [0]
    results = worker.run(1, VERIFY, empty.key, [empty, some, empty]).result(RESULT_S)
    assert [result.items for result in results] == [0, 1, 0]
    check_verify(some, results[1])


def test_first_come_first_served(make_worker, manifest, image):
    worker = make_worker("fake:0", slots=8)
    worker.start()
    worker.load(1, manifest, image)
    done: list[int] = []
    futures = []
    for i in range(8):
        batch = fixed_batch(np.zeros((3000 if i % 2 else 1, 4), np.uint8))
        futures.append(worker.run(1, VERIFY, batch.key, [batch]))
        futures[-1].add_done_callback(lambda _, i=i: done.append(i))
    for future in futures:
        future.result(RESULT_S)
    assert done == list(range(8))


def test_a_batch_that_does_not_fit_is_refused_and_fits_says_so(worker):
    batch = fixed_batch(np.zeros((40_000, 30), np.uint8))
    assert not worker.fits(batch.items, batch.nbytes)
    with pytest.raises(RequestError, match="a slot has 1048576"):
        worker.run(1, VERIFY, batch.key, [batch]).result(RESULT_S)
    small = fixed_batch(np.zeros((1000, 30), np.uint8))
    assert worker.fits(small.items, small.nbytes, output_bytes=8)
    check_verify(small, worker.run(1, VERIFY, small.key, [small]).result(RESULT_S)[0])


def test_what_fits_is_never_refused(worker):
    """The bound that `fits` uses holds up to the slot's last byte."""
    width = 7
    items = next(n for n in range(70_000, 0, -1) if worker.fits(n, n * width, 8))
    batch = fixed_batch(np.ones((items, width), np.uint8), operation="digest")
    check_digest(batch, worker.run(1, DIGEST, batch.key, [batch]).result(RESULT_S)[0])


def test_missing_columns_are_refused(worker):
    """A kernel would read where nothing is, and its plugin would be blamed for the crash."""
    batch = variable_batch([b"a"])
    bare = Batch(batch.key, 1, ())
    with pytest.raises(RequestError, match="inputs: 0 columns, the operation has 1"):
        worker.run(1, VERIFY, batch.key, [batch, bare]).result(RESULT_S)


def test_an_unknown_instance_is_refused(worker):
    batch = variable_batch([b"a"])
    with pytest.raises(BackendError, match="instance 9 is not loaded") as caught:
        worker.run(9, VERIFY, batch.key, [batch]).result(RESULT_S)
    assert not caught.value.sticky


def test_loading_an_instance_twice_is_refused(worker, manifest, build):
    with pytest.raises(BackendError, match="instance 1 is loaded already"):
        worker.load(1, manifest, build(worker.device.target))


def test_a_broken_image_leaves_the_worker_as_it_was(worker, manifest):
    with pytest.raises(PluginError):
        worker.load(2, manifest, Image(worker.device.target, b"no image", "0" * 64))
    assert worker.instances == {1}
    assert worker.errors == {"load": 1}
    batch = variable_batch([b"a", b"b"])
    check_verify(batch, worker.run(1, VERIFY, batch.key, [batch]).result(RESULT_S)[0])


def test_unload_waits_for_the_instances_batches(make_worker, manifest, image):
    worker = make_worker("fake:0", driver={"faults": [Fault("launch parity_sum", after=1, delay_s=0.3)]})
    worker.start()
    worker.load(1, manifest, image)
    batch = variable_batch([b"a", b"b"])
    future = worker.run(1, VERIFY, batch.key, [batch])
    worker.unload(1)
    assert future.done()
    check_verify(batch, future.result()[0])
    assert worker.instances == frozenset()
    with pytest.raises(BackendError, match="not loaded"):
        worker.run(1, VERIFY, batch.key, [batch]).result(RESULT_S)
    worker.unload(1)  # unknown by now: no error


def test_batches_of_another_instance_run_while_one_loads(make_worker, manifest, image, tmp_path):
    """A slow load must not hold up the batches."""
    slow = Fault("launch parity_table", after=1, delay_s=2.0)
    worker = make_worker("fake:0", driver={"faults": [slow]})
    worker.start()
    worker.load(1, manifest, image)
    loading = threading.Thread(target=worker.load, args=(2, manifest, image))
    loading.start()
    batch = variable_batch([b"a"])
    check_verify(batch, worker.run(1, VERIFY, batch.key, [batch]).result(RESULT_S)[0])
    assert loading.is_alive()
    loading.join()
    check_verify(batch, worker.run(2, VERIFY, batch.key, [batch]).result(RESULT_S)[0])


def test_room_falls_and_rises_with_the_batches(make_worker, manifest, image):
    worker = make_worker("fake:0", slots=2, driver={"faults": [Fault("launch parity_sum", after=1, delay_s=0.3)]})
    rooms: list[int] = []
    assert worker.room() == 0
    worker.start()
    worker.load(1, manifest, image)
    assert worker.room() == 2
    worker.on_room = lambda: rooms.append(worker.room())
    batch = variable_batch([b"a"])
    futures = [worker.run(1, VERIFY, batch.key, [batch]) for _ in range(2)]
    assert worker.room() == 0
    for future in futures:
        future.result(RESULT_S)
    assert rooms == [1, 2]


def test_run_waits_for_room_until_the_deadline(make_worker, manifest, image):
    worker = make_worker("fake:0", slots=1, driver={"faults": [Fault("launch parity_sum", after=1, delay_s=0.5)]})
    worker.start()
    worker.load(1, manifest, image)
    batch = variable_batch([b"a"])
    first = worker.run(1, VERIFY, batch.key, [batch])
    with pytest.raises(DeadlineError, match="no room"):
        worker.run(1, VERIFY, batch.key, [batch], time.monotonic() + 0.01).result(RESULT_S)
    second = worker.run(1, VERIFY, batch.key, [batch], time.monotonic() + RESULT_S)
    assert first.done()
    check_verify(batch, second.result(RESULT_S)[0])


def test_a_batch_past_its_deadline_is_not_begun(worker):
    batch = variable_batch([b"a"])
    with pytest.raises(DeadlineError, match="before the batch began"):
        worker.run(1, VERIFY, batch.key, [batch], time.monotonic() - 1.0).result(RESULT_S)
    assert worker.room() == worker.options.slots


def test_a_failing_batch_leaves_the_worker_up(make_worker, manifest, image):
    """The device's memory does not suffice for one batch; the others have it as before."""
    worker = make_worker("fake:0", chunk_rounds=1 << 10, bitmap_memory="pinned", driver={"memory_bytes": 1 << 20})
    worker.start()
    worker.load(1, manifest, image)
    large, small = fixed_batch(np.ones((20_000, 30), np.uint8)), variable_batch([b"a"])
    with pytest.raises(BackendError, match="out of memory") as caught:
        worker.run(1, VERIFY, large.key, [large]).result(RESULT_S)
    assert not caught.value.sticky
    check_verify(small, worker.run(1, VERIFY, small.key, [small]).result(RESULT_S)[0])
    assert (worker.state, worker.errors, worker.restarts) == (WorkerState.UP, {"batch": 1}, 0)


def test_a_failing_listener_does_not_stop_the_results(worker, caplog):
    def fail() -> None:
        raise RuntimeError("listener")

    worker.on_room = fail
    batch = variable_batch([b"a"])
    for _ in range(3):
        check_verify(batch, worker.run(1, VERIFY, batch.key, [batch]).result(RESULT_S)[0])
    assert "a listener failed" in caplog.text


def test_the_watchdogs_limit_grows_with_the_items():
    options = WorkerOptions(batch_limit_s=2.0)
    assert options.limit_s("cpu", 1000) == pytest.approx(7.0)
    assert options.limit_s("cuda:0", 1000) == pytest.approx(2.05)
    assert WorkerOptions(batch_limit_s=2.0, item_limit_s=1.0).limit_s("cuda:0", 3) == pytest.approx(5.0)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("slots", 0),
        ("slot_bytes", 1 << 32),
        ("slot_bytes", 4097),
        ("streams", 17),
        ("chunk_least_bytes", 1 << 30),
        ("chunk_both_ways_bytes", -1),
        ("drain_timeout_s", -1),
        ("bitmap_memory", "host"),
    ],
)
def test_wrong_options_name_the_setting(setting, value):
    with pytest.raises(ConfigError, match=rf"workers\.{setting}"):
        WorkerOptions(**{setting: value})
