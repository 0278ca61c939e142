"""A client of the chain: sends transactions, good and spoilt, and believes what f + 1 nodes say about them."""

from __future__ import annotations

import hashlib
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from node_adapter.chain._host import Host
from node_adapter.chain._membership import Membership
from node_adapter.chain._messages import Message, Rejected, Reply, Submit
from node_adapter.chain._pool import Pool

__all__ = ["Client", "Request", "requests_of"]


@dataclass(frozen=True, slots=True)
class Request:
    """What a client sends. `after` names what must be on the chain before; `reason` why it must be rejected."""

    data: bytes
    fault: str | None = None
    reason: str | None = None
    after: bytes | None = None

    @property
    def name(self) -> bytes:
        """What nodes call it."""
        return hashlib.sha256(self.data).digest()


def requests_of(pool: Pool, malformed: int = 0) -> list[Request]:
    """A pool's transactions, with some that are cut short among them.

    A nonce that was used before comes only after the transaction that used it: otherwise it would be the good one.
    """
    requests: list[Request] = []
    last: dict[bytes, bytes] = {}
    for entry in pool.entries:
        transaction = entry.transaction
        after = last.get(transaction.sender) if entry.reason == "NONCE" else None
        requests.append(Request(transaction.encoded(), entry.fault, entry.reason, after))
        if entry.fault is None:
            last[transaction.sender] = transaction.hash
    for number in range(malformed):
        cut = requests[number * len(pool.entries) // malformed].data[: 20 + number]
        requests.append(Request(cut, "cut short", "ENCODING"))
    return requests


@dataclass(slots=True)
class _Sent:
    request: Request
    first_s: float
    last_s: float
    answers: dict[int, str | None] = field(default_factory=dict)  # by node: why rejected, or None: on the chain


class Client:
    """Sends to every node, at most `window` requests at once, and again what is not answered within `retry_s`.

    `outcomes` has, for each request's name, why it was rejected, or None: it is on the chain; `latencies` the
    seconds from the first sending to the answer that made it certain, of what is on the chain, and `completed` when
    that came; `surprises` counts outcomes that are not the expected ones.
    """

    def __init__(
        self,
        host: Host,
        membership: Membership,
        requests: Iterable[Request],
        *,
        window: int = 1_000,
        retry_s: float = 2.0,
    ) -> None:
        self._host, self._membership, self._window, self._retry_s = host, membership, window, retry_s
        self._todo = deque(requests)
        self._blocked: dict[bytes, list[Request]] = {}
        self._sent: dict[bytes, _Sent] = {}
        self.outcomes: dict[bytes, str | None] = {}
        self.latencies: list[float] = []
        self.completed: list[float] = []
        self.surprises = 0

    @property
    def done(self) -> bool:
        """Everything was sent and answered."""
        return not self._todo and not self._blocked and not self._sent

    def start(self) -> None:
        """Begins to send."""
        self._fill()
        self._host.call_later(self._retry_s, self._send_again)

    def receive(self, message: Message, sender: int) -> None:
        """Takes a node's word on requests."""
        if isinstance(message, Reply):
            for name in message.hashes:
                self._heard(name, sender, None)
        elif isinstance(message, Rejected):
            self._heard(message.hash, sender, message.reason)
        self._fill()

    def _heard(self, name: bytes, sender: int, reason: str | None) -> None:
        sent = self._sent.get(name)
        if sent is None:
            return
        sent.answers[sender] = reason
        if Counter(sent.answers.values())[reason] <= self._membership.faulty:
            return
        del self._sent[name]
        self.outcomes[name] = reason
        self.surprises += reason != sent.request.reason
        self._todo.extendleft(self._blocked.pop(name, ()))
        if reason is None:
            self.completed.append(self._host.now())
            self.latencies.append(self._host.now() - sent.first_s)

    def _fill(self) -> None:
        batch = []
        while self._todo and len(self._sent) < self._window:
            request = self._todo.popleft()
            if request.after and request.after not in self.outcomes:
                self._blocked.setdefault(request.after, []).append(request)
                continue
            now = self._host.now()
            self._sent[request.name] = _Sent(request, now, now)
            batch.append(request.data)
        self._submit(batch)

    def _send_again(self) -> None:
        now = self._host.now()
        late = [sent for sent in self._sent.values() if now - sent.last_s >= self._retry_s]
        for sent in late:
            sent.last_s = now
        self._submit([sent.request.data for sent in late])
        self._host.call_later(self._retry_s / 2, self._send_again)

    def _submit(self, batch: Sequence[bytes]) -> None:
        if batch:
            for number in range(len(self._membership)):
                self._host.send(number, Submit(tuple(batch)))
