"""`verifier demo` against mock daemons."""

import json

import _ecdsa
import _sm2
import grpc
import pytest
import typer
from typer.testing import CliRunner

from node_adapter.client import Algorithm, MockVerifier
from verifier.cli import demo

SMALL = ["--blocks", "2", "--transactions", "10", "--faults", "0.5", "--seed", "4"]


def right(items):
    """The verdicts of transactions (SM2) and of members' signatures (ECDSA)."""
    return (_sm2 if items.scheme.algorithm is Algorithm.SM2 else _ecdsa).verify(items)


@pytest.fixture
def run(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "demo-cache"))
    app = typer.Typer()
    demo.register(app)
    return lambda daemon, *more: CliRunner().invoke(app, [*SMALL, "--address", daemon.target, *more])


def test_exactly_the_spoilt_ones_are_rejected(run):
    with MockVerifier(right) as daemon:
        result = run(daemon, "--json")
    assert result.exit_code == 0, result.output
    figures = json.loads(result.stdout)
    assert figures["ok"]
    assert figures["transactions"] == 10
    assert figures["blocks"] >= 1
    assert sum(figures["rejected"].values()) == sum(figures["faults"].values()) == 10 + 5
    assert figures["rejected"]["ENCODING"] == 5
    assert figures["points"]["receipt"]["signatures"] >= 3 * 15
    assert figures["latency_ms"]["p99"] >= figures["latency_ms"]["p50"] > 0
    assert figures["served"][0]["plugin"] == "mock@0.0.0#1"


def test_tables(run):
    with MockVerifier(right) as daemon:
        result = run(daemon)
    assert result.exit_code == 0, result.output
    for text in ("p99", "mock@0.0.0#1 on mock", "Exactly the spoilt transactions", "OUT_OF_RANGE"):
        assert text in result.output


def test_a_wrong_daemon_ends_it_with_1(run):
    with MockVerifier() as daemon:
        result = run(daemon)
    assert result.exit_code == 1
    assert "mismatch" in result.stderr
    assert "Exactly" not in result.output


def test_a_failing_daemon_ends_it_with_2(run):
    with MockVerifier(right) as daemon:
        daemon.fail(grpc.StatusCode.FAILED_PRECONDITION, "no active plugin serves SM2", times=1000)
        result = run(daemon)
    assert result.exit_code == 2
    assert "no active plugin serves SM2" in result.stderr
