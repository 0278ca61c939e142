"""What the calls of a node's verifier take of its thread."""

from __future__ import annotations

import asyncio
import time

from node_adapter.chain._engines import Engine
from node_adapter.chain._host import Host
from node_adapter.chain._questions import Codes, Question, ask

__all__ = ["thread_over_steps"]

_CALLS, _SECONDS = 30, 5.0
_RETRY_S = 0.25


async def thread_over_steps(host: Host, engine: Engine, question: Question) -> float:
    """How many times the steps of an engine's calls, its `cpu_s`, they take of the thread they run on: 1 or more.

    gRPC's own tasks and the event loop's steps for a call run on the node's thread among the node's own, where
    nothing tells them apart. So calls are made one after the other while the thread does nothing else: all the time
    that it takes is then theirs.
    """
    answered = asyncio.Event()

    def use(codes: Codes) -> None:
        del codes
        answered.set()

    async def call() -> None:
        ask(host, question, _RETRY_S, use)
        await answered.wait()
        answered.clear()

    await call()  # for what is done once
    end = time.perf_counter() + _SECONDS
    whole, steps = time.thread_time(), engine.cpu_s
    for _ in range(_CALLS):
        await call()
        if time.perf_counter() > end:
            break
    whole, steps = time.thread_time() - whole, engine.cpu_s - steps
    return max(1.0, whole / steps) if steps > 0 else 1.0
