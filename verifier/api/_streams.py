"""VerifyStream: many batches on one stream, answered as they finish.

A reader thread takes requests while fewer than the stream's bound are open, and otherwise leaves them to HTTP/2 flow
control; a request is open until its answer has been taken by the transport, so a slow reader slows only itself.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from functools import partial
from typing import Any

import grpc
import structlog

from verifier.api._calls import CallLimit, CallMetrics, abort, caller_of, check_parsed, deadline_of
from verifier.api._operations import Backend, Pending
from verifier.api.status import Status, status_of
from verifier.errors import CapacityError, StoppingError
from verifier.v1 import verifier_pb2 as pb

__all__ = ["Streams"]

_log = structlog.get_logger(__name__)

_RPC = "VerifyStream"
Answer = tuple[int, "Pending | Status"]


class Streams:
    """The open streams of a process."""

    def __init__(self, backend: Backend, metrics: CallMetrics, in_flight: int, limit: CallLimit) -> None:
        self.backend = backend
        self.metrics = metrics
        self.in_flight = in_flight
        self._limit = limit
        self._lock = threading.Lock()
        self._open: set[_Stream] = set()
        self._draining = False

    def handle(self, requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
        """The handler of the call."""
        try:
            with self._limit:
                yield from self._serve(requests, context)
        except CapacityError as error:
            abort(context, status_of(error))

    def _serve(self, requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
        stream = _Stream(self, requests, context)
        with self._lock:
            if self._draining:
                stream.stop_reading()
            self._open.add(stream)
        try:
            with self.metrics.in_flight(_RPC).track_inprogress():
                yield from stream.answers()
            if stream.cut_short:
                abort(context, status_of(StoppingError("the daemon is stopping")))
        finally:
            stream.cancel()
            with self._lock:
                self._open.discard(stream)

    def drain(self) -> None:
        """Reads no more requests; what was read is answered, then each stream ends with UNAVAILABLE."""
        with self._lock:
            self._draining = True
            streams = list(self._open)
        for stream in streams:
            stream.stop_reading()


class _Stream:
    def __init__(self, owner: Streams, requests: Iterator[Any], context: grpc.ServicerContext) -> None:
        self._owner = owner
        self._requests = requests
        self._context = context
        self._caller = caller_of(context)
        self._deadline = deadline_of(context)
        self._room = threading.Semaphore(owner.in_flight)
        self._ready: queue.SimpleQueue[Answer | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        # Not in the futures' callbacks: what refers to itself would keep its columns until cycles are collected.
        self._pending: dict[Future[Any], Pending] = {}
        self._open = 0  # requests read and not answered
        self._reading = True
        self._ended = False
        self.cut_short = False
        if not context.add_callback(self.cancel):
            self._ended = True

    def answers(self) -> Iterator[Any]:
        reader = threading.Thread(target=self._read, name="stream-reader", daemon=True)
        reader.start()
        while not self._finished():
            entry = self._ready.get()
            if entry is None:
                continue
            answer = self._answer(*entry)
            yield answer
            # Control returns here when the transport has taken the answer.
            with self._lock:
                self._open -= 1
            self._room.release()

    def _finished(self) -> bool:
        with self._lock:
            return self._ended or not (self._reading or self._open)

    def _read(self) -> None:
        try:
            while True:
                self._room.acquire()
                if not self._reading:
                    break
                request = next(self._requests)
                with self._lock:
                    if not self._reading:
                        break
                    self._open += 1
                self._submit(request)
        except StopIteration:
            pass
        except Exception as error:
            # The transport ends the iterator with an exception of its own when the call is over.
            if self._context.is_active():
                _log.error("stream_reader_failed", exc_info=error)
        finally:
            with self._lock:
                self._reading = False
            self._ready.put(None)

    def _submit(self, request: Any) -> None:
        request_id = getattr(request, "request_id", 0)
        try:
            check_parsed(request)
            pending = self._owner.backend.submit(
                "Verify", request, deadline=self._deadline, caller=self._caller, patient=self._goes_on
            )
        except Exception as error:
            self._ready.put((request_id, status_of(error)))
            return
        with self._lock:
            self._pending[pending.future] = pending
            ended = self._ended
        if ended:
            pending.future.cancel()
        pending.future.add_done_callback(partial(self._done, request_id))

    def _goes_on(self) -> bool:
        return not self._ended

    def _done(self, request_id: int, future: Future[Any]) -> None:
        with self._lock:
            pending = self._pending.pop(future)
            ended = self._ended
        if not ended:
            self._ready.put((request_id, pending))

    def _answer(self, request_id: int, outcome: Pending | Status) -> Any:
        metrics = self._owner.metrics
        if not isinstance(outcome, Status):
            try:
                answer = outcome.answer()
                metrics.request(_RPC, "OK")
                return answer
            except (Exception, CancelledError) as error:
                outcome = status_of(error)
        metrics.request(_RPC, outcome.code.name)
        failure = pb.Failure(code=outcome.number, message=outcome.message)
        if outcome.retry_after_s is not None:
            failure.retry_after_ms = max(round(outcome.retry_after_s * 1000), 1)
        return pb.VerifyResponse(request_id=request_id, failure=failure)

    def stop_reading(self) -> None:
        """What was read is still answered."""
        with self._lock:
            if self._reading:
                self._reading = False
                self.cut_short = True
        self._room.release()
        self._ready.put(None)

    def cancel(self) -> None:
        """The call is over: nobody takes answers any more."""
        with self._lock:
            self._ended = True
            self._reading = False
            futures = list(self._pending)
        for future in futures:
            future.cancel()
        with suppress(queue.Empty):
            while True:
                self._ready.get_nowait()
        self._room.release()
        self._ready.put(None)
