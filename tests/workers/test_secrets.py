"""Keys do not outlast their batch: neither in slots, nor in a device's memory."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from _toy import VERIFY, check_verify, random_values, variable_batch
from _waiting import until

from verifier.drivers import open_driver
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


@pytest.mark.parametrize("constant_only", [True, False])
def test_a_devices_memory_keeps_no_key(device_id, manifest, build, constant_only):
    driver = open_driver(device_id)
    if driver.info.unified:
        driver.close()
        pytest.skip("it works in the slot itself")
    options = WorkerOptions(slots=1, slot_bytes=1 << 20, streams=1, chunk_rounds=1, chunk_least_bytes=0)
    plan = Plan(manifest.state, tuple(OperationPlan.of(operation) for operation in manifest.operations))
    slot = np.zeros(1 << 20, np.uint8)
    registered = driver.register(slot)
    pipeline = Pipeline(driver, [slot], options)
    instance = Instance(driver, plan, build(driver.info.target))

    def left(secret: bool) -> bytes:
        """The chunk's memory after a batch."""
        batch = under(variable_batch([b"data"] * 50 if constant_only else [KEY] * 50), KEY)
        layout = lay_out([batch], len(KEY), plan.operations[VERIFY].outputs)
        write_parts(slot, layout, [batch], KEY)
        job = Job(1, 0, 1, VERIFY, batch.key.parameters, None, layout, secret)
        pipeline.finish(pipeline.submit(instance, job))
        buffer = pipeline._streams[0]._columns.buffer
        copy = np.zeros(buffer.nbytes, np.uint8)
        stream = driver.stream()
        stream.copy_out(copy, buffer.address)
        stream.synchronize()
        stream.close()
        return copy.tobytes()

    try:
        assert KEY in left(secret=False), "or the next assertion could not fail"
        assert KEY not in left(secret=True)
    finally:
        instance.close()
        pipeline.close()
        registered.close()
        driver.close()
