"""A network that delays, loses and parts, as it is told."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from node_adapter.errors import ChainError

__all__ = ["Conditions", "Network"]


@dataclass(frozen=True, slots=True)
class Conditions:
    """How a network treats every message: a delay between two bounds, or, with a probability, loss.

    Delays are drawn for each message, so messages overtake one another. Raises ChainError for impossible values.
    """

    least_delay_s: float = 0.001
    most_delay_s: float = 0.005
    loss: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.least_delay_s <= self.most_delay_s:
            raise ChainError(f"delays from {self.least_delay_s} to {self.most_delay_s} s: they must rise from 0")
        if not 0 <= self.loss < 1:
            raise ChainError(f"a loss of {self.loss}: it must be at least 0 and below 1")


class Network:
    """Decides each message's fate with a generator of its own."""

    def __init__(self, conditions: Conditions, rng: random.Random) -> None:
        self.conditions = conditions
        self._rng = rng
        self._side: dict[int, int] = {}
        self.sent = self.lost = 0

    def part(self, groups: Sequence[Collection[int]]) -> None:
        """Only within a group messages arrive. Whoever is in no group reaches everyone."""
        self._side = {number: side for side, group in enumerate(groups) for number in group}

    def heal(self) -> None:
        """Ends the partition."""
        self._side = {}

    def delay_s(self, sender: int, receiver: int) -> float | None:
        """Seconds until a message arrives; None: it never does."""
        self.sent += 1
        conditions = self.conditions
        sides = self._side.get(sender), self._side.get(receiver)
        apart = None not in sides and sides[0] != sides[1]
        if apart or (conditions.loss and self._rng.random() < conditions.loss):
            self.lost += 1
            return None
        return self._rng.uniform(conditions.least_delay_s, conditions.most_delay_s)
