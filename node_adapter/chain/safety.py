"""The chain's promises, safety and liveness, checked over seeded runs in which everything goes wrong."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from node_adapter.chain._client import requests_of
from node_adapter.chain._ledger import Ledger
from node_adapter.chain._membership import Identity
from node_adapter.chain._messages import Committed
from node_adapter.chain._network import Conditions
from node_adapter.chain._node import NodeSettings
from node_adapter.chain._pool import Pool
from node_adapter.chain._simulation import Simulation
from node_adapter.chain._state import State
from node_adapter.chain._verdicts import Verify
from node_adapter.chain.byzantine import BEHAVIOURS, Conspiracy

__all__ = ["Outcome", "Storm", "run_seed"]


class _Witness:
    """Sees every block at the moment at which a correct node commits to it."""

    def __init__(self, pool: Pool, correct: Sequence[int]) -> None:
        self._pool, self._correct = pool, correct
        self._faults = {entry.transaction.hash: entry.fault for entry in pool.entries}
        self._missing = {number: sum(fault is None for fault in self._faults.values()) for number in correct}
        self._seen: dict[int, dict[int, bytes]] = {number: {} for number in correct}
        self._broken: list[str] = []

    def ledger(self, number: int) -> Ledger:
        """A member's disk, watched if the member is correct."""
        if number in self._missing:
            return _WatchedLedger(self._pool, lambda committed: self._committed(number, committed))
        return Ledger(None, self._pool.chain, self._pool.balances)

    @property
    def complete(self) -> bool:
        """Every correct node has every good transaction."""
        return not any(self._missing.values())

    def _committed(self, number: int, committed: Committed) -> None:
        block = committed.block
        for other, seen in self._seen.items():
            if seen.get(block.height, block.hash) != block.hash:
                self._broken.append(f"nodes {number} and {other} committed to different blocks at {block.height}")
        self._seen[number][block.height] = block.hash
        for transaction in block.transactions:
            fault = self._faults.get(transaction.hash, "unknown")
            if fault is None:
                self._missing[number] -= 1
            else:
                self._broken.append(f"node {number}, block {block.height}: a transaction with fault: {fault}")

    def violations(self, ledgers: Sequence[Ledger]) -> list[str]:
        """What was seen, and what is not on the disks any more, or more than once."""
        broken = list(self._broken)
        for number in self._correct:
            kept = {committed.block.height: committed.block for committed in ledgers[number].blocks(1, 1 << 30)}
            broken += [
                f"node {number} lost block {height}"
                for height, name in self._seen[number].items()
                if height not in kept or kept[height].hash != name
            ]
            hashes = [transaction.hash for block in kept.values() for transaction in block.transactions]
            if len(set(hashes)) != len(hashes):
                broken.append(f"node {number} has a transaction twice")
            state = State(self._pool.chain, self._pool.balances)
            if any(state.apply_all(block.transactions) for block in kept.values()):
                broken.append(f"node {number} has a transaction that breaks the rules")
            if state.root() != ledgers[number].state().root():
                broken.append(f"node {number}: its accounts are not what its blocks lead to")
        return broken


class _WatchedLedger(Ledger):
    def __init__(self, pool: Pool, seen: Callable[[Committed], None]) -> None:
        super().__init__(None, pool.chain, pool.balances)
        self._seen = seen

    def append(self, committed: Committed, state: State) -> None:
        super().append(committed, state)
        self._seen(committed)


@dataclass(frozen=True, slots=True)
class Storm:
    """What goes wrong until `lasts_s` on the simulated clock, and how long the chain has to recover after that."""

    lasts_s: float = 20.0
    recovers_s: float = 600.0
    most_delay_s: float = 0.4
    most_loss: float = 0.35
    least_timeout_s: float = 0.1  # so short that views change in the middle of a commit
    events: int = 12  # partitions, and crashes of daemons and nodes


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a seed came to. `violations` says in words which promise was broken; empty: none."""

    seed: int
    byzantine: dict[int, str]
    height: int
    views: int
    lost: int
    recovered_s: float
    violations: tuple[str, ...]


def run_seed(
    seed: int,
    identities: Sequence[Identity],
    pool: Pool,
    verify: Verify,
    *,
    storm: Storm | None = None,
) -> Outcome:
    """One run: f members chosen at random are byzantine, each in a random way, and a storm rages.

    Safety is checked over the whole run, against what the pool says of each transaction; liveness after the storm:
    every good transaction must come on every correct chain.
    """
    storm = storm or Storm()
    rng = random.Random(seed)
    membership = identities[0].membership
    traitors = rng.sample(range(len(membership)), membership.faulty)
    behaviours = {number: rng.choice(sorted(BEHAVIOURS)) for number in traitors}
    conspiracy = Conspiracy(random.Random(rng.random()))
    conditions = Conditions(0.001, rng.uniform(0.005, storm.most_delay_s), rng.uniform(0, storm.most_loss))
    correct = [number for number in range(len(membership)) if number not in behaviours]
    witness = _Witness(pool, correct)
    simulation = Simulation(
        identities,
        pool,
        requests_of(pool, malformed=3),
        verify,
        seed=rng.randrange(1 << 32),
        settings=NodeSettings(
            pool.algorithm, block_transactions=5, view_timeout_s=rng.uniform(storm.least_timeout_s, 1.0)
        ),
        conditions=conditions,
        dress=conspiracy.dress({number: BEHAVIOURS[name] for number, name in behaviours.items()}),
        ledgers=[witness.ledger(number) for number in range(len(membership))],
        window=6,
    )
    _rage(simulation, storm, rng, correct)
    recovered = simulation.run(
        lambda: simulation.queue.time() >= storm.lasts_s and witness.complete, storm.lasts_s + storm.recovers_s
    )
    violations = witness.violations(simulation.ledgers)
    if not recovered:
        violations.append(f"{storm.recovers_s} s after the storm a correct chain lacks good transactions")
    nodes = [simulation.nodes[number] for number in correct]
    outcome = Outcome(
        seed,
        behaviours,
        max(node.ledger.height for node in nodes),
        max(node.replica.view for node in nodes),
        simulation.network.lost,
        max(0.0, simulation.queue.time() - storm.lasts_s),
        tuple(violations),
    )
    simulation.close()
    return outcome


def _rage(simulation: Simulation, storm: Storm, rng: random.Random, correct: Sequence[int]) -> None:
    """Plans what goes wrong, each for a while, and that all is well when the storm is over."""
    members = len(simulation.nodes)

    def plan(begin: Callable[[], None], end: Callable[[], None]) -> None:
        start = rng.uniform(0, storm.lasts_s)
        simulation.queue.call_later(start, begin)
        simulation.queue.call_later(min(storm.lasts_s, start + rng.uniform(0.1, storm.lasts_s / 2)), end)

    def part() -> None:
        everyone = list(range(members))
        rng.shuffle(everyone)
        cut = rng.randint(1, members - 1)
        simulation.network.part((everyone[:cut], everyone[cut:]))

    for _ in range(storm.events):
        number = rng.choice(correct)
        match rng.choice(("partition", "daemon", "node")):
            case "partition":
                plan(part, simulation.network.heal)
            case "daemon":
                plan(partial(simulation.crash_daemon, number), partial(simulation.restart_daemon, number))
            case "node":
                plan(partial(simulation.crash, number), partial(simulation.restart, number))

    def calm() -> None:
        simulation.network.heal()
        simulation.network.conditions = Conditions(0.001, 0.02)

    simulation.queue.call_later(storm.lasts_s, calm)
