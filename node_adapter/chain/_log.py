"""The messages that a replica keeps about heights that are not settled."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from node_adapter.chain._messages import Commit, Prepare, PrePrepare
from node_adapter.chain._state import State

__all__ = ["Log", "Slot"]


@dataclass(slots=True)
class Slot:
    """What is known about one height. Of each member only the vote of its newest view is kept, so that nobody fills
    the memory."""

    pre_prepare: PrePrepare | None = None
    state: State | None = None  # after the proposal, once it was verified and executed
    asked: bool = False
    prepares: dict[int, Prepare] = field(default_factory=dict)
    commits: dict[int, Commit] = field(default_factory=dict)

    def propose(self, message: PrePrepare, state: State | None = None) -> None:
        """Takes a view's proposal; what an earlier view proposed is forgotten."""
        self.pre_prepare, self.state, self.asked = message, state, state is not None

    def needs(self, vote: Prepare | Commit) -> bool:
        """Whether its sender has not voted in this view or in a later one."""
        known = (self.prepares if isinstance(vote, Prepare) else self.commits).get(vote.replica)
        return known is None or known.view < vote.view

    def add(self, vote: Prepare | Commit) -> bool:
        """Takes a vote if it is needed; whether it was."""
        if not self.needs(vote):
            return False
        if isinstance(vote, Prepare):
            self.prepares[vote.replica] = vote
        else:
            self.commits[vote.replica] = vote
        return True

    def proposal(self, view: int) -> PrePrepare | None:
        """What the view's primary proposed."""
        return self.pre_prepare if self.pre_prepare and self.pre_prepare.view == view else None

    def prepares_for(self, proposal: PrePrepare) -> tuple[Prepare, ...]:
        """The backups' prepares that match a proposal."""
        wanted = (proposal.view, proposal.digest)
        return tuple(
            vote
            for vote in self.prepares.values()
            if (vote.view, vote.digest) == wanted and vote.replica != proposal.replica
        )

    def commits_for(self, proposal: PrePrepare) -> tuple[Commit, ...]:
        """The commits that match a proposal."""
        wanted = (proposal.view, proposal.digest)
        return tuple(vote for vote in self.commits.values() if (vote.view, vote.digest) == wanted)

    def said(self, number: int, view: int) -> Iterator[PrePrepare | Prepare | Commit]:
        """The view's proposal and what one member said about it."""
        for message in (self.pre_prepare, self.prepares.get(number), self.commits.get(number)):
            if message is not None and message.view == view:
                yield message


class Log:
    """Slots between the water marks: above the last block's height, and not further above it than `window`."""

    def __init__(self, height: int, window: int = 8) -> None:
        self._height, self._window = height, window
        self._slots: dict[int, Slot] = {}

    def holds(self, height: int) -> bool:
        """Whether a height is between the water marks."""
        return self._height < height <= self._height + self._window

    def at(self, height: int) -> Slot:
        """The slot of a height between the water marks."""
        return self._slots.setdefault(height, Slot())

    @property
    def next(self) -> Slot:
        """The slot of the next block."""
        return self.at(self._height + 1)

    def settle(self, height: int) -> None:
        """A block is on the chain: the water marks rise."""
        self._height = height
        self._slots = {number: slot for number, slot in self._slots.items() if number > height}
