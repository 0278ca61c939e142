"""A validator's questions to the middleware, and what they cost."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from node_adapter.chain._block import CONSENSUS_SCHEME, Proposal, Vote
from node_adapter.chain._transaction import TRANSACTION_SCHEME, Transaction
from node_adapter.client import Priority, Scheme, Verdicts, VerifierClient

__all__ = ["Checker", "Question"]


@dataclass(slots=True)
class Question:
    """One batch that was asked. `seconds` is from the submission to the answer, on the node's side."""

    kind: str
    items: int
    seconds: float
    verdicts: Verdicts


@dataclass(slots=True)
class Checker:
    """Asks the middleware; remembers every question. Undecided items raise: they are neither applied nor rejected."""

    client: VerifierClient
    timeout_s: float
    questions: list[Question] = field(default_factory=list)

    def transactions(
        self, transactions: Sequence[Transaction], priority: Priority = Priority.BLOCK, *, kind: str = "transactions"
    ) -> Future[Verdicts]:
        """Submits the signatures of transactions."""
        return self._submit(
            kind,
            TRANSACTION_SCHEME,
            priority,
            [tx.body() for tx in transactions],
            [tx.signature for tx in transactions],
            [tx.key for tx in transactions],
        )

    def proposal(self, proposal: Proposal, proposer: bytes) -> Future[Verdicts]:
        """Submits the proposer's signature."""
        body = proposal.block.header.body()
        return self._submit(
            "proposal", CONSENSUS_SCHEME, Priority.CONSENSUS, [body], [proposal.signature], [proposer]
        )

    def votes(
        self, votes: Sequence[Vote], members: Sequence[bytes], priority: Priority = Priority.CONSENSUS
    ) -> Future[Verdicts]:
        """Submits the signatures of votes."""
        return self._submit(
            "votes",
            CONSENSUS_SCHEME,
            priority,
            [vote.body() for vote in votes],
            [vote.signature for vote in votes],
            [members[vote.validator] for vote in votes],
        )

    def _submit(
        self,
        kind: str,
        scheme: Scheme,
        priority: Priority,
        inputs: Sequence[bytes],
        signatures: Sequence[bytes],
        keys: Sequence[bytes],
    ) -> Future[Verdicts]:
        start = time.perf_counter()
        future = self.client.submit(
            scheme, inputs, signatures, keys, timeout_s=self.timeout_s, priority=priority, deduplicate=True
        )

        def note(done: Future[Verdicts]) -> None:
            if not done.cancelled() and done.exception() is None:
                seconds = time.perf_counter() - start
                self.questions.append(Question(kind, len(inputs), seconds, done.result()))

        future.add_done_callback(note)
        return future
