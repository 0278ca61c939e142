"""A process that reads: row groups come, their columns go to the devices of the process that asked, outcomes back.

It owns no device. Columns are put where the devices read them, in memory that both processes share, and what passes
between the two is a descriptor, as a daemon's front ends have it.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
import traceback
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple, NoReturn

import grpc
import numpy as np

from node_adapter.client._answers import read_codes, read_outputs
from node_adapter.client._columns import Column
from node_adapter.ledger._calls import ADDRESS_BYTES, Call
from node_adapter.ledger._groups import verify_group
from node_adapter.ledger._requests import CALLER, columnar_request
from verifier.api import Pending, RefusedError, Status, tune_malloc
from verifier.channel import Channel
from verifier.frontend import Answer, FromCore, Link
from verifier.model import BatchResult
from verifier.reader import Reader
from verifier.regions import map_memory

__all__ = ["Served", "Setup", "Task", "main"]

_KEY_BYTES = 64  # of a recovered key

Served = Mapping[Call, Mapping[str, str] | str]
"""By call the plugins and their digests; or why none serves it."""


class Setup(NamedTuple):
    """To the reader, first."""

    region_bytes: int
    threads: int  # row groups at the same time
    served: Served


class Task(NamedTuple):
    """To the reader: a row group. Answered by its outcome as a line, in whatever order."""

    path: Path
    name: str
    digest: str
    row_group: int


@dataclass(frozen=True, slots=True)
class _Sent:
    """A batch that the other process has."""

    call: Call
    items: int
    pending: Pending

    def result(self) -> BatchResult:
        answer = self.pending.answer()
        codes = read_codes(answer, self.items)
        valid, decided = (np.frombuffer(bits, np.uint8) for bits in (answer.valid, answer.decided))
        if not self.call.recover:
            return BatchResult(self.items, valid, decided, codes)
        keys = read_outputs("keys", answer.keys, self.items, _KEY_BYTES)
        addresses = read_outputs("addresses", answer.addresses, self.items, ADDRESS_BYTES)
        return BatchResult(self.items, valid, decided, codes, (keys, addresses))


class _Devices:
    """Those of the process that asked."""

    def __init__(self, link: Link, served: Served) -> None:
        self._link = link
        self._served = served

    def plugins(self, calls: Iterable[Call]) -> dict[str, str]:
        found: dict[str, str] = {}
        for call in calls:
            plugins = self._served[call]
            if isinstance(plugins, str):
                raise RefusedError(Status(grpc.StatusCode.FAILED_PRECONDITION, plugins))
            found |= plugins
        return found

    def submit(self, call: Call, columns: Mapping[str, Column], start: int, stop: int) -> _Sent:
        rpc, request = columnar_request(call, columns, start, stop)
        pending = self._link.submit(rpc, request, deadline=None, caller=CALLER, patient=lambda: True)
        return _Sent(call, stop - start, pending)


class _Reader:
    def __init__(self, control: Connection, setup: Setup, link: Link) -> None:
        self._control = control
        self._sending = threading.Lock()
        self._devices = _Devices(link, setup.served)
        self._pool = ThreadPoolExecutor(setup.threads, "ledger")

    def run(self) -> None:
        """Until the other process is gone. Raises EOFError, OSError."""
        while True:
            self._pool.submit(self._verify, self._control.recv())

    def _verify(self, task: Task) -> None:
        try:
            line = verify_group(self._devices, *task).as_line()
            with self._sending:
                self._control.send_bytes(line.encode())
        except OSError:
            os._exit(1)  # the other process is gone
        except BaseException:
            # Memory was short, or worse: the row group is tried again by itself, in another process.
            traceback.print_exc()
            os._exit(1)


def main(control_fd: int, calls_fd: int, memory_fd: int) -> None:
    """Runs until the process that asked ends. The arguments are inherited: two sockets, and the shared memory."""
    faulthandler.enable()
    tune_malloc()
    control, channel = Connection(control_fd), Channel(Connection(calls_fd), FromCore)
    try:
        setup: Setup = control.recv()
        answers = Reader("answers", channel, lambda message: _take(link, message), _lose)
        memory = map_memory(memory_fd, setup.region_bytes)
        link = Link(channel, answers, memory, parse=True, digests=False)  # columns stay in this program's processes
        answers.start()
        _Reader(control, setup, link).run()
    except (EOFError, OSError):
        os._exit(0)  # nobody waits for what still runs


def _take(link: Link, message: object) -> None:
    if isinstance(message, Answer):
        link.take(message)


def _lose(kind: str, problem: str = "") -> NoReturn:
    """Nothing that waits would ever be answered."""
    if problem:
        print(f"{kind}: {problem}", file=sys.stderr)
    os._exit(1)
