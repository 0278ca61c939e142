"""Traces with OpenTelemetry: a call's span goes on from the caller's, and has the batch's as its children.

    client ── call (server) ─┬─ queue
                             └─ batch ── device

Off unless a collector is configured; then `Tracing` is None everywhere and nothing of OpenTelemetry is imported. The
children are made from the answer's timings when it is there, so nothing on a batch's way carries a span.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from verifier import __version__
from verifier.errors import ConfigError

__all__ = ["CallSpan", "Tracing", "open_tracing"]


class CallSpan:
    """The span of a call that is being handled."""

    def __init__(self, tracer: Any, span: Any, context: Any) -> None:
        self._tracer = tracer
        self._span = span
        self._context = context

    @property
    def trace_id(self) -> str:
        """Hexadecimal, as collectors show it."""
        return f"{self._span.get_span_context().trace_id:032x}"

    def answered(self, answer: Any) -> None:
        """Adds the spans of the batch that an answer came of; answers without timings are of none."""
        descriptor = getattr(answer, "DESCRIPTOR", None)  # an answer that is passed on unread has none
        if descriptor is None or "timings" not in descriptor.fields_by_name or not self._span.is_recording():
            return
        timings = answer.timings
        end = time.time_ns()
        accepted = end - timings.total_ns
        launched = accepted + timings.queue_ns
        attributes = {"verifier.items": getattr(answer, "items", 0), "verifier.request_id": str(answer.request_id)}
        self._child("queue", self._context, accepted, launched, attributes)
        if not timings.device_ns:
            return
        attributes |= {"verifier.served_by": answer.served_by, "verifier.device": answer.device}
        batch = self._child("batch", self._context, launched, end, attributes)
        self._child("device", batch, launched, min(launched + timings.device_ns, end), attributes)

    def ended(self, number: int, name: str) -> None:
        """The call's status, as gRPC numbers and names it."""
        from opentelemetry.trace import Status, StatusCode

        self._span.set_attribute("rpc.grpc.status_code", number)
        if number:
            self._span.set_status(Status(StatusCode.ERROR, name))

    def _child(self, name: str, context: Any, begin: int, end: int, attributes: dict[str, Any]) -> Any:
        from opentelemetry.trace import set_span_in_context

        span = self._tracer.start_span(name, context, start_time=begin, attributes=attributes)
        span.end(end)
        return set_span_in_context(span)


class Tracing:
    """Makes spans. `provider` is OpenTelemetry's; it is shut down with `close`."""

    def __init__(self, provider: Any) -> None:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._provider = provider
        self._tracer = provider.get_tracer("verifier", __version__)
        self._propagator = TraceContextTextMapPropagator()

    @contextmanager
    def call(self, method: str, metadata: Mapping[str, str]) -> Iterator[CallSpan]:
        """A span for a call of "/package.Service/Method", the child of what its metadata's traceparent names."""
        from opentelemetry.trace import SpanKind, set_span_in_context

        service, _, name = method.removeprefix("/").partition("/")
        span = self._tracer.start_span(
            f"{service}/{name}",
            self._propagator.extract(metadata),
            kind=SpanKind.SERVER,
            attributes={"rpc.system": "grpc", "rpc.service": service, "rpc.method": name},
        )
        try:
            yield CallSpan(self._tracer, span, set_span_in_context(span))
        finally:
            span.end()

    def close(self) -> None:
        """Sends what is left to the collector, and ends its thread."""
        self._provider.shutdown()


def open_tracing(endpoint: str, headers: str, sample_ratio: float) -> Tracing | None:
    """Spans to an OTLP collector over HTTP; None where `endpoint` is empty.

    `headers` is "name=value,name=value". A call whose client sampled it is sampled; of the others `sample_ratio` are.
    Raises ConfigError where the extra `tracing` is not installed or the headers are none.
    """
    if not endpoint:
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
    except ImportError as error:
        raise ConfigError(f"tracing.endpoint: {error.name} is missing: pip install 'verifier[tracing]'") from None
    provider = TracerProvider(
        resource=Resource.create({"service.name": "verifier", "service.version": __version__}),
        sampler=ParentBased(TraceIdRatioBased(sample_ratio)),
        shutdown_on_exit=False,
    )
    exporter = OTLPSpanExporter(endpoint, headers=_parse_headers(headers))
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return Tracing(provider)


def _parse_headers(text: str) -> dict[str, str]:
    headers = {}
    for part in filter(None, text.split(",")):
        name, equals, value = part.partition("=")
        if not equals or not name.strip():
            raise ConfigError("tracing.headers: must be name=value,name=value")  # without what it says: a secret
        headers[name.strip().lower()] = value.strip()
    return headers
