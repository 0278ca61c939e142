"""A plugin is replaced two hundred times while four processes use it, and nobody notices."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import grpc
import pytest
from _daemon_process import PARITY, DaemonProcess

from verifier.v1 import admin_pb2, admin_pb2_grpc

SWAPS = 200
SETTLED = 5  # swaps after which memory has to stay
CLIENTS = 4
QUIET_S = 5
WAIT_S = 120
COMPILE = PARITY.parent / "faulty-compile"
CLIENT = Path(__file__).with_name("_swap_client.py")


@pytest.fixture
def daemon(start, tmp_path):
    return start(f'admin.listen=["unix:{tmp_path}/admin.sock"]', "scheduling.measure=false")


@pytest.fixture
def admin(daemon, tmp_path):
    with grpc.insecure_channel(f"unix:{tmp_path}/admin.sock") as channel:
        yield admin_pb2_grpc.PluginAdminStub(channel)


def copy(of: Path, to: Path, version: str) -> Path:
    shutil.copytree(of, to)
    manifest = to / "plugin.toml"
    manifest.write_text(re.sub(r'(?m)^version = ".*"', f'version = "{version}"', manifest.read_text()))
    return to


class Clients:
    """Client processes, told which phase it is."""

    def __init__(self, address: str) -> None:
        self._all = [
            subprocess.Popen(
                [sys.executable, str(CLIENT), address, str(seed)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for seed in range(CLIENTS)
        ]

    def phase(self, name: str) -> None:
        for client in self._all:
            client.stdin.write(f"{name}\n")
            client.stdin.flush()

    def stop(self) -> list[dict]:
        return [json.loads(client.communicate(timeout=WAIT_S)[0]) for client in self._all]

    def kill(self) -> None:
        for client in self._all:
            client.kill()
            with contextlib.suppress(ValueError):
                client.communicate()


@pytest.fixture
def clients(daemon):
    made = Clients(daemon.address)
    yield made
    made.kill()


def resident_kb(daemon: DaemonProcess) -> dict[str, int]:
    """Of the daemon and its one worker."""
    (worker,) = daemon.workers()
    found = {}
    for name, pid in (("daemon", daemon.process.pid), ("worker", worker)):
        found[name] = int(re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())[1])
    return found


def test_two_hundred_swaps_under_load(daemon, admin, clients, tmp_path, record_property):
    versions = ["1.1.0", "1.2.0"]
    folders = [copy(PARITY, tmp_path / version, version) for version in versions]
    for folder in folders:  # built now, so that the swaps are swaps and not builds
        admin.Load(admin_pb2.LoadPluginRequest(plugin=str(folder)), timeout=WAIT_S)
    time.sleep(QUIET_S)  # what the swaps are compared with
    clients.phase("swaps")
    memory = {}
    labels = []
    for swap in range(SWAPS):
        request = admin_pb2.LoadPluginRequest(plugin=str(folders[swap % 2]), force=True)
        loaded = admin.Load(request, timeout=WAIT_S)
        assert loaded.active
        labels.append(loaded.label)
        if swap in (SETTLED, SWAPS // 2, SWAPS - 1):
            memory[swap] = resident_kb(daemon)
    clients.phase("after")
    reports = clients.stop()
    counts = sum((Counter(report["counts"]) for report in reports), Counter())
    served_by = sum((Counter(report["served_by"]) for report in reports), Counter())
    record_property("p99_s", [report["p99_s"] for report in reports])
    record_property("resident_kb", memory)
    print(json.dumps({"counts": counts, "memory": memory, "p99_s": [r["p99_s"] for r in reports]}))

    assert set(counts) == {"right"}, counts
    assert all(report["calls"]["swaps"] for report in reports)
    assert len(set(served_by) & set(labels)) > SWAPS / 10, "the clients hardly met the swaps"
    # Where memory grows with every swap, the second half of them shows it. What Python keeps of a swap is measured
    # closer in tests/registry; here are the arenas of its allocator too.
    early, half, late = memory.values()
    assert late["worker"] <= half["worker"] + 1024, (early, half, late)
    assert late["daemon"] <= half["daemon"] + 8192, (early, half, late)
    listed = admin.List(admin_pb2.ListPluginsRequest()).instances
    assert sum(i.state != admin_pb2.PLUGIN_STATE_UNLOADED for i in listed) <= 3


def test_a_build_under_load_changes_nothing_for_others(daemon, admin, clients, record_property):
    time.sleep(QUIET_S)
    clients.phase("build")
    loaded = admin.Load(admin_pb2.LoadPluginRequest(plugin=str(COMPILE)), timeout=WAIT_S)
    clients.phase("after")
    reports = clients.stop()
    record_property("p99_s", [report["p99_s"] for report in reports])
    print(json.dumps([report["p99_s"] for report in reports]))
    counts = sum((Counter(report["counts"]) for report in reports), Counter())
    assert set(counts) == {"right"}, counts
    assert all(report["calls"]["build"] for report in reports)
    assert loaded.active


def test_refused_loads_under_load_change_nothing(daemon, admin, clients, tmp_path):
    """Every kind of bad plugin, while the good one works."""
    broken = copy(PARITY, tmp_path / "broken", "2.0.0")
    (broken / "parity.cu").write_text("this does not compile")
    wrong = copy(PARITY, tmp_path / "wrong", "2.0.1")
    manifest = wrong / "plugin.toml"
    manifest.write_text(manifest.read_text().replace("VALID_PARITY = 0", "VALID_PARITY = 1"))
    crash = copy(PARITY.parent / "faulty-crash", tmp_path / "crash", "2.0.2")
    manifest = crash / "plugin.toml"
    manifest.write_text(manifest.read_text().replace("ALWAYS = 0", "ALWAYS = 1"))
    half = copy(PARITY, tmp_path / "half", "2.0.3")
    (half / "sums.cuh").unlink()
    for folder in (broken, wrong, half, crash, PARITY.parent / "faulty-memory", PARITY.parent / "faulty-answer"):
        with pytest.raises(grpc.RpcError) as error:
            admin.Load(admin_pb2.LoadPluginRequest(plugin=str(folder)), timeout=WAIT_S)
        assert error.value.code() in (grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.UNAVAILABLE)
    clients.phase("after")
    reports = clients.stop()
    counts = sum((Counter(report["counts"]) for report in reports), Counter())
    assert set(counts) == {"right"}, counts
    served_by = sum((Counter(report["served_by"]) for report in reports), Counter())
    assert list(served_by) == ["parity@1.0.0#1"]
