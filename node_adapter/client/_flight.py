"""The chunks of one batch of the blocking client: sent, waited for, sent again."""

from __future__ import annotations

import heapq
import queue
import time
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Generic, TypeVar

import grpc

from node_adapter.client._attempts import Attempts
from node_adapter.client._jobs import Chunk, Job, Sent
from node_adapter.client._replicas import Replica, Replicas
from node_adapter.client._results import Result
from node_adapter.client._shared_memory import SharedMemory
from node_adapter.client._transport import Retry
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
        self._attempts = Attempts(replicas, retry, deadline)
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
            for call, (_, _, sent, _) in self._flying.items():
                call.cancel()
                sent.end()
        return [self._parts[number] for number in range(len(self._chunks))]

    def _send(self) -> None:
        now = time.monotonic()
        while self._waiting and self._waiting[0][0] <= now and len(self._flying) < self._in_flight:
            _, number, attempt = heapq.heappop(self._waiting)
            replica = self._replicas.pick(self._avoid[number])
            method: Any = getattr(replica.stub, self._job.method)
            patience_s = self._replicas.patience_s(replica, attempt, max(0.0, self._deadline - now))
            sent = self._job.request(self._chunks[number], next(self._ids), self._memory)
            try:
                call = self._call(method, sent.request, patience_s)
            except ValueError:  # grpc's answer on a closed channel
                sent.end()
                self._fail(number, UnavailableError("the client is closed"))
                continue
            self._flying[call] = number, attempt, sent, replica
            call.add_done_callback(self._done.put)

    def _call(self, method: Any, request: bytes, patience_s: float) -> Any:
        """A call that is under way, or, where it is the only one, over: gRPC starts a thread for calls that are not
        waited for, which costs a small batch as much as all the rest."""
        if len(self._chunks) > 1:
            return method.future(request, timeout=patience_s)
        try:
            _, call = method.with_call(request, timeout=patience_s)
        except grpc.RpcError as error:
            return error
        return call

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
        sent.end()
        if call.code() is grpc.StatusCode.OK:
            self._parts[number] = part = self._job.answer(call.result(), sent)
            self._attempts.answered(replica, part, self.doubtful)
            return
        error, delay_s = self._attempts.failed(replica, call, attempt, self._avoid[number])
        if delay_s is None:
            self._fail(number, error)
        else:
            heapq.heappush(self._waiting, (time.monotonic() + delay_s, number, attempt + 1))

    def _fail(self, number: int, error: UndecidedError) -> None:
        self._parts[number] = self._job.failed(self._chunks[number], error)
