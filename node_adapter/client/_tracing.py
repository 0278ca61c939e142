"""Traces of a client's calls with OpenTelemetry; needs `pip install 'verifier[tracing]'`.

    VerifierClient(target, interceptors=[trace_calls()])

Every call gets a span, the child of the one that is current in its thread, and carries its traceparent to the daemon,
whose spans go on from it. A batch that is cut into several calls, or sent again, has a span for each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import grpc

__all__ = ["trace_calls"]


class _Details(NamedTuple):
    """What gRPC takes as client call details."""

    method: str
    timeout: float | None
    metadata: Any
    credentials: Any
    wait_for_ready: bool | None
    compression: Any


class _TraceCalls(
    grpc.UnaryUnaryClientInterceptor,  # type: ignore[type-arg]
    grpc.StreamStreamClientInterceptor,  # type: ignore[type-arg]
):
    def __init__(self, provider: Any) -> None:
        from opentelemetry import trace
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._tracer = (provider or trace.get_tracer_provider()).get_tracer("node_adapter.client")
        self._propagator = TraceContextTextMapPropagator()

    def intercept_unary_unary(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        """A call with one answer."""
        return self._traced(continuation, client_call_details, request)

    def intercept_stream_stream(self, continuation: Any, client_call_details: Any, request_iterator: Any) -> Any:
        """A stream: its span ends with it."""
        return self._traced(continuation, client_call_details, request_iterator)

    def _traced(self, continuation: Callable[[Any, Any], Any], details: Any, request: Any) -> Any:
        from opentelemetry.trace import SpanKind, set_span_in_context

        service, _, method = details.method.removeprefix("/").partition("/")
        span = self._tracer.start_span(
            f"{service}/{method}",
            kind=SpanKind.CLIENT,
            attributes={"rpc.system": "grpc", "rpc.service": service, "rpc.method": method},
        )
        carrier: dict[str, str] = {}
        self._propagator.inject(carrier, set_span_in_context(span))
        call = continuation(
            _Details(
                details.method,
                details.timeout,
                [*(details.metadata or ()), *carrier.items()],
                details.credentials,
                details.wait_for_ready,
                details.compression,
            ),
            request,
        )
        call.add_done_callback(lambda done: _end(span, done))
        return call


def _end(span: Any, call: Any) -> None:
    from opentelemetry.trace import Status, StatusCode

    code = call.code()
    span.set_attribute("rpc.grpc.status_code", code.value[0])
    if code is not grpc.StatusCode.OK:
        span.set_status(Status(StatusCode.ERROR, code.name))
    span.end()


def trace_calls(provider: Any = None) -> Any:
    """An interceptor for `VerifierClient`. `provider` is an OpenTelemetry tracer provider; None: the global one."""
    return _TraceCalls(provider)
