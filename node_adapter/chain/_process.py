"""A node as a process of its own: its event loop, its disk, and Unix sockets to the others."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Protocol

import numpy as np

from node_adapter.chain._call_cost import thread_over_steps
from node_adapter.chain._engines import Engine, Known, Library, Middleware
from node_adapter.chain._ledger import Ledger
from node_adapter.chain._membership import issue_members
from node_adapter.chain._messages import Message, decode, encode
from node_adapter.chain._node import Node, NodeSettings
from node_adapter.chain._questions import Answer, Point, Question
from node_adapter.errors import AdapterError, ChainError
from verifier.api import tune_malloc

__all__ = ["NodeProcess", "SocketHost", "run_node"]

_MOST_BYTES = 64 << 20  # of one message
_CALIBRATION_S = 20.0


class _Receiver(Protocol):
    def receive(self, message: Message, sender: int) -> None:
        """Takes a message."""


class SocketHost:
    """What a node, or a client, runs on in a process of its own.

    Every participant listens on `N.sock` in one folder and says its number when it connects: whoever may open the
    sockets is trusted to be who it says. Messages to one receiver keep their order; those to nobody are lost.
    """

    def __init__(self, folder: Path, number: int) -> None:
        self._folder, self._number = folder, number
        self._loop = asyncio.get_running_loop()
        self._writers: dict[int, asyncio.StreamWriter] = {}
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._encoded: tuple[Message | None, bytes] = (None, b"")

    async def listen(self, receiver: _Receiver) -> None:
        """Takes connections, and gives what comes to the receiver."""

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            # It ends with its peer, with a peer that sends what is no message, and with the loop.
            with contextlib.suppress(
                asyncio.IncompleteReadError, ConnectionError, ChainError, asyncio.CancelledError
            ):
                sender = int.from_bytes(await reader.readexactly(4), "big")
                while True:
                    size = int.from_bytes(await reader.readexactly(4), "big")
                    if size > _MOST_BYTES:
                        raise ChainError(f"{sender} sends a message of {size} bytes; the limit is {_MOST_BYTES}")
                    receiver.receive(decode(await reader.readexactly(size), Message), sender)  # type: ignore[arg-type]
            writer.close()

        self._server = await asyncio.start_unix_server(serve, self._path(self._number))

    async def connect(self, others: int) -> None:
        """Waits until all others listen."""
        for number in range(others):
            while number != self._number and number not in self._writers:
                try:
                    _, writer = await asyncio.open_unix_connection(self._path(number))
                except (ConnectionError, FileNotFoundError):
                    await asyncio.sleep(0.05)
                    continue
                writer.write(self._number.to_bytes(4, "big"))
                self._writers[number] = writer

    def _path(self, number: int) -> Path:
        return self._folder / f"{number}.sock"

    def now(self) -> float:
        """The loop's clock."""
        return self._loop.time()

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        """On the loop."""
        return self._loop.call_later(delay_s, callback)

    def send(self, to: int, message: Message) -> None:
        """Over the connection to the receiver."""
        if to not in self._writers or self._writers[to].is_closing():
            return
        if self._encoded[0] is not message:  # the same message often goes to all
            self._encoded = message, encode(message)
        data = self._encoded[1]
        self._writers[to].write(len(data).to_bytes(4, "big") + data)

    def verify(self, question: Question, answer: Answer) -> None:
        """Only nodes have verifiers."""
        raise NotImplementedError

    def close(self) -> None:
        """Ends the connections, and whatever is under way."""
        for task in self._tasks:
            task.cancel()
        for writer in self._writers.values():
            writer.close()
        if self._server:
            self._server.close()


class _NodeHost(SocketHost):
    """Adds a verifier."""

    def __init__(self, folder: Path, number: int, engine: Engine) -> None:
        super().__init__(folder, number)
        self._engine = engine
        self.refused: str | None = None  # by the engine: the node cannot go on
        self._largest: Question | None = None

    def verify(self, question: Question, answer: Answer) -> None:
        """By the engine."""
        if self._largest is None or len(question) > len(self._largest):
            self._largest = question
        task = self._loop.create_task(self._decide(question, answer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _decide(self, question: Question, answer: Answer) -> None:
        try:
            codes = await self._engine.verify(question)
        except AdapterError as error:
            self.refused = str(error)
        else:
            answer(codes)

    async def thread_over_steps(self) -> float:
        """That of calls of the size that those so far had on average. Raises TimeoutError."""
        if self._largest is None or not self._engine.asked:
            return 1.0
        async with asyncio.timeout(_CALIBRATION_S):
            if self._tasks:
                await asyncio.wait(self._tasks)
            mean = round(fmean(asked.items for asked in self._engine.asked))
            question = self._largest.only(np.arange(min(mean, len(self._largest))))
            return await thread_over_steps(self, self._engine, question)


@dataclass(frozen=True, slots=True)
class NodeProcess:
    """What a node's process is told.

    `verifier` is a daemon's target, "library", or "known": every signature counts as valid, so that all the rest can
    be measured alone. `signers` are keys to enroll with the daemon, and `memory` is where it takes shared memory.
    """

    folder: Path
    number: int
    members: int
    seed: int
    chain: int
    settings: NodeSettings
    balances: dict[bytes, int]
    verifier: str
    signers: tuple[bytes, ...] = ()
    memory: str = ""


def run_node(told: NodeProcess) -> None:
    """The process: runs until SIGTERM, and leaves what it took in `N.json`."""
    tune_malloc()
    asyncio.run(_run(told))


async def _engine(told: NodeProcess) -> Engine:
    if told.verifier == "known":
        return Known()
    if told.verifier == "library":
        return Library()
    middleware = Middleware.at(told.verifier, told.memory)
    if told.signers:
        await middleware.enroll(told.settings.algorithm, told.signers)
    return middleware


async def _run(told: NodeProcess) -> None:
    engine = await _engine(told)
    host = _NodeHost(told.folder, told.number, engine)
    identity = issue_members(told.seed, told.members, told.chain)[told.number]
    ledger = Ledger(told.folder / f"{told.number}.sqlite", told.chain, told.balances)
    node = Node(identity, host, ledger, told.settings, clients=[told.members])
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await host.listen(node)
    await host.connect(told.members + 1)  # the client listens too
    node.start()
    begun, own = time.process_time(), time.thread_time()
    parent = os.getppid()
    while not stop.is_set() and os.getppid() == parent:  # an orphan has nobody to report to
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), 1.0)
    cpu_s, steps_s = time.process_time() - begun, engine.cpu_s
    took: dict[str, Any] = {
        "cpu_s": cpu_s,
        # What makes questions, and all other threads than the node's, which are gRPC's. Calls are added below.
        "verifier_cpu_s": node.meter.seconds + cpu_s - (time.thread_time() - own),
        "calls": len(engine.asked),
        "asked": sum(asked.items for asked in engine.asked),
        "proposal_wait_s": sum(asked.seconds for asked in engine.asked if asked.point is Point.PROPOSAL),
        "height": ledger.height,
        "view": node.replica.view,
        "problem": node.problem or host.refused,
    }
    node.stop("the run is over")
    if isinstance(engine, Middleware) and ledger.height:
        try:
            steps_s *= await host.thread_over_steps()
        except TimeoutError:
            took["problem"] = took["problem"] or "its calls have no answer, so their cost is not known"
    took["verifier_cpu_s"] += steps_s
    host.close()
    ledger.close()
    await engine.close()
    (told.folder / f"{told.number}.json").write_text(json.dumps(took), encoding="utf-8")
