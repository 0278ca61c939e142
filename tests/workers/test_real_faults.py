"""Plugins that crash and hang on real devices: a wild store, and a kernel that does not end."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from _toy import VERIFY, alive
from _waiting import until

from verifier.drivers import list_devices
from verifier.drivers.build import host_target
from verifier.errors import BackendError
from verifier.model import Batch, BatchKey, Column
from verifier.workers import WorkerState

WAIT_S = 60.0


@pytest.fixture(params=["cpu", pytest.param("cuda:0", marks=pytest.mark.gpu)])
def real_id(request) -> str:
    if request.param not in {device.id for device in list_devices()}:
        pytest.skip(f"there is no {request.param}")
    return request.param


def batch_of(*values: bytes) -> Batch:
    data = b"".join(value.ljust(4, b".") for value in values)
    key = BatchKey("faulty", "verify/FAULTY")
    return Batch(key, len(values), (Column.fixed("input", data, 4, len(values)),))


@pytest.mark.parametrize(("value", "kind"), [(b"C", ("died", "sticky")), (b"H", ("watchdog",))])
def test_the_worker_is_replaced_and_serves_again(make_worker, faulty, real_id, value, kind):
    worker = make_worker(real_id, batch_limit_s=0.5, item_limit_s=0.0)
    worker.start()
    worker.load(1, *faulty(worker.device.target))
    faults: list[list[int]] = []
    worker.on_fault = lambda worker, instance_ids, error: faults.append(list(instance_ids))
    good, bad = batch_of(b"a", b"b"), batch_of(b"a", value)
    assert worker.run(1, VERIFY, good.key, [good]).result(WAIT_S)[0].valid.tolist() == [3]
    futures = [worker.run(1, VERIFY, batch.key, [batch]) for batch in (bad, good)]
    for future in futures:
        error = future.exception(WAIT_S)
        assert isinstance(error, BackendError)
        assert error.sticky
    until(lambda: worker.restarts == 1 and worker.state is WorkerState.UP)
    assert worker.run(1, VERIFY, good.key, [good]).result(WAIT_S)[0].valid.tolist() == [3]
    assert faults == [[1]]
    (counted,) = worker.errors
    assert counted in kind


def test_on_a_device_that_runs_one_batch_at_a_time_the_first_has_done_it(make_worker, faulty):
    worker = make_worker("cpu", backoff_first_s=0.02, backoff_max_s=3600.0)
    worker.start()
    for instance_id in (1, 2):
        worker.load(instance_id, *faulty(worker.device.target))
    faults: list[list[int]] = []
    worker.on_fault = lambda worker, instance_ids, error: faults.append(list(instance_ids))
    good, bad = batch_of(b"a"), batch_of(b"C")
    crashes = 20  # a doubled pause after each would be hours
    for crash in range(crashes):
        futures = [worker.run(i, VERIFY, batch.key, [batch]) for i, batch in ((1, good), (1, bad), (2, good))]
        for future in futures[1:]:
            assert isinstance(future.exception(WAIT_S), BackendError)
        until(lambda crash=crash: worker.restarts == crash + 1 and worker.state is WorkerState.UP)
    assert faults == [[1]] * crashes


PARENT = """
import pickle, sys
from verifier.workers import Worker, WorkerOptions
device_id, path = sys.argv[1:]
manifest, image, batch = pickle.load(open(path, "rb"))
worker = Worker(device_id, WorkerOptions())
worker.start()
worker.load(1, manifest, image)
worker.run(1, 0, batch.key, [batch])
print(worker.pid, flush=True)
sys.stdin.read()
"""


def test_a_process_that_hangs_ends_with_its_parent(faulty, tmp_path):
    """Where the device works in place its hanging kernel holds the thread that takes batches."""
    path = tmp_path / "work"
    path.write_bytes(pickle.dumps((*faulty(host_target()), batch_of(b"H"))))
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, "cpu", path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert alive(pid)
        parent.kill()
        until(lambda: not alive(pid))
