"""The chain on a simulated clock: every event in its order, everything from one seed, no time spent waiting."""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from node_adapter.chain._client import Request
from node_adapter.chain._membership import Identity
from node_adapter.chain._node import NodeSettings
from node_adapter.chain._pool import Pool
from node_adapter.chain._questions import Answer, Question
from node_adapter.chain._verdicts import Verify
from node_adapter.chain._world import World

__all__ = ["EventQueue", "Simulation"]


class _Event:
    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class EventQueue:
    """What happens when, and a clock that jumps from one event to the next."""

    def __init__(self) -> None:
        self._now = 0.0
        self._events: list[tuple[float, int, _Event]] = []
        self._numbers = itertools.count()

    def time(self) -> float:
        """Simulated seconds."""
        return self._now

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> _Event:
        """Adds an event. Those of the same moment happen in the order in which they were added."""
        event = _Event(callback)
        heapq.heappush(self._events, (self._now + delay_s, next(self._numbers), event))
        return event

    def run(self, until: Callable[[], bool], limit_s: float) -> bool:
        """Lets events happen until a condition holds (True) or the clock would pass `limit_s` (False)."""
        while not until():
            if not self._events or self._events[0][0] > limit_s:
                self._now = limit_s
                return False
            self._now, _, event = heapq.heappop(self._events)
            if event.callback is not None:
                event.callback()
        return True


class Simulation(World):
    """A world on a simulated clock, where every member has a daemon of its own that answers after a while.

    `verify` gives the verdicts. Two simulations with equal arguments are equal in every event.
    """

    def __init__(
        self,
        identities: Sequence[Identity],
        pool: Pool,
        requests: Sequence[Request],
        verify: Verify,
        *,
        seed: int,
        settings: NodeSettings | None = None,
        verification_s: tuple[float, float] = (0.001, 0.01),
        **world: Any,
    ) -> None:
        """`world` are the arguments of World; daemons take `verification_s` seconds, from and to."""
        self._verdicts, self._verification_s = verify, verification_s
        self._down = [False] * len(identities)
        self._deaths = [0] * len(identities)
        self.queue = EventQueue()
        self._luck = random.Random(seed)
        settings = settings or NodeSettings(pool.algorithm)
        super().__init__(
            self.queue, identities, requests, seed=seed, settings=settings, balances=pool.balances, **world
        )
        self.client.start()

    def verify(self, number: int, question: Question, answer: Answer) -> None:
        """By the member's daemon. Nothing is decided where it is down, or dies while the batch is with it."""
        deaths = self._deaths[number]

        def finish() -> None:
            lost = self._down[number] or self._deaths[number] != deaths
            answer(np.zeros(len(question), np.uint8) if lost else self._verdicts(question))

        self.queue.call_later(self._luck.uniform(*self._verification_s), finish)

    def crash_daemon(self, number: int) -> None:
        """A member's daemon dies, in the middle of whatever it verifies."""
        self._down[number] = True
        self._deaths[number] += 1

    def restart_daemon(self, number: int) -> None:
        """It serves again."""
        self._down[number] = False

    def run(self, until: Callable[[], bool], limit_s: float) -> bool:
        """Runs until a condition holds (True), or until the simulated clock shows `limit_s` (False)."""
        return self.queue.run(until, limit_s)
