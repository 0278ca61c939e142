"""Any order of requests, faults, cancellations and swaps: every answer is right or undetermined, nothing is left."""

from __future__ import annotations

import numpy as np
from _by_hand import KEY, HandDevice, Leases, batch, judge
from _clock import Clock
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from verifier.errors import CapacityError, DeadlineError
from verifier.model import BatchKey
from verifier.scheduling import Priority, QueueLimits, Scheduler, SchedulingOptions
from verifier.workers import WorkerState

KEYS = (KEY, BatchKey(KEY.plugin, KEY.operation, (1,)))


class Traffic(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.devices = (HandDevice("cpu", slots=2), HandDevice("cuda:0", "cuda", slots=3, fits_bytes=1000))
        self.leases = Leases(*self.devices)
        self.instances = [self.leases.active]
        options = SchedulingOptions(
            queue=QueueLimits(600, 4000, caller_share=0.7),
            launch_items=100,
            launch_bytes=300,
            retries=2,
            unserved_wait_s=5.0,
        )
        self.scheduler = Scheduler(self.devices, self.leases, options, clock=self.clock)
        self.asked = []

    @rule(
        items=st.integers(1, 300),
        key=st.sampled_from(KEYS),
        caller=st.sampled_from("abc"),
        priority=st.sampled_from(Priority),
        within=st.none() | st.floats(0.1, 20),
        seed=st.integers(0, 99),
    )
    def submit(self, items, key, caller, priority, within, seed):
        values = np.random.default_rng(seed).integers(0, 256, items, dtype=np.uint8)
        deadline = None if within is None else self.clock.now + within
        try:
            future = self.scheduler.submit(batch(values, key), deadline=deadline, priority=priority, caller=caller)
        except CapacityError:
            assert self.scheduler.held()["even"].items + items > 300
            return
        self.asked.append((future, values))

    @rule()
    def poll(self):
        self.scheduler.poll()

    @rule(device=st.integers(0, 1), index=st.integers(0, 2))
    def finish(self, device, index):
        running = self.devices[device].running
        if running:
            self.devices[device].finish(index % len(running))

    @rule(device=st.integers(0, 1), index=st.integers(0, 2))
    def fail(self, device, index):
        running = self.devices[device].running
        if running:
            self.devices[device].fail(index % len(running))

    @rule(device=st.integers(0, 1))
    def die(self, device):
        self.devices[device].die()

    @rule(device=st.integers(0, 1))
    def revive(self, device):
        self.devices[device].state = WorkerState.UP

    @rule(which=st.integers(0, 1000))
    def cancel(self, which):
        if self.asked:
            self.asked[which % len(self.asked)][0].cancel()

    @rule(seconds=st.floats(0, 6))
    def wait(self, seconds):
        self.clock.now += seconds

    @rule()
    def swap(self):
        self.instances.append(self.leases.swap())

    @invariant()
    def bounds_hold(self):
        held = self.scheduler.held().get("even")
        assert held is None or held.items <= 600
        assert all(len(device.running) <= device.slots for device in self.devices)

    def teardown(self) -> None:
        for device in self.devices:
            device.state = WorkerState.UP
        for _ in range(1000):
            if not self.scheduler.poll() and not any(device.running for device in self.devices):
                break
            for device in self.devices:
                while device.running:
                    device.finish()
        for future, values in self.asked:
            assert future.done()
            if future.cancelled():
                continue
            if future.exception(0) is not None:
                assert isinstance(future.exception(0), DeadlineError)
                continue
            self.check(future.result(0), values)
        assert self.scheduler.held() == {}
        assert [instance.leases for instance in self.instances] == [0] * len(self.instances)

    @staticmethod
    def check(result, values):
        whole = judge(batch(values))
        decided = np.unpackbits(result.decided, count=len(values), bitorder="little").astype(bool)
        valid = np.unpackbits(result.valid, count=len(values), bitorder="little").astype(bool)
        np.testing.assert_array_equal(result.codes, np.where(decided, whole.codes, 0))
        np.testing.assert_array_equal(valid, decided & (values % 2 == 0))


TestTraffic = Traffic.TestCase
TestTraffic.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)
