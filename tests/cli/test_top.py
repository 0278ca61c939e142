"""`verifier top` and `verifier health` against what answers, and against what does not."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from grpc_health.v1 import health_pb2
from typer.testing import CliRunner

from verifier.api import Health, Listener, RpcServer
from verifier.cli import _register, app
from verifier.statuspage import StatusServer

_register()

STATUS = {
    "version": "0.1.0",
    "at_unix": 1000.0,
    "state": "serving",
    "listen": ["127.0.0.1:50051"],
    "up_s": 7300.0,
    "rates_per_s": {"items": 34_700_000.0, "calls": 4200.0, "refused": 0.5},
    "latency_s": {"p50": 0.00094, "p99": 0.0061, "queue_p50": 0.0001, "device_p50": 0.0007},
    "queue": {"items": 24_576, "bytes": 3 << 20, "calls": 3},
    "verdicts": {"valid": {"total": 9e9, "per_s": 3e7}, "invalid": {"total": 12.0, "per_s": 0.0}},
    "calls": {"OK": 5.0},
    "history": {"items_per_s": [0.0, 1e7, 3.4e7], "p99_s": [None, 0.004, 0.006], "queue_items": [0, 10, 24_576]},
    "devices": [{"id": "cuda:0", "name": "NVIDIA H200", "state": "up", "faults": 2, "items_per_s": 34_700_000.0}],
    "plugins": [
        {
            "label": "sm2@1.0.0#4",
            "plugin": "sm2",
            "state": "degraded",
            "active": True,
            "reason": "cuda:1 is [down]",
            "operations": ["verify/SM2"],
            "devices": ["cuda:0"],
            "missing_devices": ["cuda:1"],
            "leases": 1,
            "changed_unix": 940.0,
            "items_per_s": 34_700_000.0,
        }
    ],
}


@pytest.fixture
def serve():
    made = []

    def begin(status) -> str:
        server = StatusServer(("127.0.0.1", 0), lambda: status, None)
        server.start()
        made.append(server)
        return f"http://127.0.0.1:{server.port}"

    yield begin
    for server in made:
        server.close()


def run(*arguments, width=160):
    return CliRunner(env={"COLUMNS": str(width), "TERM": "dumb"}).invoke(app, list(arguments))


def test_a_look(serve):
    result = run("top", "--once", "--url", serve(STATUS))
    assert result.exit_code == 0, result.output
    words = " ".join(result.output.split())
    for part in (
        "● serving 0.1.0 · up 2 h · 127.0.0.1:50051",
        "items/s 34.7 M 4,200 calls/s",
        "p99 6.1 ms median 940 µs",
        "queue 24.6 k items, 3.0 MiB",
        "refused 0.5 calls/s, open calls: 3",
        "valid 9,000,000,000",
        "undetermined 0",
        "cuda:0 up NVIDIA H200 34.7 M 2",
        "sm2@1.0.0#4 degraded verify/SM2 cuda:0 34.7 M 1 min",
        "cuda:1 is [down]",
        "not cuda:1",
    ):
        assert part in words, part
    assert "▂█" in result.output


@pytest.mark.parametrize("width", [60, 100])
def test_a_narrow_terminal_is_kept_within(serve, width):
    output = run("top", "--once", "--url", serve(STATUS), width=width).output
    assert max(map(len, output.splitlines())) <= width


def test_what_a_program_reads(serve):
    result = run("top", "--once", "--json", "--url", serve(STATUS))
    assert (result.exit_code, json.loads(result.output)) == (0, STATUS)


def test_a_daemon_that_does_not_serve_is_status_1(serve):
    result = run("top", "--once", "--url", serve(STATUS | {"state": "stopping"}))
    assert result.exit_code == 1
    assert "● stopping" in result.output


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://127.0.0.1:1", "refused"),
        ("127.0.0.1:9465", "must begin with http"),
        ("file:///etc/passwd", "must begin with http"),
    ],
)
def test_nobody_there(url, words):
    result = run("top", "--once", "--url", url)
    assert result.exit_code == 1
    assert f"no daemon's status at {url}" in result.output
    assert words in result.output


def test_something_else_answers(serve):
    result = run("top", "--once", "--url", serve({"hello": "world"}))
    assert (result.exit_code, "is no daemon" in result.output) == (1, True)


@pytest.fixture
def probe():
    health = Health()
    listener = Listener("health.listen", ("127.0.0.1:0",))
    server = RpcServer(
        listener,
        lambda made: [health.add_to(made) or "grpc.health.v1.Health"],
        threads=1,
        max_calls=8,
        max_message_bytes=8192,
        keepalive_s=30,
    )
    server.start()
    yield health, server.addresses[0]
    server.stop(0)
    health.close()


def test_health(probe):
    health, address = probe
    assert (run("health", "--address", address).exit_code, run("health", "--address", address).output) == (
        1,
        "NOT_SERVING\n",
    )
    health.update({"verify/SM2": ["cpu"], "digest/SM3": []})
    assert run("health", "--address", address).exit_code == 0
    assert run("health", "--address", address, "--service", "verify/SM2").output == "SERVING\n"
    assert run("health", "--address", address, "--service", "digest/SM3").exit_code == 1
    unknown = run("health", "--address", address, "--service", "verify/ROT13")
    assert (unknown.exit_code, "NOT_FOUND" in unknown.output) == (1, True)
    away = run("health", "--address", "127.0.0.1:1", "--timeout", "1")
    assert away.exit_code == 1


def test_health_requests_that_do_not_parse_are_the_callers_fault(probe):
    _, address = probe
    with grpc.insecure_channel(address) as channel, ThreadPoolExecutor(1):
        call = channel.unary_unary("/grpc.health.v1.Health/Check")
        with pytest.raises(grpc.RpcError) as caught:
            call(b"\xff\xff", timeout=10)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        every = health_pb2.HealthListResponse.FromString(channel.unary_unary("/grpc.health.v1.Health/List")(b""))
        assert {name: every.statuses[name].status for name in every.statuses} == dict.fromkeys(
            ("", "verifier.v1.Verifier"), health_pb2.HealthCheckResponse.NOT_SERVING
        )
        fine = health_pb2.HealthCheckRequest(service="").SerializeToString()
        assert call(fine, timeout=10) == b"\x08\x02"
