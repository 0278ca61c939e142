"""The chunks of one batch of the blocking client: sent, waited for, sent again."""

from __future__ import annotations

import heapq
import queue
import time
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Generic, TypeVar

import grpc

from node_adapter.client._jobs import Chunk, Job, Sent
from node_adapter.client._replicas import Replica, Replicas
from node_adapter.client._results import Result
from node_adapter.client._shared_memory import SharedMemory
from node_adapter.client._transport import Retry, failure, may_retry, retry_after_s
from node_adapter.errors import UnavailableError, UndecidedError

__all__ = ["Flight"]

R = TypeVar("R", bound=Result)


class Flight(Generic[R]):
    """`ids` gives request ids; at most `in_flight` requests are under way; none goes to replicas in `avoid` unless
    there is no other. `doubtful` are those that answered and left items undecided."""

    def __init__(
        self,
        replicas: Replicas,
        job: Job[R],
        chunks: Sequence[Chunk],
        *,
        ids: Iterator[int],
        retry: Retry,
        in_flight: int,
        deadline: float,
        memory: SharedMemory | None = None,
        avoid: AbstractSet[Replica] = frozenset(),
    ) -> None:
        self.doubtful: set[Replica] = set()
        self._memory = memory
        self._replicas = replicas
        self._avoid = {number: set(avoid) for number in range(len(chunks))}
        self._job = job
        self._chunks = chunks
        self._ids = ids
        self._retry = retry
        self._in_flight = in_flight
        self._deadline = deadline
        self._parts: dict[int, R] = {}
        self._waiting = [(0.0, number, 0) for number in range(len(chunks))]  # (when, chunk, attempt): a heap
        self._flying: dict[Any, tuple[int, int, Sent, Replica]] = {}  # call: (chunk, attempt, what was sent, where)
        self._done: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def parts(self) -> list[R]:
        """The result of every chunk. Raises RefusedError or AnswerError, and calls off the rest."""
        try:
            while len(self._parts) < len(self._chunks):
                self._send()
                self._receive()
        finally:
            for call in self._flying:
                call.cancel()
        return [self._parts[number] for number in range(len(self._chunks))]

    def _send(self) -> None:
        now = time.monotonic()
        while self._waiting and self._waiting[0][0] <= now and len(self._flying) < self._in_flight:
            _, number, attempt = heapq.heappop(self._waiting)
            sent = self._job.request(self._chunks[number], next(self._ids), self._memory)
            replica = self._replicas.pick(self._avoid[number])
            method: Any = getattr(replica.stub, self._job.method)
            patience_s = self._replicas.patience_s(replica, attempt, max(0.0, self._deadline - now))
            try:
                call = method.future(sent.request, timeout=patience_s)
            except ValueError:  # grpc's answer on a closed channel
                self._fail(number, UnavailableError("the client is closed"))
                continue
            self._flying[call] = number, attempt, sent, replica
            call.add_done_callback(self._done.put)

    def _receive(self) -> None:
        """Waits for an answer, or until it is time to send again."""
        if not self._flying and not self._waiting:
            return
        wait = None
        if self._waiting and len(self._flying) < self._in_flight:
            wait = max(0.0, self._waiting[0][0] - time.monotonic())
        try:
            call = self._done.get(timeout=wait)
        except queue.Empty:
            return
        number, attempt, sent, replica = self._flying.pop(call)
        code = call.code()
        if code is grpc.StatusCode.OK:
            part = self._job.answer(call.result(), sent)
            self._parts[number] = part
            if part.decided.all():
                self._replicas.answered(replica)
            else:
                self._replicas.failed(replica, "it left items undecided")
                self.doubtful.add(replica)
            return
        error = failure(code, call.details() or "")
        if not isinstance(error, UndecidedError):
            raise error
        asked_s = retry_after_s(call.trailing_metadata())
        late = code is grpc.StatusCode.DEADLINE_EXCEEDED and time.monotonic() < self._deadline
        if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED) or late:
            self._replicas.failed(replica, str(error))
        elif code is grpc.StatusCode.RESOURCE_EXHAUSTED:
            self._replicas.full(replica, asked_s)
        if (may_retry(code) or late) and attempt + 1 < self._retry.attempts:
            self._avoid[number].add(replica)
            again = time.monotonic()
            if not self._replicas.elsewhere(self._avoid[number]):
                again += self._retry.delay_s(attempt, asked_s)
                self._avoid[number].clear()
            if again < self._deadline:
                heapq.heappush(self._waiting, (again, number, attempt + 1))
                return
        self._fail(number, error)

    def _fail(self, number: int, error: UndecidedError) -> None:
        self._parts[number] = self._job.failed(self._chunks[number], error)
