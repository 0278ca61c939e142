"""Transactions that were received and are not verified yet: when their batch goes, and what is in it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from node_adapter.chain._host import Handle, Host
from node_adapter.chain._meter import Meter
from node_adapter.chain._questions import Codes, Point, Question, ask
from node_adapter.chain._transaction import Transaction
from node_adapter.client import Scheme

__all__ = ["Receipts", "Received", "Waits"]

Received = tuple[Transaction, int]  # and the client that sent it


@dataclass(frozen=True, slots=True)
class Waits:
    """How long what was received waits for more: a call costs a node nearly the same for any size.

    It waits `delay_s` from the first of a batch on, and no longer than until there are `enough` where the node has
    nothing else to propose; and while `under_way` batches are at the verifier. What stays undecided is asked about
    again after `retry_s`.
    """

    delay_s: float
    enough: int
    under_way: int
    retry_s: float


class Receipts:
    """Gathers what arrives into batches. `use` gets each batch and its codes, `hungry` says whether the node could
    not fill a block with what it has. All on the host's one thread."""

    def __init__(
        self,
        host: Host,
        scheme: Scheme,
        waits: Waits,
        meter: Meter,
        *,
        hungry: Callable[[], bool],
        use: Callable[[Collection[Received], Codes], None],
    ) -> None:
        self._host, self._scheme, self._waits, self._meter = host, scheme, waits, meter
        self._hungry, self._use = hungry, use
        self._stopped = False
        self._waiting: dict[bytes, Received] = {}
        self._asked: set[bytes] = set()  # those at the verifier
        self._begun_s = 0.0  # when the first of those that wait came
        self._under_way = 0
        self._timer: Handle | None = None

    def __contains__(self, name: bytes) -> bool:
        return name in self._waiting or name in self._asked

    @property
    def under_way(self) -> int:
        """Batches at the verifier."""
        return self._under_way

    def add(self, received: Mapping[bytes, Received]) -> None:
        """Takes transactions, by their hashes, of which none is here already."""
        if not self._waiting:
            self._begun_s = self._host.now()
        self._waiting.update(received)
        self.go()

    def stop(self) -> None:
        """Asks nothing more."""
        self._stopped = True

    def go(self) -> None:
        """Has a batch verified if it is time."""
        if self._stopped or not self._waiting or self._under_way >= self._waits.under_way:
            return
        wait_s = self._begun_s + self._waits.delay_s - self._host.now()
        if wait_s > 0 and not (len(self._waiting) >= self._waits.enough and self._hungry()):
            if self._timer is None:
                self._timer = self._host.call_later(wait_s, self._due)
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._under_way += 1
        received, self._waiting = self._waiting, {}
        self._asked.update(received)
        with self._meter:
            transactions = [transaction for transaction, _ in received.values()]
            question = Question.transactions(Point.RECEIPT, self._scheme, transactions)
        ask(self._host, question, self._waits.retry_s, lambda codes: self._answered(received, codes))

    def _due(self) -> None:
        self._timer = None
        self.go()

    def _answered(self, received: Mapping[bytes, Received], codes: Codes) -> None:
        self._under_way -= 1
        self._asked.difference_update(received)
        self._use(received.values(), codes)
        self.go()
