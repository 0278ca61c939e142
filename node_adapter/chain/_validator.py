"""One validator: verifies proposals and votes through the middleware, executes, votes, commits.

A round has one proposer, taken in turn, and two phases of votes; a quorum of equal votes, 2f + 1 where n = 3f + 1,
ends a phase. Messages come in through `receive`, verification is begun by `begin` and read by `finish`, so that all
validators' batches are under way at once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from node_adapter.chain._block import Block, Header, Phase, Proposal, Vote, transactions_root
from node_adapter.chain._checker import Checker
from node_adapter.chain._keys import SigningKey
from node_adapter.chain._state import State
from node_adapter.chain._transaction import Transaction
from node_adapter.client import Verdicts
from node_adapter.errors import ChainError
from verifier.model import Code

__all__ = ["GENESIS", "Committed", "Executed", "Message", "Validator", "quorum"]

Message = Proposal | Vote
GENESIS = bytes(32)


def quorum(members: int) -> int:
    """Equal votes that end a phase: any two quorums share an honest member, and the honest ones alone are one."""
    faulty = (members - 1) // 3
    return (members + faulty) // 2 + 1


@dataclass(frozen=True, slots=True)
class Committed:
    """A block on the chain, for each transaction why it was rejected (None: applied), and the votes for it."""

    block: Block
    reasons: tuple[str | None, ...]
    state: bytes
    votes: tuple[Vote, ...]


@dataclass(frozen=True, slots=True)
class Executed:
    """A block's outcome as this node finds it; `result` is what votes are for."""

    block: Block
    reasons: tuple[str | None, ...]
    state: State
    result: bytes


@dataclass(slots=True)
class _Asked:
    """What was submitted and not yet read."""

    proposal: tuple[Proposal, Future[Verdicts], Future[Verdicts]] | None = None
    votes: tuple[list[Vote], Future[Verdicts]] | None = None


@dataclass(slots=True)
class Validator:
    """A member of the chain with its own copy of everything."""

    number: int
    chain: int
    key: SigningKey
    members: Sequence[bytes]
    checker: Checker
    state: State
    pending: list[Transaction] = field(default_factory=list)
    blocks: list[Committed] = field(default_factory=list)
    view: int = 0
    _asked: _Asked = field(default_factory=_Asked)
    _proposals: list[Proposal] = field(default_factory=list)
    _unchecked: list[Vote] = field(default_factory=list)
    _counted: dict[tuple[Phase, bytes, bytes], dict[int, Vote]] = field(default_factory=dict)
    _executed: Executed | None = None
    _sent: set[Phase] = field(default_factory=set)

    @property
    def height(self) -> int:
        """Blocks committed so far, which is the number of the next."""
        return len(self.blocks)

    @property
    def tip(self) -> bytes:
        """The hash of the last block."""
        return self.blocks[-1].block.header.hash if self.blocks else GENESIS

    @property
    def proposer(self) -> int:
        """Whose turn it is."""
        return (self.height + self.view) % len(self.members)

    def propose(self, most: int) -> Proposal | None:
        """The next block of up to `most` pending transactions, where it is this validator's turn."""
        if self.proposer != self.number or not self.pending:
            return None
        transactions = tuple(self.pending[:most])
        header = Header(
            self.chain, self.height, self.tip, self.number, transactions_root(transactions), self.state.root()
        )
        return Proposal(Block(header, transactions), self.view, self.key.sign(header.body()))

    def receive(self, message: Message) -> None:
        """Takes a message. One that does not belong to this height and view is dropped."""
        if isinstance(message, Proposal):
            if self._follows(message):
                self._proposals.append(message)
        elif message.height == self.height and message.view == self.view and message.validator < len(self.members):
            self._unchecked.append(message)

    def begin(self) -> None:
        """Submits all that waits for verification."""
        if self._proposals and self._executed is None and self._asked.proposal is None:
            proposal = self._proposals.pop(0)
            self._asked.proposal = (
                proposal,
                self.checker.transactions(proposal.block.transactions),
                self.checker.proposal(proposal, self.members[proposal.block.header.proposer]),
            )
        if self._unchecked:
            votes, self._unchecked = self._unchecked, []
            self._asked.votes = votes, self.checker.votes(votes, self.members)

    def finish(self) -> list[Message]:
        """Reads what was submitted, acts on it, and returns what to send to all members, itself included.

        Raises UndecidedError where the middleware gave no verdict: nothing was voted for or committed then.
        """
        asked, self._asked = self._asked, _Asked()
        messages: list[Message] = []
        if asked.proposal:
            proposal, transactions, signature = asked.proposal
            if signature.result().valid.all():
                self._executed = self.execute(proposal.block, transactions.result().codes)
                messages.append(self._vote(Phase.PREPARE))
        if asked.votes:
            votes, verdicts = asked.votes
            for place in np.flatnonzero(verdicts.result().valid):
                vote = votes[place]
                self._counted.setdefault((vote.phase, vote.block, vote.result), {})[vote.validator] = vote
        if self._ended(Phase.PREPARE) and Phase.COMMIT not in self._sent:
            messages.append(self._vote(Phase.COMMIT))
        if self._executed and (votes_for := self._ended(Phase.COMMIT)):
            self.adopt(self._executed, votes_for)
        return messages

    def _follows(self, proposal: Proposal) -> bool:
        header = proposal.block.header
        return (
            proposal.view == self.view
            and header.chain == self.chain
            and header.height == self.height
            and header.previous == self.tip
            and header.proposer == self.proposer
            and header.state == self.state.root()
            and header.transactions == transactions_root(proposal.block.transactions)
        )

    def execute(self, block: Block, codes: npt.NDArray[np.uint8]) -> Executed:
        """Applies what is valid to a copy of the state. Undecided items never get here: the checker raises before."""
        state = self.state.copy()
        reasons = []
        for tx, code in zip(block.transactions, codes.tolist(), strict=True):
            reason = None if code == Code.VALID else Code(code).name
            if reason is None:
                reason = "CHAIN" if tx.chain != self.chain else state.apply(tx)
            reasons.append(reason)
        rejections = "\n".join(reason or "" for reason in reasons).encode()
        result = hashlib.sha256(state.root() + hashlib.sha256(rejections).digest()).digest()
        return Executed(block, tuple(reasons), state, result)

    def _vote(self, phase: Phase) -> Vote:
        if self._executed is None:
            raise ChainError(f"validator {self.number} would vote for a block that it has not executed")
        self._sent.add(phase)
        block, result = self._executed.block.header.hash, self._executed.result
        return Vote(phase, self.height, self.view, block, result, self.number).signed(self.key)

    def _ended(self, phase: Phase) -> tuple[Vote, ...]:
        """The votes that end a phase for the result that this validator found itself; empty while it is open."""
        if self._executed is None:
            return ()
        votes = self._counted.get((phase, self._executed.block.header.hash, self._executed.result), {})
        return tuple(votes.values()) if len(votes) >= quorum(len(self.members)) else ()

    def adopt(self, done: Executed, votes: tuple[Vote, ...]) -> None:
        """Puts a block on the chain, with the votes that decided it."""
        self.state = done.state
        self.blocks.append(Committed(done.block, done.reasons, done.state.root(), votes))
        included = {tx.hash for tx in done.block.transactions}
        self.pending = [tx for tx in self.pending if tx.hash not in included]
        self.view = 0
        self._executed = None
        self._proposals, self._unchecked = [], []
        self._counted.clear()
        self._sent.clear()
