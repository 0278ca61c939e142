"""What every call goes through before its handler: a name for the log, role, rate, and a span where traces are on."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import grpc
import structlog

from verifier.api._access import Access
from verifier.api._calls import abort
from verifier.api._roles import Peer, role_of_method
from verifier.api.status import status_of
from verifier.errors import VerifierError
from verifier.telemetry import CallSpan, Tracing

__all__ = ["CALL_ID_KEY", "CallInterceptor"]

CALL_ID_KEY = "x-request-id"  # metadata: how the caller names its call; it stands in the log beside what it caused
_CALL_ID = re.compile(r"[\x21-\x7e]{1,64}")
_LONGEST_SLEEP_S = 3600.0

Count = Callable[[str, str], None]


def _count_nothing(method: str, code: str) -> None:
    """Refused calls are counted by the handlers' metrics, which these do not reach."""


class CallInterceptor(grpc.ServerInterceptor):  # type: ignore[type-arg]
    """`count(method, code)` counts the calls that are refused here."""

    def __init__(self, access: Access, tracing: Tracing | None = None, count: Count = _count_nothing) -> None:
        self._access = access
        self._tracing = tracing
        self._count = count
        self._wrapped: dict[str, tuple[Any, Any]] = {}

    def intercept_service(self, continuation: Callable[[Any], Any], details: Any) -> Any:
        """Wraps the handler of methods that need a role; health and reflection are left as they are."""
        handler, method = continuation(details), str(details.method)
        if handler is None or role_of_method(method) is None:
            return handler
        known = self._wrapped.get(method)
        if known is None or known[0] is not handler:
            # Handlers are made once, and there are as many methods as the contract has.
            known = self._wrapped[method] = handler, self._wrap(method, handler)
        return known[1]

    def _wrap(self, method: str, handler: Any) -> Any:
        if handler.request_streaming:
            return grpc.stream_stream_rpc_method_handler(
                self._streaming(method, handler.stream_stream),
                handler.request_deserializer,
                handler.response_serializer,
            )
        return grpc.unary_unary_rpc_method_handler(
            self._unary(method, handler.unary_unary), handler.request_deserializer, handler.response_serializer
        )

    def _unary(self, method: str, behavior: Callable[[Any, grpc.ServicerContext], Any]) -> Callable[..., Any]:
        def call(request: Any, context: grpc.ServicerContext) -> Any:
            with self._span(method, context) as span, _log_context(context, span):
                self._admit(method, context, _size(request))
                answer = behavior(request, context)
                if span is not None:
                    span.answered(answer)
                return answer

        return call

    def _streaming(self, method: str, behavior: Callable[[Any, grpc.ServicerContext], Any]) -> Callable[..., Any]:
        def call(requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
            with self._span(method, context) as span, _log_context(context, span):
                peer = self._admit(method, context, 0)
                for answer in behavior(_Paced(requests, context, self._access, method, peer), context):
                    if span is not None:
                        span.answered(answer)
                    yield answer

        return call

    def _admit(self, method: str, context: grpc.ServicerContext, size: int) -> Peer:
        try:
            peer = self._access.check(method, context)
            self._access.charge(method, peer, size)
        except VerifierError as error:
            status = status_of(error)
            self._count(method.rpartition("/")[2], status.code.name)
            abort(context, status)
        return peer

    def _span(self, method: str, context: grpc.ServicerContext) -> AbstractContextManager[CallSpan | None]:
        return nullcontext() if self._tracing is None else _traced(self._tracing, method, context)


def _size(request: Any) -> int:
    """What a request counts for in its caller's rate: bytes to encrypt, or items."""
    data = getattr(request, "data", None)
    if data is None:
        return int(getattr(request, "items", 0))
    return len(data if isinstance(data, bytes) else data.data)


@contextmanager
def _traced(tracing: Tracing, method: str, context: grpc.ServicerContext) -> Iterator[CallSpan]:
    with tracing.call(method, _texts(context)) as span:
        try:
            yield span
        finally:
            code = context.code() or grpc.StatusCode.OK  # type: ignore[attr-defined]
            span.ended(code.value[0], code.name)


def _texts(context: grpc.ServicerContext) -> dict[str, str]:
    return {key: value for key, value in context.invocation_metadata() if isinstance(value, str)}


def _log_context(context: grpc.ServicerContext, span: CallSpan | None) -> AbstractContextManager[Any]:
    """Names the call in every event that its thread logs."""
    named = _texts(context).get(CALL_ID_KEY, "")
    call_id = named if _CALL_ID.fullmatch(named) else os.urandom(8).hex()
    if span is None:
        return structlog.contextvars.bound_contextvars(call_id=call_id)
    return structlog.contextvars.bound_contextvars(call_id=call_id, trace_id=span.trace_id)


class _Paced:
    """A stream's requests, no faster than its caller's rate: HTTP/2 flow control slows the sender meanwhile."""

    def __init__(
        self, requests: Iterator[Any], context: grpc.ServicerContext, access: Access, method: str, peer: Peer
    ) -> None:
        self._requests = requests
        self._access = access
        self._method = method
        self._peer = peer
        self._over = threading.Event()
        if not context.add_callback(self._over.set):
            self._over.set()

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        request = next(self._requests)
        size = _size(request)
        while (wait := self._access.wait_s(self._method, self._peer, size)) > 0:
            if self._over.wait(min(wait, _LONGEST_SLEEP_S)):
                raise StopIteration
        return request
