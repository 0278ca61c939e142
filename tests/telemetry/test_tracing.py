"""One trace from a client to the device, its export, and that a daemon without it pays nothing."""

from __future__ import annotations

import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace

import grpc
import pytest
from _daemon_process import PARITY, digests, parity_request

from node_adapter.client import Hash, VerifierClient, trace_calls
from verifier.config import load_settings
from verifier.daemon import Daemon
from verifier.errors import ConfigError
from verifier.telemetry import Tracing, open_tracing
from verifier.v1 import verifier_pb2_grpc as rpc

trace = pytest.importorskip("opentelemetry.trace", reason="the extra tracing is not installed")

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest  # noqa: E402
from opentelemetry.sdk.trace import TracerProvider  # noqa: E402
from opentelemetry.sdk.trace.export import SimpleSpanProcessor  # noqa: E402
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter  # noqa: E402

TIMEOUT_S = 60
VERIFY, DIGEST = "verifier.v1.Verifier/Verify", "verifier.v1.Verifier/Digest"
ZERO = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"  # a caller that decided not to sample
ONE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def recording():
    """A provider and what it has finished."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider, exporter


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A daemon whose spans stay in memory, and their exporter."""
    provider, exporter = recording()
    folder = tmp_path_factory.mktemp("traced")
    settings = load_settings(
        overrides={
            "server": {"listen": ["127.0.0.1:0"]},
            "health": {"listen": []},
            "metrics": {"listen": ""},
            "plugins": {"load": [str(PARITY), "sm3"], "trust": "any", "cache_folder": str(folder / "cache")},
            "devices": {"use": ["cpu"]},
        }
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("verifier.daemon.open_tracing", lambda *_: Tracing(provider))
        with Daemon(settings) as daemon:
            yield SimpleNamespace(address=daemon.addresses[0], exporter=exporter)


@pytest.fixture
def spans(served):
    served.exporter.clear()
    return served.exporter.get_finished_spans


def by_name(spans):
    return {span.name: span for span in spans}


def test_one_trace_from_the_client_to_the_device(served, spans):
    provider, mine = recording()
    tracer = provider.get_tracer("node")
    with (
        VerifierClient(served.address, interceptors=[trace_calls(provider)]) as client,
        tracer.start_as_current_span("block 7") as block,
    ):
        client.limits()
        mine.clear()
        served.exporter.clear()
        client.digest(Hash.SM3, [b"transaction"] * 500)
    sent, found = by_name(mine.get_finished_spans())[DIGEST], by_name(spans())
    call, queue, batch, device = found[DIGEST], found["queue"], found["batch"], found["device"]
    chain = [block, sent, call]
    assert len({span.get_span_context().trace_id for span in [*chain, queue, batch, device]}) == 1
    for parent, child in [(block, sent), (sent, call), (call, queue), (call, batch), (batch, device)]:
        assert child.parent.span_id == parent.get_span_context().span_id, f"{child.name} is not under {parent.name}"
    assert [sent.kind, call.kind] == [trace.SpanKind.CLIENT, trace.SpanKind.SERVER]
    assert device.attributes["verifier.items"] == 500
    assert device.attributes["verifier.served_by"].startswith("sm3@")
    assert device.attributes["verifier.device"] == "cpu"
    assert queue.end_time == batch.start_time == device.start_time <= device.end_time <= batch.end_time


def test_every_request_of_a_stream_has_its_spans(served, spans):
    requests = [parity_request(digests(10, seed=number), request_id=number) for number in range(5)]
    with grpc.insecure_channel(served.address) as channel:
        stream = rpc.VerifierStub(channel).VerifyStream(
            iter(requests), timeout=TIMEOUT_S, metadata=(("traceparent", ONE),)
        )
        assert len(list(stream)) == 5
    found = spans()
    devices = [span for span in found if span.name == "device"]
    assert {span.attributes["verifier.request_id"] for span in devices} == {"0", "1", "2", "3", "4"}
    assert f"{found[0].get_span_context().trace_id:032x}" == ONE.split("-")[1]


def test_a_refused_call_is_an_error_and_has_no_batch(served, spans):
    with grpc.insecure_channel(served.address) as channel, pytest.raises(grpc.RpcError):
        rpc.VerifierStub(channel).Verify(parity_request(digests(10, seed=1), priority=99), timeout=TIMEOUT_S)
    (call,) = spans()
    assert call.attributes["rpc.grpc.status_code"] == grpc.StatusCode.INVALID_ARGUMENT.value[0]
    assert call.status.status_code is trace.StatusCode.ERROR


def test_a_caller_that_does_not_sample_leaves_no_span(served, spans):
    with grpc.insecure_channel(served.address) as channel:
        call = rpc.VerifierStub(channel).Verify
        call(parity_request(digests(10, seed=1)), timeout=TIMEOUT_S, metadata=(("traceparent", ZERO),))
        assert spans() == ()
        call(parity_request(digests(10, seed=1)), timeout=TIMEOUT_S, metadata=(("traceparent", "nonsense"),))
        assert VERIFY in by_name(spans())


class Collector(HTTPServer):
    """Takes OTLP over HTTP."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Take)
        self.spans = []
        self.headers = []
        self.thread = threading.Thread(target=self.serve_forever)
        self.thread.start()

    def stop(self) -> None:
        self.shutdown()
        self.thread.join()
        self.server_close()


class Take(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        message = ExportTraceServiceRequest.FromString(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.headers.append(dict(self.headers))
        self.server.spans += [
            span.name for r in message.resource_spans for scope in r.scope_spans for span in scope.spans
        ]
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_) -> None:
        pass


def test_spans_reach_a_collector_with_its_header():
    collector = Collector()
    try:
        tracing = open_tracing(f"http://127.0.0.1:{collector.server_port}/v1/traces", "Api-Key=hush", 1.0)
        assert tracing is not None
        with tracing.call("/verifier.v1.Verifier/Verify", {}) as span:
            span.ended(0, "OK")
        tracing.close()
    finally:
        collector.stop()
    assert collector.spans == [VERIFY]
    assert {name.lower(): value for name, value in collector.headers[0].items()}["api-key"] == "hush"


def test_headers_that_are_none_are_not_repeated():
    with pytest.raises(ConfigError) as caught:
        open_tracing("http://127.0.0.1:1/v1/traces", "hush-hush", 1.0)
    assert "tracing.headers" in str(caught.value)
    assert "hush" not in str(caught.value)


def test_without_a_collector_nothing_of_it_is_even_imported():
    assert open_tracing("", "", 1.0) is None
    code = (
        "import sys, verifier.daemon, node_adapter.client; sys.exit(any('opentelemetry' in m for m in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
