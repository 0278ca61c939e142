"""Calls that are not columns, passed on whole to the core's own gRPC server, and taken in there.

Keys, limits and ciphers need what the core has; their bytes, statuses, deadlines and cancellations go through as
they are. The core's server is on a Unix socket that nobody else reaches, so it believes whom the call is from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import grpc
from google.protobuf.message import DecodeError, Message

from verifier.api import DETAILS_KEY, abort, caller_of, deadline_of, status_of
from verifier.errors import StoppingError

__all__ = ["CALLER_KEY", "ForwardedCallers", "Proxy"]

CALLER_KEY = "verifier-caller-bin"  # metadata: who called the front end
_FROM_CORE = ("verifier-core", "1")  # with every status that is the core's
_PASSED_ON = ("x-request-id", "traceparent", "tracestate")


class _Whole:
    """A request as its bytes; attributes are the message's, for rates."""

    def __init__(self, kind: type[Message], data: bytes) -> None:
        self._kind = kind
        self.raw = data

    def __getattr__(self, name: str) -> Any:
        try:
            return getattr(self._kind.FromString(self.raw), name)
        except DecodeError:
            raise AttributeError(name) from None  # the core refuses it


class Proxy:
    """Handlers over a channel to the core."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._channel = channel

    def handler(self, path: str, kind: type[Message], *, streams: bool) -> Any:
        """The handler of "/package.Service/Method", whose requests are of `kind`."""

        def read(data: bytes) -> _Whole:
            return _Whole(kind, data)

        if streams:
            call = self._channel.stream_stream(path, _same, _same)
            return grpc.stream_stream_rpc_method_handler(_streaming(call), read, _same)
        return grpc.unary_unary_rpc_method_handler(_unary(self._channel.unary_unary(path, _same, _same)), read, _same)


def _same(data: bytes) -> bytes:
    return data


def _unary(call: Any) -> Callable[[_Whole, grpc.ServicerContext], bytes]:
    def handle(request: _Whole, context: grpc.ServicerContext) -> bytes:
        going = call.future(request.raw, timeout=_time_left(context), metadata=_metadata(context))
        if not context.add_callback(going.cancel):
            going.cancel()
        try:
            answer: bytes = going.result()
            return answer
        except (grpc.RpcError, grpc.FutureCancelledError):
            _pass_on(going, context)

    return handle


def _streaming(call: Any) -> Callable[[Iterator[_Whole], grpc.ServicerContext], Iterator[bytes]]:
    def handle(requests: Iterator[_Whole], context: grpc.ServicerContext) -> Iterator[bytes]:
        going = call(_raw(requests), timeout=_time_left(context), metadata=_metadata(context))
        if not context.add_callback(going.cancel):
            going.cancel()
        try:
            yield from going
        except grpc.RpcError:
            _pass_on(going, context)

    return handle


def _raw(requests: Iterator[_Whole]) -> Iterator[bytes]:
    try:
        for request in requests:
            yield request.raw
    except Exception:  # the transport ends the iterator with one of its own when the call is over
        return


def _time_left(context: grpc.ServicerContext) -> float | None:
    """Seconds until the caller's deadline; None where it has none: gRPC says so with a time beyond all clocks."""
    return None if deadline_of(context) is None else context.time_remaining()


def _metadata(context: grpc.ServicerContext) -> tuple[tuple[str, str | bytes], ...]:
    kept = tuple((key, value) for key, value in context.invocation_metadata() if key in _PASSED_ON)
    return (*kept, (CALLER_KEY, caller_of(context).encode()))


def _pass_on(going: Any, context: grpc.ServicerContext) -> NoReturn:
    code = going.code()
    trailing = tuple(going.trailing_metadata() or ())
    if code is grpc.StatusCode.UNAVAILABLE and _FROM_CORE not in trailing:
        # Not the core's status but the channel's, which would tell of sockets.
        abort(context, status_of(StoppingError("the daemon is stopping")))
    details = tuple((key, value) for key, value in trailing if key == DETAILS_KEY)
    if details:
        context.set_trailing_metadata(details)
    context.abort(code, going.details() or "")
    raise AssertionError("abort raises")


class ForwardedCallers(grpc.ServerInterceptor):  # type: ignore[type-arg]
    """On the core's server: a call comes from whom the front end says, and has its role already."""

    def intercept_service(self, continuation: Callable[[Any], Any], details: Any) -> Any:
        """Gives handlers a context that names the caller."""
        handler = continuation(details)
        if handler is None:
            return None
        caller = dict(details.invocation_metadata).get(CALLER_KEY, b"")

        if handler.request_streaming and handler.stream_stream is not None:
            behavior = handler.stream_stream

            def stream(requests: Any, context: grpc.ServicerContext) -> Iterator[Any]:
                yield from behavior(requests, _Forwarded(context, caller))

            return grpc.stream_stream_rpc_method_handler(
                stream, handler.request_deserializer, handler.response_serializer
            )
        if handler.unary_unary is None:
            return handler
        single = handler.unary_unary

        def unary(request: Any, context: grpc.ServicerContext) -> Any:
            return single(request, _Forwarded(context, caller))

        return grpc.unary_unary_rpc_method_handler(unary, handler.request_deserializer, handler.response_serializer)


class _Forwarded:
    """A context whose caller is the front end's."""

    def __init__(self, context: grpc.ServicerContext, caller: bytes) -> None:
        self._context = context
        self._caller = caller
        self._trailing: tuple[Any, ...] = ()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def peer_identities(self) -> list[bytes]:
        return [self._caller]

    def set_trailing_metadata(self, metadata: Any) -> None:
        self._trailing = tuple(metadata)

    def abort(self, code: grpc.StatusCode, details: str) -> NoReturn:
        self._context.set_trailing_metadata((*self._trailing, _FROM_CORE))
        self._context.abort(code, details)
        raise AssertionError("abort raises")
