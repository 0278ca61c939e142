"""What a node stands on, and what the protocol needs of its node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from node_adapter.chain._block import Block
from node_adapter.chain._messages import Committed, Message
from node_adapter.chain._questions import Answer, Question
from node_adapter.chain._state import State

__all__ = ["Application", "Handle", "Host"]


class Handle(Protocol):
    """Something that was put off and can be called off."""

    def cancel(self) -> None:
        """Calls it off."""


class Host(Protocol):
    """A clock, a network and a verifier. Every callback comes later, and one at a time."""

    def now(self) -> float:
        """Seconds since some moment."""

    def send(self, to: int, message: Message) -> None:
        """Sends a message, which may be lost. Members have the numbers from 0 on, clients those above."""

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Handle:
        """Calls back after a time."""

    def verify(self, question: Question, answer: Answer) -> None:
        """Has a batch verified, and calls back with its codes."""


class Application(Protocol):
    """The node, as the replica sees it."""

    def check(self, block: Block, done: Callable[[State | None], None]) -> None:
        """Verifies and executes a proposal; calls back with the state after it, or None: it must not be accepted."""

    def commit(self, committed: Committed, state: State) -> None:
        """Puts a block on the chain."""

    def has_work(self) -> bool:
        """Whether transactions wait for a block."""

    def view_entered(self) -> None:
        """A view has begun."""
