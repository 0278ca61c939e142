"""What the calls of a node's verifier take of its process."""

from __future__ import annotations

import asyncio
import time

from node_adapter.chain._engines import Engine
from node_adapter.chain._host import Host
from node_adapter.chain._questions import Codes, Question, ask

__all__ = ["counted_s", "whole_over_counted"]

_CALLS, _SECONDS = 30, 5.0
_RETRY_S = 0.25


def counted_s(engine: Engine) -> float:
    """Processor seconds of an engine's steps so far, and of all threads but the caller's, which are gRPC's."""
    return engine.cpu_s + time.process_time() - time.thread_time()


async def whole_over_counted(host: Host, engine: Engine, question: Question) -> float:
    """How many times what `counted_s` counts of calls they take of the process: at least 1.

    gRPC's own tasks and the event loop's steps for a call run on the node's thread among the node's own, where
    nothing tells them apart. So calls are made one after the other while the process does nothing else: all the time
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
    whole, counted = time.process_time(), counted_s(engine)
    for _ in range(_CALLS):
        await call()
        if time.perf_counter() > end:
            break
    whole, counted = time.process_time() - whole, counted_s(engine) - counted
    return max(1.0, whole / counted) if counted > 0 else 1.0
