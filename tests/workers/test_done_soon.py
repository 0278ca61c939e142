"""Which of a child's threads finishes a batch: the one that took it, where it is done soon and no other comes."""

from __future__ import annotations

import socket
import threading
from multiprocessing.connection import Connection

import numpy as np
import pytest
from _bench import Bench
from _toy import VERIFY, fixed_batch

from verifier import cores
from verifier.channel import Channel
from verifier.drivers import open_driver
from verifier.drivers.build import host_target
from verifier.drivers.fake import Fault
from verifier.workers import _child
from verifier.workers._child import Child, Finisher
from verifier.workers._mapped import MappedRegions
from verifier.workers._messages import Late, Order, UnmapRegion

BATCH = fixed_batch(np.arange(40, dtype=np.uint8).reshape(20, 2))
LONG_S = 60.0


@pytest.fixture
def begin(manifest, build, monkeypatch):
    """A child of a fake device whose batches take `delay_s`, with cores enough, and the parent's end of its pipe."""
    monkeypatch.setattr(cores, "SPARE_CORES", 1)
    opened: list[Bench] = []

    def begun(delay_s: float) -> tuple[Child, Bench, Channel]:
        # The first launch is the one that loads the toy.
        slow = Fault("launch parity_sum", after=1, times=0, delay_s=delay_s)
        bench = Bench(open_driver("fake:0", faults=[slow]), manifest, build(host_target()))
        opened.append(bench)
        ours, theirs = (Connection(end.detach()) for end in socket.socketpair())
        channel = Channel(theirs, Order)
        child = Child(bench.driver, bench.pipeline, MappedRegions(bench.driver), ours, channel, channel)
        return child, bench, Channel(ours, Order)

    yield begun
    for bench in opened:
        bench.close()
        bench.driver.close()


def test_one_that_is_done_soon_is_finished_by_the_thread_that_took_it(begin, monkeypatch):
    monkeypatch.setattr(_child, "_WATCHED_S", LONG_S)
    child, bench, _ = begin(0.05)
    submitted = bench.submit(VERIFY, [BATCH])
    assert child._is_done_soon(submitted)
    assert submitted.done()
    bench.finish(submitted, [BATCH])


def test_one_that_takes_long_is_not(begin, monkeypatch):
    monkeypatch.setattr(_child, "_WATCHED_S", 0.0)
    child, bench, _ = begin(0.5)
    submitted = bench.submit(VERIFY, [BATCH])
    assert not child._is_done_soon(submitted)
    bench.finish(submitted, [BATCH])


def test_one_that_another_message_follows_is_not(begin, monkeypatch):
    monkeypatch.setattr(_child, "_WATCHED_S", LONG_S)
    child, bench, parent = begin(0.5)
    submitted = bench.submit(VERIFY, [BATCH])
    parent.send(UnmapRegion(1))
    assert not child._is_done_soon(submitted)
    bench.finish(submitted, [BATCH])


def test_with_few_cores_nobody_looks(begin, monkeypatch):
    monkeypatch.setattr(_child, "_WATCHED_S", LONG_S)
    monkeypatch.setattr(cores, "SPARE_CORES", 1 << 20)
    child, bench, _ = begin(0.5)
    submitted = bench.submit(VERIFY, [BATCH])
    assert not child._is_done_soon(submitted)
    bench.finish(submitted, [BATCH])


def test_what_follows_one_that_is_not_finished_keeps_its_place():
    going_on, answered = threading.Event(), []

    def answer(taken: Late) -> None:
        going_on.wait(LONG_S)
        answered.append(taken.ticket)

    finisher = Finisher("finish", lambda: None, answer)
    assert finisher.idle
    finisher.give(Late(1))
    finisher.give(Late(2))
    assert not finisher.idle
    going_on.set()
    finisher.close()
    assert finisher.idle
    assert answered == [1, 2]
