"""Row groups over processes that read them, for devices that this one has.

One process cannot read as fast as a GPU verifies: Python's threads share an interpreter's lock. So others read and
decode, put columns where the devices take them from, and judge what comes back; this one hands out row groups and
writes down what is done.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, cast

import structlog

from node_adapter.ledger._calls import Call
from node_adapter.ledger._engine import Engine
from node_adapter.ledger._outcome import Outcome, first_line
from node_adapter.ledger._reader import Setup, Task
from node_adapter.ledger._requests import MAX_BYTES
from verifier.api import Operations
from verifier.channel import Channel
from verifier.errors import NotServedError
from verifier.frontend import FromFrontEnd, Session
from verifier.regions import Region
from verifier.spawn import spawn

if TYPE_CHECKING:
    from node_adapter.ledger._verify import Group

__all__ = ["verify_with_readers"]

_log = structlog.get_logger(__name__)

_A_CORE = 3  # row groups at the same time: one is read while others wait for the device
_READ_BYTES = 1 << 30  # of row groups in memory at the same time, of all readers; and as much for their columns
_AHEAD = 2  # row groups that a reader has beside those it reads
_STOP_S = 5.0

_Done = list[tuple["Group", Outcome]]


def verify_with_readers(
    groups: Sequence[Group], plugins: Sequence[str], devices: Sequence[str], processes: int
) -> Iterator[_Done]:
    """What was done meanwhile, again and again until all is. Raises what starting the devices raises.

    A process that ends is named in the log, and another takes its place; what it had is done again, row group by row
    group. One that ends two of them has an outcome with an error.
    """
    largest = max(group.nbytes for group in groups)
    threads = _threads(largest, processes)
    # The largest batch fits: Engine takes twice MAX_BYTES, and offsets and alignment come to that.
    region_bytes = max(3 * MAX_BYTES, min(threads * largest, _READ_BYTES // processes))
    with ExitStack() as resources:
        readers = _Readers(region_bytes)
        resources.callback(readers.close)
        readers.start(min(processes, len(groups)))  # they import while the devices start
        engine = resources.enter_context(Engine(devices, plugins))
        resources.callback(readers.close)  # before the devices
        calls = dict.fromkeys(call for group in groups for call in group.calls)
        readers.serve(engine, Setup(region_bytes, threads, {call: _served(engine, call) for call in calls}))
        yield from _Work(groups, readers, threads + _AHEAD).run()


def _threads(largest: int, processes: int) -> int:
    """How many row groups one of so many readers has in memory at the same time."""
    at_once = min(_A_CORE * len(os.sched_getaffinity(0)), _READ_BYTES // max(largest, 1))
    return max(2, -(-at_once // processes))


def _served(engine: Engine, call: Call) -> dict[str, str] | str:
    try:
        return engine.plugins([call])
    except NotServedError as error:
        return first_line(error)


class _Reader:
    """One process, and the row groups that it has."""

    def __init__(self, region: Region) -> None:
        self.groups: dict[tuple[str, int], Group] = {}
        self._region = region
        self._session: Session | None = None
        control, child_control = socket.socketpair()
        calls, child_calls = socket.socketpair()
        with control, calls, child_control, child_calls:
            fds = (child_control.fileno(), child_calls.fileno(), region.fd)
            self._process = spawn("node_adapter.ledger._reader", "verifier-ledger-reader", fds)
            self.control, self._calls = Connection(control.detach()), Connection(calls.detach())

    @property
    def pid(self) -> int:
        return self._process.pid

    def serve(self, operations: Operations, setup: Setup) -> None:
        """Has it begin. What it sends is given to `operations`."""
        channel = Channel(self._calls, FromFrontEnd)
        self._session = Session(channel, self._region, operations, lambda _: None, lambda: None)
        self._session.start()
        with contextlib.suppress(OSError):  # it has ended already, which `take` says
            self.control.send(setup)

    def give(self, group: Group) -> None:
        """Hands it a row group."""
        self.groups[group.name, group.row_group] = group
        with contextlib.suppress(OSError):  # as above
            self.control.send(Task(group.path, group.name, group.digest, group.row_group))

    def take(self) -> tuple[Group, Outcome]:
        """A row group that it has done. Raises EOFError or OSError where it has ended."""
        outcome = Outcome.from_line(self.control.recv_bytes().decode())
        return self.groups.pop((outcome.path, outcome.row_group)), outcome

    def close(self) -> str:
        """Ends it, and returns how it has ended. Its batches are dropped."""
        self.control.close()
        try:
            status = self._process.wait(_STOP_S)  # it sees that nobody asks any more
        except subprocess.TimeoutExpired:
            self._process.kill()
            status = self._process.wait()
        if self._session is None:
            self._region.retire()
        else:
            self._session.join()
        self._calls.close()
        return signal.Signals(-status).name if status < 0 else f"exit status {status}"


class _Readers:
    """The processes. Iterating gives those that run."""

    def __init__(self, region_bytes: int) -> None:
        self._region_bytes = region_bytes
        self._readers: list[_Reader] = []
        self._engine: Engine | None = None
        self._setup: Setup

    def __iter__(self) -> Iterator[_Reader]:
        return iter(self._readers)

    def start(self, count: int) -> None:
        """Starts so many more."""
        for _ in range(count):
            region = Region.create(self._region_bytes, self._unmap)
            try:
                reader = _Reader(region)
            except BaseException:
                region.retire()
                raise
            self._readers.append(reader)
            if self._engine is not None:
                reader.serve(self._engine.operations, self._setup)

    def _unmap(self, region: Region) -> None:
        if self._engine is not None:
            self._engine.unmap(region)

    def serve(self, engine: Engine, setup: Setup) -> None:
        """Has all begin, and those that are started later."""
        self._engine, self._setup = engine, setup
        for reader in self._readers:
            reader.serve(engine.operations, setup)

    def remove(self, reader: _Reader) -> str:
        """Takes out one that has ended, and returns how."""
        self._readers.remove(reader)
        return reader.close()

    def close(self) -> None:
        """Ends all. Idempotent."""
        while self._readers:
            self._readers.pop().close()


class _Work:
    """What is left to do, and who does it."""

    def __init__(self, groups: Sequence[Group], readers: _Readers, at_once: int) -> None:
        self._left = deque(groups)
        self._again: deque[Group] = deque()  # whoever had them has ended: each is tried again by itself
        self._tried: set[tuple[str, int]] = set()
        self._readers = readers
        self._at_once = at_once
        self._most_lost = self._may_be_lost = len(list(readers))  # with nothing done meanwhile

    def run(self) -> Iterator[_Done]:
        """What is done, until nothing is left."""
        while True:
            for reader in self._readers:
                self._fill(reader)
            busy = {reader.control: reader for reader in self._readers if reader.groups}
            if not busy:
                break
            # All that is there at once: the consumer waits for the disk once for each list.
            done = [pair for control in wait(list(busy)) for pair in self._take(busy[cast(Connection, control)])]
            if done:
                self._may_be_lost = self._most_lost
                yield done
        problem = "every process that reads has ended, and what took its place, too"
        yield [(group, _failed(group, problem)) for group in (*self._left, *self._again)]

    def _fill(self, reader: _Reader) -> None:
        while self._left and len(reader.groups) < self._at_once:
            reader.give(self._left.popleft())
        if self._again and not reader.groups:
            reader.give(self._again.popleft())

    def _take(self, reader: _Reader) -> _Done:
        done = []
        try:
            done.append(reader.take())
            while reader.control.poll():
                done.append(reader.take())
        except (EOFError, OSError, ValueError, LookupError, TypeError):  # it has ended, or sends rubbish
            done += self._lost(reader)
        return done

    def _lost(self, reader: _Reader) -> _Done:
        how = self._readers.remove(reader)
        _log.warning("ledger_reader_lost", pid=reader.pid, ended_by=how, row_groups=len(reader.groups))
        failed = []
        for place, group in reader.groups.items():
            if place in self._tried:
                failed.append((group, _failed(group, f"the process that read it ended twice, the last one by {how}")))
            else:
                self._tried.add(place)
                self._again.append(group)
        if self._may_be_lost:
            self._may_be_lost -= 1
            try:
                self._readers.start(1)
            except OSError as error:
                _log.warning("ledger_reader_not_started", error=str(error))
        return failed


def _failed(group: Group, problem: str) -> Outcome:
    return Outcome(group.name, group.digest, group.row_group, error=problem)
