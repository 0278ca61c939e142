"""A pipeline in this process, in place of a child."""

from __future__ import annotations

import itertools
from contextlib import suppress

import numpy as np

from verifier.errors import BackendError
from verifier.model import Batch, BatchResult
from verifier.workers import WorkerOptions
from verifier.workers._instance import Instance
from verifier.workers._layout import lay_out, write_parts
from verifier.workers._messages import Job, OperationPlan, Plan
from verifier.workers._pipeline import Pipeline, Submitted
from verifier.workers._results import read_results

STALE = 0xFF  # what an earlier batch left in the slot: every bit valid and decided


class Bench:
    """A pipeline with two slots and a plugin loaded."""

    def __init__(self, driver, manifest, image, slot_bytes=1 << 20, **options) -> None:
        self.options = WorkerOptions(slots=2, slot_bytes=slot_bytes, **options)
        self.driver = driver
        self.plan = Plan(
            manifest.state,
            tuple(OperationPlan.of(operation) for operation in manifest.operations),
        )
        self.slots = np.full((2, slot_bytes), STALE, np.uint8)
        self.registered = driver.register(self.slots.reshape(-1))
        self.pipeline = Pipeline(driver, list(self.slots), self.options)
        self.instance = Instance(driver, self.plan, image)
        self._tickets = itertools.count()

    def submit(self, operation: int, parts: list[Batch], slot: int = 0, *, secret: bool = False) -> Submitted:
        key = parts[0].key
        layout = lay_out(parts, len(key.constant), self.plan.operations[operation].outputs)
        write_parts(self.slots[slot], layout, parts, key.constant)
        job = Job(next(self._tickets), slot, 1, operation, key.parameters, None, layout, secret)
        return self.pipeline.submit(self.instance, job)

    def finish(self, submitted: Submitted, parts: list[Batch]) -> list[BatchResult]:
        device_ns = self.pipeline.finish(submitted)
        assert device_ns >= 0
        job = submitted.job
        return read_results(self.slots[job.slot], job.layout, [part.items for part in parts], "", device_ns)

    def run(self, operation: int, *parts: Batch) -> list[BatchResult]:
        return self.finish(self.submit(operation, list(parts)), list(parts))

    def close(self) -> None:
        with suppress(BackendError):  # what a test made fail
            self.driver.synchronize()
        self.instance.close()
        self.pipeline.close()
        self.registered.close()
