"""The child: it owns one device and runs what the parent puts into the slots.

Its first thread takes batches and submits them, a second finishes them in order, a third the urgent ones, and a
fourth loads and unloads plugins and notices the parent's end. The first does the finishing too where the device works
in place, and of a batch that is done soon while no other comes: that spares small batches a change of threads. It
looks for the end of such a batch, and for a moment for the next batch, without giving up its core, where there are
enough of them: in a virtual machine waking a core that sleeps may take longer than verifying a signature does. It
gives way to others that the kernel has put on its core: one of them may be whom it waits for.
"""

from __future__ import annotations

import dataclasses
import faulthandler
import logging
import os
import queue
import select
import signal
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from multiprocessing import reduction
from multiprocessing.connection import Connection

from verifier.channel import Channel
from verifier.collector import keep_what_is_there
from verifier.cores import may_look
from verifier.drivers import open_driver
from verifier.drivers._driver import DeviceInfo, Driver
from verifier.errors import BackendError
from verifier.workers._instance import Instance
from verifier.workers._mapped import MappedRegions
from verifier.workers._messages import (
    Answer,
    Done,
    Failed,
    Hello,
    Job,
    Late,
    Load,
    MapRegion,
    Order,
    Problem,
    Ready,
    Unload,
    UnmapRegion,
)
from verifier.workers._pipeline import Pipeline, Submitted
from verifier.workers._slots import Slots

__all__ = ["main"]

_log = logging.getLogger(__name__)

_WATCHED_S = 2e-3  # the end of a batch is looked for so long; then a thread waits for it that gives up its core
_LINGER_S = 500e-6  # and the next batch so long: a caller with one after the other takes some 300 us to send it


_Taken = Submitted | Failed | Late


class Finisher:
    """A thread that answers what it is given, in order."""

    def __init__(self, name: str, begin: Callable[[], None], answer: Callable[[_Taken], None]) -> None:
        """`begin` is called in the thread, first."""
        self._begin, self._answer = begin, answer
        self._queue: queue.SimpleQueue[_Taken | None] = queue.SimpleQueue()
        self._given = self._done = 0  # each counted by one thread
        self._thread = threading.Thread(target=self._run, name=name)
        self._thread.start()

    @property
    def idle(self) -> bool:
        """Whether it has nothing to do."""
        return self._given == self._done

    def give(self, taken: _Taken) -> None:
        """What is to be answered behind all that it has."""
        self._given += 1
        self._queue.put(taken)

    def close(self) -> None:
        """Waits until everything is answered."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        self._begin()
        while (taken := self._queue.get()) is not None:
            self._answer(taken)
            self._done += 1


class Child:
    """One device and its loaded instances."""

    def __init__(
        self,
        driver: Driver,
        pipeline: Pipeline,
        regions: MappedRegions,
        control: Connection,
        batches: Channel,
        urgent: Channel,
    ) -> None:
        """`batches` brings orders and takes answers, but for those to urgent batches, which go to `urgent`."""
        self._driver = driver
        self._pipeline = pipeline
        self._regions = regions
        self._control = control
        self._batches = batches
        self._instances: dict[int, Instance] = {}
        self._answers = {False: (threading.Lock(), batches), True: (threading.Lock(), urgent)}  # by urgency
        self._orders = select.poll()
        self._orders.register(batches.connection, select.POLLIN)
        self._watched_s, self._linger_s = (_WATCHED_S, _LINGER_S) if may_look() else (0.0, 0.0)

    def serve(self) -> None:
        """Runs batches until the parent says that there are no more."""
        threading.Thread(target=self._serve_control, daemon=True, name="control").start()
        if self._driver.info.unified:
            while (job := self._next_job()) is not None:
                self._answer(job.urgent, self._submit(job))
        else:
            finishers = {
                urgent: Finisher(name, self._driver.attach, partial(self._answer, urgent))
                for urgent, name in ((False, "finish"), (True, "finish urgent"))
            }
            while (job := self._next_job()) is not None:
                submitted, finisher = self._submit(job), finishers[job.urgent]
                if finisher.idle and self._is_done_soon(submitted):
                    self._answer(job.urgent, submitted)
                else:
                    finisher.give(submitted)
            for finisher in finishers.values():
                finisher.close()
        for instance in self._instances.values():
            instance.close()

    def _is_done_soon(self, submitted: _Taken) -> bool:
        """Looks for the end of a batch, unless others come."""
        if not isinstance(submitted, Submitted):
            return True
        end = time.perf_counter() + self._watched_s
        while not submitted.done():
            if self._orders.poll(0) or time.perf_counter() > end:
                return False
            os.sched_yield()
        return True

    def _linger(self) -> None:
        """Looks for the next message for a moment."""
        end = time.perf_counter() + self._linger_s
        while not self._orders.poll(0) and time.perf_counter() < end:
            os.sched_yield()

    def _next_job(self) -> Job | None:
        try:
            while True:
                self._linger()
                message: Order = self._batches.receive()
                if isinstance(message, MapRegion):
                    self._map(message)
                elif isinstance(message, UnmapRegion):
                    self._regions.unmap(message.region)
                else:
                    return message
        except EOFError:  # the parent is gone
            return None

    def _map(self, message: MapRegion) -> None:
        fd = reduction.recv_handle(self._batches.connection)
        try:
            self._regions.map(message.region, fd, message.nbytes, changeable=message.changeable)
        except BackendError as error:
            if error.sticky:
                raise
            _log.warning("%s", error)  # batches that need it fail, and say so

    def _submit(self, job: Job) -> _Taken:
        if job.deadline is not None and time.monotonic() > job.deadline:
            return Late(job.ticket)
        try:
            instance = self._instances.get(job.instance_id)
            if instance is None:
                raise BackendError(f"instance {job.instance_id} is not loaded here")
            return self._pipeline.submit(instance, job)
        except Exception as error:
            return Failed(job.ticket, Problem.of(error))

    def _answer(self, urgent: bool, submitted: _Taken) -> None:
        answer: Answer
        if isinstance(submitted, Submitted):
            try:
                device_ns = self._pipeline.finish(submitted)
                answer = Done(submitted.job.ticket, device_ns, submitted.stages)
            except Exception as error:
                answer = Failed(submitted.job.ticket, Problem.of(error))
        else:
            answer = submitted
        turn, channel = self._answers[urgent]
        with turn:  # one message at a time
            channel.send(answer)

    def _serve_control(self) -> None:
        self._driver.attach()
        while True:
            try:
                request = self._control.recv()
                self._control.send(self._obey(request))
            except (EOFError, OSError):
                # The parent is gone. Nobody reads what still runs, and a kernel may hang: leave at once.
                os._exit(0)

    def _obey(self, request: Load | Unload) -> Ready | Problem:
        try:
            if isinstance(request, Load):
                self._instances[request.instance_id] = Instance(self._driver, request.plan, request.image)
            elif (instance := self._instances.pop(request.instance_id, None)) is not None:
                instance.close()
        except Exception as error:
            return Problem.of(error)
        return Ready()


def _open(hello: Hello) -> Driver:
    # cpu:0, cpu:1, ... are the one CPU that has this machine, each with threads of its own.
    kind = hello.device_id.partition(":")[0]
    return open_driver("cpu" if kind == "cpu" else hello.device_id, **hello.options.driver)


def main(control_fd: int, batches_fd: int, urgent_fd: int, memory_fd: int) -> None:
    """Runs until the parent ends it. The arguments are inherited file descriptors: three sockets and the slots."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent drains first, then ends us
    faulthandler.enable()
    keep_what_is_there()
    control, batches, urgent = (Connection(fd) for fd in (control_fd, batches_fd, urgent_fd))
    hello: Hello = control.recv()
    options = hello.options
    with ExitStack() as resources:
        try:
            slots = Slots(memory_fd, options.slots, options.slot_bytes)
            os.close(memory_fd)
            driver = _open(hello)
            resources.callback(driver.close)
            if not driver.info.unified:
                resources.callback(driver.register(slots.memory).close)
            regions = MappedRegions(driver)
            resources.callback(regions.close)
            pipeline = Pipeline(driver, slots.slots, options, regions)
            resources.callback(pipeline.close)
        except Exception as error:
            control.send(Problem.of(error))
            with suppress(EOFError, OSError):
                control.recv()  # until the parent ends us: gone by ourselves we would pass for a process that died
            return
        device: DeviceInfo = dataclasses.replace(driver.info, id=hello.device_id)
        control.send(device)
        # Nothing is received on `urgent`.
        Child(driver, pipeline, regions, control, Channel(batches, Order), Channel(urgent, None)).serve()
