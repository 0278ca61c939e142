"""Members that break the protocol, each in a way of its own. What they sign is really signed, by their own keys.

A byzantine member runs the ordinary node on a host that changes, doubles or drops what the node sends, or tells it
that bad signatures are good. So it can follow the protocol for as long as it likes, and leave it anywhere.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from dataclasses import replace as replaced

import numpy as np
from msgspec.structs import replace

from node_adapter.chain._block import Block
from node_adapter.chain._host import Handle, Host
from node_adapter.chain._membership import Identity
from node_adapter.chain._messages import (
    Blocks,
    Commit,
    Message,
    NewView,
    Prepare,
    PrePrepare,
    Status,
    ViewChange,
)
from node_adapter.chain._questions import Answer, Question
from verifier.model import Code

__all__ = ["BEHAVIOURS", "ByzantineHost", "Conspiracy", "Equivocator", "Forger", "Liar", "Mute", "SilentPrimary"]


@dataclass(slots=True)
class Conspiracy:
    """What all byzantine members of a run know of one another: `twins` pairs the digests of equivocal blocks."""

    rng: random.Random
    twins: dict[bytes, bytes] = field(default_factory=dict)
    first: set[bytes] = field(default_factory=set)  # of each pair, the digest for members of the first half

    def dress(self, behaviours: Mapping[int, type[ByzantineHost]]) -> Callable[[Identity, Host], Host]:
        """For Simulation: these members behave so, the others correctly."""

        def wrap(identity: Identity, host: Host) -> Host:
            kind = behaviours.get(identity.number)
            return host if kind is None else kind(identity, host, self)

        return wrap


class ByzantineHost:
    """Stands between a member's node and the network. Subclasses say what becomes of each message."""

    def __init__(self, identity: Identity, host: Host, conspiracy: Conspiracy) -> None:
        self.identity, self.host, self.conspiracy = identity, host, conspiracy
        self.rng = random.Random(conspiracy.rng.random())
        self.members = len(identity.membership)

    def now(self) -> float:
        """The host's clock."""
        return self.host.now()

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Handle:
        """The host's."""
        return self.host.call_later(delay_s, callback)

    def verify(self, question: Question, answer: Answer) -> None:
        """The host's."""
        self.host.verify(question, answer)

    def send(self, to: int, message: Message) -> None:
        """Sends what `changed` makes of a message for a member; clients are left in peace."""
        for each in self.changed(to, message) if to < self.members else (message,):
            self.host.send(to, each)

    def changed(self, to: int, message: Message) -> tuple[Message, ...]:  # noqa: ARG002
        """What goes to this member in the message's place."""
        return (message,)


class Mute(ByzantineHost):
    """Says nothing at all."""

    def changed(self, to: int, message: Message) -> tuple[Message, ...]:  # noqa: ARG002
        """Nothing."""
        return ()


class SilentPrimary(ByzantineHost):
    """Follows the protocol until it is the primary, and proposes nothing then."""

    def changed(self, to: int, message: Message) -> tuple[Message, ...]:  # noqa: ARG002
        """Everything but the primary's messages."""
        return () if isinstance(message, PrePrepare | NewView) else (message,)


class Forger(ByzantineHost):
    """Takes every signature for a valid one, so that its blocks hold forged transactions and are consistent else."""

    def verify(self, question: Question, answer: Answer) -> None:
        """All valid."""
        self.host.call_later(0.0, lambda: answer(np.full(len(question), Code.VALID, np.uint8)))


class Equivocator(ByzantineHost):
    """As the primary it proposes one block to one half of the members and its twin to the other half.

    It votes at once, and for whichever twin the receiver was shown, also where another conspirator is the primary.
    """

    def changed(self, to: int, message: Message) -> tuple[Message, ...]:
        """The half's own version."""
        match message:
            case PrePrepare(replica=self.identity.number):
                return (self._twin(message) if self._other_half(to, message) else message,)
            case Prepare() | Commit():
                digest = message.digest
                other = self.conspiracy.twins.get(digest)
                if other and (digest in self.conspiracy.first) == bool(to % 2):
                    digest = other
                vote = (message.view, message.height, digest, self.identity.number)
                return (self.identity.sign(Prepare(*vote)), self.identity.sign(Commit(*vote)))
        return (message,)

    def _other_half(self, to: int, message: PrePrepare) -> bool:
        twins, first = self.conspiracy.twins, self.conspiracy.first
        if message.digest not in twins:
            twin = self._twin(message).digest
            twins[message.digest], twins[twin] = twin, message.digest
            first.add(message.digest)
        return (message.digest in first) == bool(to % 2)

    def _twin(self, message: PrePrepare) -> PrePrepare:
        """The same transactions under another header: a block that is right in itself."""
        header = message.block.header
        block = Block(replaced(header, proposer=header.proposer ^ 1), message.block.transactions)
        return self.identity.sign(replace(message, digest=block.hash, block=block))


class Liar(ByzantineHost):
    """Hides what it prepared, begins views with the wrong block, invents heights, spoils certificates and signatures,
    speaks in others' names, and repeats old messages."""

    def __init__(self, identity: Identity, host: Host, conspiracy: Conspiracy) -> None:
        super().__init__(identity, host, conspiracy)
        self._said: list[Message] = []

    def changed(self, to: int, message: Message) -> tuple[Message, ...]:  # noqa: ARG002
        """A lie half of the time."""
        self._said.append(message)
        if self.rng.random() < 0.5:
            return (message,)
        match message:
            case ViewChange():
                return (self.identity.sign(replace(message, prepared=None)),)
            case NewView(pre_prepare=PrePrepare()):
                return (self.identity.sign(replace(message, pre_prepare=None)),)
            case Blocks():
                return (Blocks(tuple(replace(block, certificate=block.certificate[:1]) for block in message.blocks)),)
            case Status():
                return (replace(message, height=message.height + self.rng.randint(0, 1000)),)
            case Prepare() | Commit():
                stranger = (self.identity.number + 1) % self.members
                return self.rng.choice(
                    (
                        (replace(message, replica=stranger),),
                        (replace(message, signature=message.signature[::-1]),),
                        (self.identity.sign(replace(message, digest=self.rng.randbytes(32))),),
                        (message, self.rng.choice(self._said)),
                    )
                )
        return (message,)


BEHAVIOURS: dict[str, type[ByzantineHost]] = {
    "mute": Mute,
    "silent primary": SilentPrimary,
    "forger": Forger,
    "equivocator": Equivocator,
    "liar": Liar,
}
