"""What a node asks a verifier, and when: on receipt, on proposal, on sync."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

import numpy as np
import numpy.typing as npt

from node_adapter.chain._membership import MEMBER_SCHEME, Membership
from node_adapter.chain._messages import Commit
from node_adapter.chain._transaction import Transaction
from node_adapter.client import Priority, Scheme
from verifier.model import Code

__all__ = ["Answer", "Asker", "Codes", "Point", "Question", "ask"]

Codes = npt.NDArray[np.uint8]
Answer = Callable[[Codes], None]


class Point(Enum):
    """Where in a node's work a signature is verified."""

    RECEIPT = "receipt"
    PROPOSAL = "proposal"
    SYNC = "sync"


_PRIORITY = {Point.RECEIPT: Priority.POOL, Point.PROPOSAL: Priority.BLOCK, Point.SYNC: Priority.BULK}


@dataclass(frozen=True, slots=True)
class Question:
    """One batch of signatures. The answer is one verifier.model.Code an item; UNDECIDED is a legal one."""

    point: Point
    scheme: Scheme
    inputs: Sequence[bytes]
    signatures: Sequence[bytes]
    keys: Sequence[bytes]

    def __len__(self) -> int:
        return len(self.inputs)

    @property
    def priority(self) -> Priority:
        """The middleware's class of work."""
        return _PRIORITY[self.point]

    def only(self, items: npt.NDArray[np.intp]) -> Question:
        """The same question about some of its items."""
        if items.size == len(self):
            return self
        chosen = ([column[i] for i in items] for column in (self.inputs, self.signatures, self.keys))
        return Question(self.point, self.scheme, *chosen)

    @classmethod
    def transactions(cls, point: Point, scheme: Scheme, transactions: Sequence[Transaction]) -> Question:
        """Are these transactions signed by their senders?"""
        inputs = [tx.signed for tx in transactions]
        signatures = [tx.signature for tx in transactions]
        keys = [tx.key for tx in transactions]
        return cls(point, scheme, inputs, signatures, keys)

    @classmethod
    def commits(cls, commits: Sequence[Commit], membership: Membership) -> Question:
        """Are these commits, of blocks that are caught up with, signed by the members that they name?"""
        return cls(
            Point.SYNC,
            MEMBER_SCHEME,
            [membership.domain + commit.body() for commit in commits],
            [commit.signature for commit in commits],
            [membership.points[commit.replica] for commit in commits],
        )


class Asker(Protocol):
    """Has batches verified, and waits."""

    def verify(self, question: Question, answer: Answer) -> None:
        """Calls back, later, with one code an item."""

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> object:
        """Calls back after a time."""


def ask(host: Asker, question: Question, retry_s: float, use: Answer) -> None:
    """Has a batch verified, what stays undecided again and again; `use` gets one decided code an item."""
    codes = np.zeros(len(question), np.uint8)

    def attempt(missing: npt.NDArray[np.intp]) -> None:
        host.verify(question.only(missing), lambda got: settle(missing, got))

    def settle(missing: npt.NDArray[np.intp], got: Codes) -> None:
        codes[missing] = got
        left = missing[got == Code.UNDECIDED]
        if left.size:
            host.call_later(retry_s, lambda: attempt(left))
        else:
            use(codes)

    attempt(np.arange(len(question)))
