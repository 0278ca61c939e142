"""The chain in real time: nodes as tasks of one event loop, each with its own connection to the middleware."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from node_adapter.chain._client import Request
from node_adapter.chain._libraries import by_library
from node_adapter.chain._membership import Identity
from node_adapter.chain._node import NodeSettings
from node_adapter.chain._pool import Pool
from node_adapter.chain._questions import Answer, Codes, Point, Question
from node_adapter.chain._world import World
from node_adapter.client import AsyncVerifierClient
from node_adapter.errors import AdapterError, DeadlineError

__all__ = ["Asked", "Engine", "Library", "LoopClock", "Middleware", "RealTime"]


@dataclass(frozen=True, slots=True)
class Asked:
    """One batch that a node had verified. `seconds` is from the question to the answer, on the node's side."""

    point: Point
    items: int
    seconds: float


class Engine(Protocol):
    """What a node has its batches verified by, and what it has asked so far."""

    asked: list[Asked]
    served: Counter[tuple[str, str]]  # signatures by (plugin instance, device)

    async def verify(self, question: Question) -> Codes:
        """One code an item."""

    async def close(self) -> None:
        """Ends the connection."""


@dataclass(slots=True)
class Middleware:
    """A daemon, over a connection of this node's own. What it cannot decide in time stays undecided."""

    client: AsyncVerifierClient
    timeout_s: float = 30.0
    asked: list[Asked] = field(default_factory=list)
    served: Counter[tuple[str, str]] = field(default_factory=Counter)

    async def verify(self, question: Question) -> Codes:
        """One code an item. Raises RefusedError where the daemon will never serve the scheme."""
        start = asyncio.get_running_loop().time()
        verdicts = await self.client.verify(
            question.scheme,
            question.inputs,
            question.signatures,
            question.keys,
            timeout_s=self.timeout_s,
            priority=question.priority,
            allow_undecided=True,
        )
        self.asked.append(Asked(question.point, len(question), asyncio.get_running_loop().time() - start))
        for part in verdicts.served:
            self.served[part.served_by, part.device] += part.items
        return verdicts.codes

    async def close(self) -> None:
        """Ends the connection."""
        await self.client.close()


@dataclass(slots=True)
class Library:
    """A CPU library in the node itself, which does nothing else meanwhile."""

    asked: list[Asked] = field(default_factory=list)
    served: Counter[tuple[str, str]] = field(default_factory=Counter)

    async def verify(self, question: Question) -> Codes:
        """One code an item."""
        start = asyncio.get_running_loop().time()
        codes = by_library(question)
        self.asked.append(Asked(question.point, len(question), asyncio.get_running_loop().time() - start))
        return codes

    async def close(self) -> None:
        """There is none."""


class LoopClock:
    """An event loop's clock."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def time(self) -> float:
        """Seconds since some moment."""
        return self._loop.time()

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        """On the loop."""
        return self._loop.call_later(delay_s, callback)


class RealTime(World):
    """A world on the running event loop. Make it inside the loop."""

    def __init__(
        self,
        identities: Sequence[Identity],
        pool: Pool,
        requests: Sequence[Request],
        engines: Sequence[Engine],
        *,
        seed: int,
        settings: NodeSettings | None = None,
        **world: Any,
    ) -> None:
        """One engine a member; `world` are the arguments of World."""
        self._loop = asyncio.get_running_loop()
        self.engines = engines
        self._tasks: set[asyncio.Task[None]] = set()
        self._failure: AdapterError | None = None
        settings = settings or NodeSettings(pool.algorithm)
        clock = LoopClock(self._loop)
        super().__init__(clock, identities, requests, seed=seed, settings=settings, balances=pool.balances, **world)

    def verify(self, number: int, question: Question, answer: Answer) -> None:
        """By the member's engine."""
        task = self._loop.create_task(self._decide(self.engines[number], question, answer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _decide(self, engine: Engine, question: Question, answer: Answer) -> None:
        try:
            codes = await engine.verify(question)
        except AdapterError as error:
            self._failure = error
            return
        answer(codes)

    async def run(self, until: Callable[[], bool], limit_s: float) -> None:
        """Waits until a condition holds. Raises what an engine refused with, and DeadlineError after `limit_s`."""
        end = self._loop.time() + limit_s
        while not until():
            if self._failure:
                raise self._failure
            if problem := next((node.problem for node in self.nodes if node.problem), None):
                raise AdapterError(f"a node stopped: {problem}")
            if self._loop.time() > end:
                heights = ", ".join(str(node.ledger.height) for node in self.nodes)
                raise DeadlineError(f"after {limit_s:.3g} s the chain is not there yet: the nodes are at {heights}")
            await asyncio.sleep(0.005)

    async def finish(self) -> None:
        """Ends nodes, disks and connections."""
        self.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for engine in self.engines:
            await engine.close()
