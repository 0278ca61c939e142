"""Row groups over a Ray cluster of two nodes on this machine, one of which is lost midway: the extra cluster."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from _records import sm2_blocks

from node_adapter.ledger import export

ray = pytest.importorskip("ray", reason="needs the extra cluster: pip install 'verifier[cluster]'")

pytestmark = pytest.mark.long

ENVIRONMENT = os.environ | {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AUTH_MODE": "disabled",
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_failure_threshold": "3",
}


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def answers(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def start_node(*options):
    """A Ray node in a process group of its own, with one CPU."""
    script = Path(sys.executable).with_name("ray")
    command = [str(script), "start", "--node-ip-address=127.0.0.1", "--num-cpus=1", "--block", *options]
    quiet = subprocess.DEVNULL
    return subprocess.Popen(command, env=ENVIRONMENT, stdout=quiet, stderr=quiet, start_new_session=True)


def kill(process):
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@pytest.fixture
def cluster():
    port = free_port()
    address = f"127.0.0.1:{port}"
    nodes = [start_node("--head", f"--port={port}", "--include-dashboard=false")]
    try:
        until = time.monotonic() + 60
        while not answers(port):
            assert time.monotonic() < until, "the head node does not answer"
            time.sleep(0.2)
        nodes.append(start_node(f"--address={address}"))
        yield address, nodes
    finally:
        for node in nodes:
            kill(node)


def start_run(dataset, report, *options):
    command = [sys.executable, "-m", "verifier", "ledger", "verify", str(dataset), "--report", str(report), *options]
    return subprocess.Popen(command, env=ENVIRONMENT)


def read_report(folder):
    tables = [pq.read_table(folder / f"{name}.parquet").to_pylist() for name in ("summary", "failures")]
    return tables, (folder / "report.html").read_text()


def wait_for_nodes(address, count):
    ray.init(address=address, log_to_driver=False)
    until = time.monotonic() + 60
    while sum(node["Alive"] for node in ray.nodes()) < count:
        assert time.monotonic() < until, "the second node did not join"
        time.sleep(0.3)
    ray.shutdown()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("lose_a_node", [False, True])
def test_the_report_is_that_of_one_machine(tmp_path, cluster, lose_a_node):
    address, nodes = cluster
    blocks, made = sm2_blocks(12_000)
    export(blocks, tmp_path / "data" / "a.parquet", group_rows=200)
    assert start_run(tmp_path / "data", tmp_path / "here", "--device", "cpu", "--processes", "2").wait() == 1
    wait_for_nodes(address, 2)
    process = start_run(tmp_path / "data", tmp_path / "there", "--ray", address)
    if lose_a_node:
        checkpoint = tmp_path / "there" / "checkpoint.jsonl"
        until = time.monotonic() + 120
        while not checkpoint.exists() or checkpoint.read_bytes().count(b"\n") < 8:
            assert process.poll() is None, "the run was over before a node could be lost"
            assert time.monotonic() < until, "nothing was verified"
            time.sleep(0.01)
        kill(nodes[1])
    assert process.wait() == 1
    assert read_report(tmp_path / "there") == read_report(tmp_path / "here")
    (_, failures), _ = read_report(tmp_path / "there")
    assert len(failures) == int((~made.valid).sum())
