"""One unary call: parse, submit, wait, answer; every error becomes a status in one place."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import contextmanager
from functools import partial
from typing import Any, NoReturn, Protocol, TypeVar

import grpc
from google.protobuf.message import DecodeError, Message

from verifier.api._lift import ColumnarRequest, Kind, lift
from verifier.api._roles import host_of
from verifier.api.status import Status, status_of
from verifier.errors import CapacityError, DeadlineError, RequestError

__all__ = [
    "CallLimit",
    "CallMetrics",
    "Unparsable",
    "abort",
    "caller_of",
    "check_parsed",
    "deadline_of",
    "guarded",
    "lifter",
    "parser",
    "wait",
    "wait_in_call",
]

T = TypeVar("T")

_LONGEST_S = 86400.0 * 365  # gRPC says "no deadline" with a time that no clock reaches
_GRACE_S = 0.5  # after a caller's deadline, for the scheduler to say so itself


class Unparsable:
    """What a request is when its bytes are not the message: the handler refuses it, not gRPC with INTERNAL."""

    def __init__(self, kind: str) -> None:
        self.kind = kind


def parser(kind: type[Message]) -> Callable[[bytes], Message | Unparsable]:
    """A deserializer that never raises."""

    def parse(data: bytes) -> Message | Unparsable:
        try:
            return kind.FromString(data)
        except DecodeError:
            return Unparsable(kind.DESCRIPTOR.name)

    return parse


def lifter(kind: Kind) -> Callable[[bytes], ColumnarRequest | Unparsable]:
    """A deserializer that never raises and leaves columns where they are."""

    def parse(data: bytes) -> ColumnarRequest | Unparsable:
        try:
            return lift(kind, data)
        except DecodeError:
            return Unparsable(kind.message.DESCRIPTOR.name)

    return parse


def check_parsed(request: object) -> None:
    """Raises RequestError where the request's bytes are not the message."""
    if isinstance(request, Unparsable):
        raise RequestError("request", f"these bytes are not a {request.kind}")


def abort(context: grpc.ServicerContext, status: Status) -> NoReturn:
    """Ends the call with a status and its details."""
    details = status.trailing_metadata()
    if details:
        context.set_trailing_metadata(details)
    context.abort(status.code, status.message)
    raise AssertionError("abort raises")


def deadline_of(context: grpc.ServicerContext) -> float | None:
    """The call's deadline on the monotonic clock; None where it has none."""
    left = context.time_remaining()
    return None if left is None or left > _LONGEST_S else time.monotonic() + left


def caller_of(context: grpc.ServicerContext) -> str:
    """Who shares the queues fairly: the certificate's identity, or else the peer's host."""
    identities = context.peer_identities()
    if identities:
        return b",".join(sorted(identities)).decode("utf-8", "replace")
    return host_of(context)


def wait(future: Future[T], deadline: float | None) -> T:
    """Its result. Raises what the scheduler raised, CancelledError, DeadlineError where it is too late."""
    try:
        timeout = None if deadline is None else max(deadline + _GRACE_S - time.monotonic(), 0)
        return future.result(timeout)
    except FutureTimeoutError:
        future.cancel()
        raise DeadlineError("the deadline passed before the batch was done") from None


def wait_in_call(future: Future[T], context: grpc.ServicerContext, deadline: float | None) -> T:
    """As `wait`, and cancels the work where the call ends first."""
    if not context.add_callback(partial(_cancel, future)):
        future.cancel()
    return wait(future, deadline)


def _cancel(future: Future[Any]) -> None:
    future.cancel()


class CallMetrics(Protocol):
    """What is counted of calls: `verifier.telemetry.Metrics`, or what a front end sends to it."""

    def request(self, rpc: str, code: str) -> None:
        """A request was answered with a status."""

    def in_flight(self, rpc: str) -> Any:
        """The gauge of calls being handled, for `track_inprogress`."""


class CallLimit:
    """How many calls of one kind are handled at once, besides what gRPC itself allows. A sixteenth is kept for urgent
    ones, which would otherwise be refused with the flood that they are to overtake."""

    def __init__(self, calls: int) -> None:
        kept = calls // 16
        self._limit = calls - kept
        self._free, self._kept = threading.Semaphore(calls - kept), threading.Semaphore(kept)

    def __enter__(self) -> None:
        if not self._free.acquire(blocking=False):
            raise CapacityError(f"{self._limit} calls are in flight, which is the limit", 0.05)

    def __exit__(self, *_: object) -> None:
        self._free.release()

    @contextmanager
    def urgently(self) -> Iterator[None]:
        """As the limit itself, and what is kept besides."""
        if self._free.acquire(blocking=False):
            taken = self._free
        elif self._kept.acquire(blocking=False):
            taken = self._kept
        else:
            raise CapacityError(f"{self._limit} calls and all urgent ones are in flight, which is the limit", 0.05)
        try:
            yield
        finally:
            taken.release()


def guarded(rpc: str, metrics: CallMetrics, handle: Callable[[Any, grpc.ServicerContext], Any]) -> Callable[..., Any]:
    """`handle` with its errors turned into statuses and its requests counted."""
    gauge = metrics.in_flight(rpc)

    def call(request: Any, context: grpc.ServicerContext) -> Any:
        with gauge.track_inprogress():
            try:
                check_parsed(request)
                answer = handle(request, context)
            except Exception as error:
                status = status_of(error)
                metrics.request(rpc, status.code.name)
                abort(context, status)
            metrics.request(rpc, "OK")
            return answer

    return call
