"""What a run in real time came to, compared with what was spoilt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from node_adapter.chain._client import Request
from node_adapter.chain._engines import Asked
from node_adapter.chain._pool import Pool
from node_adapter.chain._questions import Point
from node_adapter.chain._realtime import RealTime

__all__ = ["Report", "report_of"]


@dataclass(frozen=True, slots=True)
class Report:
    """`mismatches` says in words what is not as it must be; empty: all is well. Latencies are the client's."""

    blocks: int
    transactions: int
    views: int
    seconds: float
    latencies_s: tuple[float, ...]
    expected: Counter[str]
    rejected: Counter[str]
    by_fault: Counter[str]
    mismatches: tuple[str, ...]
    states: tuple[str, ...]
    asked: tuple[Asked, ...]
    served: Counter[tuple[str, str]]

    @property
    def ok(self) -> bool:
        """All nodes agree, and exactly the spoilt transactions were rejected, each for its reason."""
        return not self.mismatches

    def at(self, point: Point) -> list[Asked]:
        """The batches that nodes had verified at one point of their work."""
        return [asked for asked in self.asked if asked.point is point]


def report_of(world: RealTime, pool: Pool, requests: Sequence[Request], seconds: float) -> Report:
    """The report of a run whose client has an answer to everything."""
    outcomes = world.client.outcomes
    mismatches = [
        f"a request ({request.fault or 'good'}) came out {outcomes.get(request.name, 'UNANSWERED') or 'applied'}, "
        f"not {request.reason or 'applied'}"
        for request in requests
        if outcomes.get(request.name, "UNANSWERED") != request.reason
    ]
    good = {request.name for request in requests if request.reason is None}
    for node in world.nodes:
        hashes = Counter(
            tx.hash for committed in node.ledger.blocks(1, node.ledger.height) for tx in committed.block.transactions
        )
        if hashes != Counter(good):
            mismatches.append(f"node {node.number}: its chain does not hold every good transaction exactly once")
        if sum(node.state.balances.values()) != sum(pool.balances.values()):
            mismatches.append(f"node {node.number}: money was made or lost")
    states = tuple(node.state.root().hex() for node in world.nodes)
    if len(set(states)) > 1:
        mismatches.append(f"the nodes' states differ: {', '.join(states)}")
    return Report(
        blocks=world.nodes[0].ledger.height,
        transactions=len(good),
        views=max(node.replica.view for node in world.nodes),
        seconds=seconds,
        latencies_s=tuple(world.client.latencies),
        expected=Counter(request.reason for request in requests if request.reason),
        rejected=Counter(reason for reason in outcomes.values() if reason),
        by_fault=Counter(request.fault for request in requests if request.fault),
        mismatches=tuple(mismatches),
        states=states,
        asked=tuple(asked for engine in world.engines for asked in engine.asked),
        served=sum((engine.served for engine in world.engines), Counter()),
    )
