"""What a chain gains by the middleware: transactions a second with one verifier and with another, all else equal.

Every node is a process with its disk and sockets; a client, in the calling process, keeps `window` transactions under
way. What is measured begins after the first fifth of them and ends before the last.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import signal
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from node_adapter.chain._client import Client, requests_of
from node_adapter.chain._engines import Middleware
from node_adapter.chain._libraries import by_library
from node_adapter.chain._membership import issue_members
from node_adapter.chain._node import NodeSettings
from node_adapter.chain._pool import Pool
from node_adapter.chain._process import NodeProcess, SocketHost, run_node
from node_adapter.chain._questions import Point, Question
from node_adapter.chain._transaction import TRANSACTION_SCHEMES
from node_adapter.errors import ChainError
from verifier.bench import processes

__all__ = ["Measured", "cpu_s", "library_cost_s", "measure", "middleware_cost_s", "predicted_gain"]

_ENDS_S = 60


@dataclass(frozen=True, slots=True)
class Measured:
    """One run. Latencies are the client's; processor times are for one transaction: of all nodes together, of what
    verifies in them (the library, or all that calls of the middleware take of a node's process), of the daemon with
    its workers, and of the client. `wait_share` is the part of the time for which a node, on average, held a proposal
    back until its signatures were verified; `call_items` how many signatures a node asks about at a time."""

    transactions: int
    seconds: float
    p50_s: float
    p99_s: float
    node_cpu_s: float
    verifier_cpu_s: float
    daemon_cpu_s: float
    client_cpu_s: float
    wait_share: float
    call_items: float

    @property
    def rate(self) -> float:
        """Transactions on chain a second."""
        return self.transactions / self.seconds

    @property
    def cpu_s(self) -> float:
        """Processor time of everything for one transaction: what other work on the machine hardly changes."""
        return self.node_cpu_s + self.daemon_cpu_s + self.client_cpu_s


def measure(
    pool: Pool,
    verifier: str,
    *,
    members: int = 4,
    block_transactions: int = 200,
    window: int = 1_000,
    early: bool = True,
    receipt_delay_s: float = 0.0,
    enroll: bool = False,
    daemon: int | None = None,
    memory: str = "",
    limit_s: float = 30.0,
) -> Measured:
    """Runs a chain with all of a pool's good transactions, or as many as `limit_s` seconds allow.

    `verifier` is a daemon's target, "library", or "known"; `daemon` the process id of the daemon, to count its time,
    and `memory` where it takes shared memory; with `enroll` the nodes register the accounts' keys with it first.
    Raises ChainError if the chain stands still.
    """
    settings = NodeSettings(
        pool.algorithm,
        block_transactions=block_transactions,
        block_interval_s=0.02,
        view_timeout_s=60.0,
        verify_early=early,
        receipt_delay_s=receipt_delay_s,
    )
    signers = _signers(pool) if enroll else ()
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(prefix="chain-") as name:
        folder = Path(name)
        told = [
            NodeProcess(folder, number, members, 1, pool.chain, settings, pool.balances, verifier, signers, memory)
            for number in range(members)
        ]
        processes = [context.Process(target=run_node, args=(each,)) for each in told]
        for process in processes:
            process.start()
        before, own = cpu_s(daemon), time.process_time()
        try:
            client, seconds = asyncio.run(_drive(folder, pool, members, window, limit_s))
        finally:
            for process in processes:
                if process.pid:
                    os.kill(process.pid, signal.SIGTERM)
            for process in processes:
                process.join(_ENDS_S)
                process.kill()
        if missing := [each.number for each in told if not (folder / f"{each.number}.json").exists()]:
            raise ChainError(f"node {missing[0]} did not end within {_ENDS_S} s: give the machine less to do")
        took = [json.loads((folder / f"{each.number}.json").read_text()) for each in told]
    daemon_cpu_s, client_cpu_s = cpu_s(daemon) - before, time.process_time() - own
    if problem := next((each["problem"] for each in took if each["problem"]), None):
        raise ChainError(f"a node stopped: {problem}")
    return _measured(client, took, daemon_cpu_s, client_cpu_s, seconds)


async def _drive(folder: Path, pool: Pool, members: int, window: int, limit_s: float) -> tuple[Client, float]:
    host = SocketHost(folder, members)
    membership = issue_members(1, members, pool.chain)[0].membership
    requests = [request for request in requests_of(pool) if request.reason is None]
    client = Client(host, membership, requests, window=window, retry_s=60.0)
    await host.listen(client)
    await asyncio.wait_for(host.connect(members), 60)
    start = time.perf_counter()
    client.start()
    while not client.done and time.perf_counter() - start < limit_s:
        await asyncio.sleep(0.01)
    seconds = time.perf_counter() - start
    host.close()
    return client, seconds


def _measured(
    client: Client, took: Sequence[dict[str, float]], daemon_cpu_s: float, client_cpu_s: float, seconds: float
) -> Measured:
    done = np.array(client.completed)
    if len(done) < 50:
        raise ChainError(f"{len(done)} transactions are on the chain after {seconds:.3g} s: too few to measure")
    first, last = len(done) // 5, len(done) - len(done) // 20
    latencies = np.array(client.latencies[first:last])
    p50, p99 = np.percentile(latencies, [50, 99])
    return Measured(
        transactions=last - first,
        seconds=float(done[last - 1] - done[first - 1]),
        p50_s=float(p50),
        p99_s=float(p99),
        node_cpu_s=sum(each["cpu_s"] for each in took) / len(done),
        verifier_cpu_s=sum(each["verifier_cpu_s"] for each in took) / len(done),
        daemon_cpu_s=daemon_cpu_s / len(done),
        client_cpu_s=client_cpu_s / len(done),
        wait_share=sum(each["proposal_wait_s"] for each in took) / len(took) / seconds,
        call_items=sum(each["asked"] for each in took) / max(1, sum(each["calls"] for each in took)),
    )


def cpu_s(process: int | None) -> float:
    """Processor seconds of a process and all its descendants so far (Linux; 0 elsewhere, and for None)."""
    if process is None:
        return 0.0
    try:
        return sum(map(processes.cpu_s, processes.tree(process)))
    except OSError:
        return 0.0


def _signers(pool: Pool) -> tuple[bytes, ...]:
    return tuple(sorted({entry.transaction.key for entry in pool.entries if entry.fault is None}))


def _question(pool: Pool, most: int) -> Question:
    good = [entry.transaction for entry in pool.entries if entry.fault is None][:most]
    return Question.transactions(Point.RECEIPT, TRANSACTION_SCHEMES[pool.algorithm], good)


def library_cost_s(pool: Pool, seconds: float = 1.0) -> float:
    """Processor time that the library takes for a signature."""
    question = _question(pool, 50)
    by_library(question)
    done, start = 0, time.thread_time()
    while time.thread_time() - start < seconds:
        by_library(question)
        done += len(question)
    return (time.thread_time() - start) / done


def middleware_cost_s(
    pool: Pool,
    target: str,
    daemon: int,
    *,
    memory: str = "",
    enroll: bool = False,
    batch: int = 200,
    batches: int = 40,
) -> float:
    """Processor time that a signature takes in batches of a block's size: the daemon's, and its caller's."""
    question = _question(pool, batch)

    async def run() -> float:
        engine = Middleware.at(target, memory)
        if enroll:
            await engine.enroll(pool.algorithm, _signers(pool))
        for _ in range(10):
            await engine.verify(question)
        before = cpu_s(daemon) + time.process_time()
        for _ in range(batches):
            await engine.verify(question)
        took = cpu_s(daemon) + time.process_time() - before
        await engine.close()
        return took / (batches * len(question))

    return asyncio.run(run())


def predicted_gain(without_s: float, library_s: float, speedup: float) -> float:
    """Amdahl's law: by which factor a chain gets faster when verification becomes `speedup` times as fast.

    `without_s` is the processor time for a transaction where nothing is verified, `library_s` where the library
    verifies: the difference is verification, and that alone is divided.
    """
    verification = max(0.0, library_s - without_s)
    return library_s / (without_s + verification / speedup)
