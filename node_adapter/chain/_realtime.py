"""The chain in real time: nodes as tasks of one event loop, each with its own connection to the middleware."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from node_adapter.chain._client import Request
from node_adapter.chain._engines import Engine
from node_adapter.chain._membership import Identity
from node_adapter.chain._node import NodeSettings
from node_adapter.chain._pool import Pool
from node_adapter.chain._questions import Answer, Question
from node_adapter.chain._world import World
from node_adapter.errors import AdapterError, DeadlineError

__all__ = ["LoopClock", "RealTime"]


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
