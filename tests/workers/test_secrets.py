"""Keys do not outlast their batch: neither in slots, nor in a device's memory."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from _toy import VERIFY, check_verify, random_values, variable_batch
from _waiting import until

from verifier.drivers import open_driver
from verifier.errors import BackendError
from verifier.model import Batch
from verifier.secret import Secret
from verifier.workers import WorkerOptions
from verifier.workers._instance import Instance
from verifier.workers._layout import lay_out, write_parts
from verifier.workers._messages import Job, OperationPlan, Plan
from verifier.workers._pipeline import Pipeline

RESULT_S = 60.0
KEY = b"sixteen byte key"


def under(batch: Batch, key: bytes | Secret, secret_inputs: tuple[int, ...] = ()) -> Batch:
    return dataclasses.replace(batch, key=dataclasses.replace(batch.key, constant=key, secret_inputs=secret_inputs))


def slots_of(worker) -> bytes:
    """What lies in the worker's slots; the last result's slot is free by the time that its future is done."""
    until(lambda: worker.room() == worker.options.slots)
    return b"".join(slot.tobytes() for slot in worker._process._slots)


@pytest.mark.parametrize("merged", [1, 3])
def test_a_slot_keeps_no_constant_that_is_secret(worker, merged):
    parts = [under(variable_batch(random_values(40, i)), Secret(KEY, 1)) for i in range(merged)]
    for part, result in zip(parts, worker.run(1, VERIFY, parts[0].key, parts).result(RESULT_S), strict=True):
        check_verify(part, result)
    assert KEY not in slots_of(worker)
    public = under(parts[0], KEY)
    worker.run(1, VERIFY, public.key, [public]).result(RESULT_S)
    assert KEY in slots_of(worker), "or the assertion above could not fail"


def test_a_slot_keeps_no_input_that_is_secret(worker):
    values = [KEY] * 100
    secret = under(variable_batch(values), b"", (0,))
    check_verify(secret, worker.run(1, VERIFY, secret.key, [secret]).result(RESULT_S)[0])
    assert KEY not in slots_of(worker)
    public = variable_batch(values)
    worker.run(1, VERIFY, public.key, [public]).result(RESULT_S)
    assert KEY in slots_of(worker), "or the assertion above could not fail"


def test_a_batch_that_fails_leaves_no_key_either(worker):
    late = under(variable_batch([KEY] * 10), Secret(KEY, 1), (0,))
    future = worker.run(1, VERIFY, late.key, [late], deadline=0.0)
    assert future.exception(RESULT_S) is not None
    assert KEY not in slots_of(worker)


class Device:
    """A pipeline on a device with memory of its own, and what is left there after a batch."""

    def __init__(self, driver, manifest, build) -> None:
        options = WorkerOptions(slots=1, slot_bytes=1 << 20, streams=1, chunk_rounds=1, chunk_least_bytes=0)
        self.plan = Plan(manifest.state, tuple(OperationPlan.of(operation) for operation in manifest.operations))
        self.driver = driver
        self.slot = np.zeros(1 << 20, np.uint8)
        self.registered = driver.register(self.slot)
        self.pipeline = Pipeline(driver, [self.slot], options)
        self.instance = Instance(driver, self.plan, build(driver.info.target))

    def run(self, batch: Batch, secret: bool) -> None:
        layout = lay_out([batch], len(KEY), self.plan.operations[VERIFY].outputs)
        write_parts(self.slot, layout, [batch], KEY)
        job = Job(1, 0, 1, VERIFY, batch.key.parameters, None, layout, secret)
        self.pipeline.finish(self.pipeline.submit(self.instance, job))

    def left(self) -> bytes:
        """The chunk's memory."""
        buffer = self.pipeline._streams[0]._columns.buffer
        copy = np.zeros(buffer.nbytes, np.uint8)
        stream = self.driver.stream()
        stream.copy_out(copy, buffer.address)
        stream.synchronize()
        stream.close()
        return copy.tobytes()

    def close(self) -> None:
        self.instance.close()
        self.pipeline.close()
        self.registered.close()
        self.driver.close()


@pytest.fixture
def device(device_id, manifest, build):
    driver = open_driver(device_id)
    if driver.info.unified:
        driver.close()
        pytest.skip("it works in the slot itself")
    made = Device(driver, manifest, build)
    yield made
    made.close()


@pytest.mark.parametrize("constant_only", [True, False])
def test_a_devices_memory_keeps_no_key(device, constant_only):
    batch = under(variable_batch([b"data"] * 50 if constant_only else [KEY] * 50), KEY)
    device.run(batch, secret=False)
    assert KEY in device.left(), "or the next assertion could not fail"
    device.run(batch, secret=True)
    assert KEY not in device.left()


def test_a_launch_that_is_refused_leaves_no_key_in_a_devices_memory(device, monkeypatch):
    """For want of resources, for instance: the key has come in by then."""
    batch = under(variable_batch([KEY] * 50), KEY)
    stream = type(device.pipeline._streams[0].stream)

    def refused(*_):
        raise BackendError("too many resources requested for launch")

    with monkeypatch.context() as patch:
        patch.setattr(stream, "launch", refused)
        for secret in (False, True):
            with pytest.raises(BackendError, match="too many resources"):
                device.run(batch, secret)
            assert (KEY in device.left()) is not secret
    device.run(batch, secret=True)
