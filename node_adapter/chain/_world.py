"""What nodes and a client live in, whatever the clock: hosts, disks, and the network between them."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from node_adapter.chain._client import Client, Request
from node_adapter.chain._host import Handle, Host
from node_adapter.chain._ledger import Ledger
from node_adapter.chain._membership import Identity
from node_adapter.chain._messages import Message
from node_adapter.chain._network import Conditions, Network
from node_adapter.chain._node import Node, NodeSettings
from node_adapter.chain._questions import Answer, Question

__all__ = ["Clock", "World"]


class Clock(Protocol):
    """When things happen."""

    def time(self) -> float:
        """Seconds since some moment."""

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Handle:
        """Calls back after a time."""


class _Actor(Protocol):
    def receive(self, message: Message, sender: int) -> None:
        """Takes a message."""


class _Host:
    """What one node, or a client, runs on. Once `dead`, nothing that it began comes to an end."""

    def __init__(self, world: World, number: int) -> None:
        self._world, self._number = world, number
        self.dead = False

    def now(self) -> float:
        return self._world.clock.time()

    def send(self, to: int, message: Message) -> None:
        if not self.dead:
            self._world.deliver(self._number, to, message)

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Handle:
        return self._world.clock.call_later(delay_s, lambda: None if self.dead else callback())

    def verify(self, question: Question, answer: Answer) -> None:
        self._world.verify(self._number, question, lambda codes: None if self.dead else answer(codes))


class World:
    """Nodes with their disks, a client, and a network that does what it is told. Subclasses verify, and run."""

    def __init__(
        self,
        clock: Clock,
        identities: Sequence[Identity],
        requests: Sequence[Request],
        *,
        seed: int,
        settings: NodeSettings,
        balances: Mapping[bytes, int],
        conditions: Conditions | None = None,
        dress: Callable[[Identity, Host], Host] = lambda _, host: host,
        ledgers: Sequence[Ledger] = (),
        window: int = 50,
    ) -> None:
        """`dress` may put something between a member's node and its host: see `byzantine`. `ledgers` are the members'
        disks, by default empty ones in memory; `balances` what accounts have before block 1."""
        self.clock = clock
        self.rng = random.Random(seed)
        self.network = Network(conditions or Conditions(), random.Random(self.rng.random()))
        self._identities, self._dress, self._settings = identities, dress, settings
        self.membership = identities[0].membership
        chain = self.membership.chain
        self.ledgers = ledgers or [Ledger(None, chain, balances) for _ in identities]
        self._hosts: dict[int, _Host] = {}
        self._actors: dict[int, _Actor] = {}
        self.nodes: list[Node] = [self._boot(number) for number in range(len(identities))]
        number = len(identities)
        self._hosts[number] = _Host(self, number)
        self.client = Client(self._hosts[number], self.membership, requests, window=window)
        self._actors[number] = self.client

    def _boot(self, number: int) -> Node:
        identity = self._identities[number]
        self._hosts[number] = _Host(self, number)
        host = self._dress(identity, self._hosts[number])
        node = Node(identity, host, self.ledgers[number], self._settings, clients=[len(self._identities)])
        self._actors[number] = node
        node.start()
        return node

    def verify(self, number: int, question: Question, answer: Answer) -> None:
        """Has a member's verifier decide a batch."""
        raise NotImplementedError

    def deliver(self, sender: int, to: int, message: Message) -> None:
        """Puts a message on its way."""
        delay = self.network.delay_s(sender, to)
        if delay is not None:
            self.clock.call_later(delay, lambda: self._arrive(sender, to, message))

    def _arrive(self, sender: int, to: int, message: Message) -> None:
        actor = self._actors.get(to)
        if actor is not None:
            actor.receive(message, sender)

    def crash(self, number: int) -> None:
        """A node dies; its disk stays."""
        self._hosts[number].dead = True
        self._actors.pop(number, None)

    def restart(self, number: int) -> None:
        """A node that died begins again from its disk."""
        self.crash(number)
        self.nodes[number] = self._boot(number)

    def close(self) -> None:
        """Ends all nodes and closes the disks."""
        for number in list(self._hosts):
            self.crash(number)
        for ledger in self.ledgers:
            ledger.close()
