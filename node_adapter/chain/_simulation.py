"""Runs a chain of validators against a daemon and compares what they rejected with what was spoilt."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass

from node_adapter.chain._checker import Checker, Question
from node_adapter.chain._keys import SigningKey
from node_adapter.chain._pool import Pool
from node_adapter.chain._state import State
from node_adapter.chain._sync import catch_up
from node_adapter.chain._validator import Message, Validator
from node_adapter.client import VerifierClient
from node_adapter.errors import ChainError

__all__ = ["Report", "Simulation"]


@dataclass(frozen=True, slots=True)
class Report:
    """What a run came to. `mismatches` says in words what is not as it must be; empty: all is well."""

    blocks: int
    transactions: int
    expected: Counter[str]
    rejected: Counter[str]
    by_fault: Counter[str]
    mismatches: tuple[str, ...]
    states: tuple[str, ...]
    seconds: float
    questions: tuple[Question, ...]
    sync: Question | None  # the late node's batch of all transactions

    @property
    def ok(self) -> bool:
        """All validators agree, and exactly the spoilt transactions were rejected, each for its reason."""
        return not self.mismatches

    @property
    def verifications(self) -> int:
        """Signatures asked about, by all validators together."""
        return sum(question.items for question in self.questions)

    @property
    def served(self) -> Counter[tuple[str, str]]:
        """Signatures that each (plugin instance, device) decided; equal ones in a batch count once."""
        counts: Counter[tuple[str, str]] = Counter()
        for question in self.questions:
            for part in question.verdicts.served:
                counts[part.served_by, part.device] += part.items
        return counts


class Simulation:
    """Validators in one process that share a network and nothing else; each has its own connection.

    At the end `late`, a node without a vote, catches up with the whole chain.
    """

    def __init__(
        self,
        target: str,
        pool: Pool,
        *,
        seed: int,
        validators: int = 4,
        block_transactions: int = 100,
        chain: int = 1,
        timeout_s: float = 30.0,
        connect: Callable[[str], VerifierClient] = VerifierClient,
    ) -> None:
        if validators < 4:
            raise ChainError(f"{validators} validators cannot bear a faulty one; at least 4 are needed")
        self._pool = pool
        self._most = block_transactions
        keys = [SigningKey.derive(seed, "validator", number) for number in range(validators)]
        members = [key.public for key in keys]
        pending = [entry.transaction for entry in pool.entries]
        self._clients = [connect(target) for _ in range(validators + 1)]
        self.validators = [
            Validator(number, chain, key, members, Checker(client, timeout_s), State(pool.balances), pending.copy())
            for number, (key, client) in enumerate(zip(keys, self._clients[:-1], strict=True))
        ]
        late = SigningKey.derive(seed, "validator", validators)
        self.late = Validator(
            validators, chain, late, members, Checker(self._clients[-1], timeout_s), State(pool.balances)
        )

    def run(self, progress: Callable[[int], None] | None = None) -> Report:
        """Runs until every transaction is in a block, and lets `late` catch up.

        `progress` gets the transactions of each block committed. Raises UndecidedError where the daemon gives no
        verdict.
        """
        start = time.perf_counter()
        try:
            while any(validator.pending for validator in self.validators):
                self._round()
                if progress:
                    progress(len(self.validators[0].blocks[-1].reasons))
            seconds = time.perf_counter() - start
            catch_up(self.late, self.validators[0].blocks)
        finally:
            for client in self._clients:
                client.close()
        return self._report(seconds)

    def _round(self) -> None:
        """One block: the proposal, then messages until nobody has anything to say."""
        height = self.validators[0].height
        proposals = [validator.propose(self._most) for validator in self.validators]
        messages: deque[Message] = deque(proposal for proposal in proposals if proposal)
        while messages:
            while messages:
                message = messages.popleft()
                for validator in self.validators:
                    validator.receive(message)
            for validator in self.validators:
                validator.begin()
            for validator in self.validators:
                messages += validator.finish()
        heights = {validator.height for validator in self.validators}
        if heights != {height + 1}:
            raise ChainError(f"block {height} was not committed by all: heights {sorted(heights)}")

    def _report(self, seconds: float) -> Report:
        entries = {entry.transaction.hash: entry for entry in self._pool.entries}
        mismatches = []
        nodes = (*self.validators, self.late)
        for validator in nodes:
            seen: Counter[bytes] = Counter()
            for committed in validator.blocks:
                for tx, reason in zip(committed.block.transactions, committed.reasons, strict=True):
                    entry = entries[tx.hash]
                    seen[tx.hash] += 1
                    if reason != entry.reason:
                        where = f"validator {validator.number}, block {committed.block.header.height}"
                        what = f"a transaction ({entry.fault or 'good'}) came out {reason or 'applied'}"
                        mismatches.append(f"{where}: {what}, not {entry.reason or 'applied'}")
            if seen != Counter(entries.keys()):
                mismatches.append(f"validator {validator.number}: not every transaction is on the chain exactly once")
        states = tuple(validator.state.root().hex() for validator in nodes)
        if len(set(states)) > 1:
            mismatches.append(f"the validators' states differ: {', '.join(states)}")
        total = sum(self._pool.balances.values())
        for validator in nodes:
            if sum(validator.state.balances.values()) != total:
                mismatches.append(f"validator {validator.number}: money was made or lost")
        first = self.validators[0]
        reasons = [reason for committed in first.blocks for reason in committed.reasons]
        return Report(
            blocks=first.height,
            transactions=len(reasons),
            expected=Counter(entry.reason for entry in self._pool.entries if entry.reason),
            rejected=Counter(reason for reason in reasons if reason),
            by_fault=Counter(entry.fault for entry in self._pool.entries if entry.fault),
            mismatches=tuple(mismatches),
            states=states,
            seconds=seconds,
            questions=tuple(q for validator in self.validators for q in validator.checker.questions),
            sync=next((q for q in self.late.checker.questions if q.kind == "sync"), None),
        )
