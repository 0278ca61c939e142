"""Several processes that read: the same outcomes, whoever of them ends."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import _readers_that_die
import _readers_that_never_start
import pytest
from _records import RECOVER, SECP256K1, SM2, expected, signed_blocks, sm2_blocks, unverifiable_block
from structlog.testing import capture_logs

from node_adapter.formats import Record, Signed
from node_adapter.ledger import Checkpoint, Options, _readers, _verify, export, plan_dataset, verify_dataset
from verifier.bench.processes import tree
from verifier.bench.signatures import make_signatures
from verifier.spawn import spawn

TITLE = b"verifier-ledger-reader"


def run(dataset, checkpoint, processes, on_outcome=lambda _, __: None):
    with Checkpoint(checkpoint) as done:
        return verify_dataset(plan_dataset(dataset), done, Options(("cpu",), processes=processes), on_outcome)


def readers(root):
    """The reading processes under this one."""
    found = []
    for pid in tree(root):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            if TITLE in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return found


def running(pid):
    """Whether a process runs: one that nobody waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    folder = tmp_path_factory.mktemp("readers") / "data"
    blocks, made = sm2_blocks(600, per_block=50)
    export(blocks, folder / "a.parquet", group_rows=50)
    return folder, made


def test_outcomes_are_those_of_one_process(tmp_path, dataset):
    """Every way a row group can go: verdicts, columns of varying width, addresses, checks, kinds of damage."""
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "a.parquet").write_bytes(whole := (dataset[0] / "a.parquet").read_bytes())
    (folder / "cut.parquet").write_bytes(whole[: len(whole) // 2])
    damaged = bytearray(whole)
    damaged[whole.index(dataset[1].signatures[275].tobytes()) + 10] ^= 1
    (folder / "damaged.parquet").write_bytes(damaged)
    made = make_signatures("ECDSA_SECP256K1", 40, keys=8, fault_share=0.2)
    rsv = [made.signatures[i].tobytes() + bytes([made.recovery[i]]) for i in range(40)]
    recovered = tuple(
        Signed(
            f"r {i}", RECOVER, made.digests[i].tobytes(), rsv[i], recover=True, signer=bytes(20) if i % 3 else None
        )
        for i in range(40)
    )
    checked = tuple(
        replace(item, choice=("check", 0, place))
        for place, item in enumerate(signed_blocks(made, SECP256K1, 40)[0].signed[:3])
    )
    ragged = tuple(Signed("odd", SM2, bytes(32), bytes(n), bytes(64)) for n in (0, 7, 64, 100))
    export([Record("b", 1, (*recovered, *checked, *ragged)), unverifiable_block()], folder / "mixed.parquet")
    nobody = tuple(Signed(f"n {i}", SM2, bytes(32), bytes(64), recover=True) for i in range(3))
    export([Record("b", 3, nobody)], folder / "not-served.parquet")
    one = run(folder, tmp_path / "one", 1)
    assert run(folder, tmp_path / "two", 2) == one
    assert {name for o in one for name in o.counts} >= {"VALID", "INVALID", "NOT_VERIFIABLE"}
    assert [(o.path, o.row_group) for o in one if o.error] == [
        ("cut.parquet", -1),
        ("damaged.parquet", 5),
        ("not-served.parquet", 0),
    ]
    lines = [sorted((tmp_path / name).read_text().splitlines()) for name in ("one", "two")]
    assert lines[0] == lines[1]


def test_one_that_is_killed_is_named_and_its_row_groups_are_done_by_others(tmp_path, dataset):
    folder, made = dataset
    killed = []

    def kill(_group, _outcome):
        if not killed:
            killed.append(readers(os.getpid())[0])
            os.kill(killed[0], signal.SIGKILL)

    with capture_logs() as logs:
        outcomes = run(folder, tmp_path / "c", 2, kill)
    assert [(o.row_group, o.error) for o in outcomes] == [(place, "") for place in range(12)]
    assert sum(o.counts.get("VALID", 0) for o in outcomes) == expected(made)["VALID"]
    assert (tmp_path / "c").read_bytes().count(b"\n") == 12
    lost = [(log["pid"], log["ended_by"]) for log in logs if log["event"] == "ledger_reader_lost"]
    assert lost in ([(killed[0], "SIGKILL")], [])  # []: it had nothing left to do
    assert not readers(os.getpid())


def in_their_place(monkeypatch, module):
    """Has other processes run where readers would."""
    monkeypatch.setattr(_readers, "spawn", lambda _, title, fds: spawn(module.__name__, title, fds))


def test_a_row_group_that_ends_its_reader_twice_is_an_error_and_all_others_are_done(tmp_path, dataset, monkeypatch):
    in_their_place(monkeypatch, _readers_that_die)
    folder, _ = dataset
    outcomes = run(folder, tmp_path / "c", 2)
    assert [o.row_group for o in outcomes] == list(range(12))
    (poison,) = [o for o in outcomes if o.error]
    assert poison.row_group == _readers_that_die.POISON
    assert poison.error == "the process that read it ended twice, the last one by SIGKILL"
    assert not poison.counts
    assert (tmp_path / "c").read_bytes().count(b"\n") == 11


def test_readers_that_do_not_start_leave_everything_undecided(tmp_path, dataset, monkeypatch):
    in_their_place(monkeypatch, _readers_that_never_start)
    outcomes = run(dataset[0], tmp_path / "c", 2)
    assert len(outcomes) == 12
    assert all("ended" in o.error and not o.counts for o in outcomes)
    assert (tmp_path / "c").read_bytes() == b""


def start(dataset, report):
    command = [sys.executable, "-m", "verifier", "ledger", "verify", str(dataset), "--report", str(report)]
    return subprocess.Popen([*command, "--device", "cpu", "--processes", "2"], start_new_session=True)


def interrupt(process, number, checkpoint):
    """Sends a signal to the process alone once it has done something, and waits for all under it to end."""
    until = time.monotonic() + 120
    before = checkpoint.stat().st_size if checkpoint.exists() else 0
    while not checkpoint.exists() or checkpoint.stat().st_size == before:
        assert process.poll() is None, "the run was over before it was interrupted: give it more to do"
        assert time.monotonic() < until, "nothing was verified"
        time.sleep(0.002)
    below = [pid for pid in tree(process.pid) if pid != process.pid]
    assert len(below) >= 3  # readers, and the device's
    os.kill(process.pid, number)
    status = process.wait(60)
    while any(map(running, below)):
        assert time.monotonic() < until, "processes are left"
        time.sleep(0.05)
    return status


@pytest.fixture
def interruptible():
    """Where tests run in the background SIGINT is ignored, and all that they start inherits that."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_killed_or_interrupted_and_started_again_nothing_is_left_running_nor_done_twice(tmp_path):
    blocks, _ = sm2_blocks(4000)
    export(blocks * 10, tmp_path / "data" / "a.parquet", group_rows=200)  # not done before it is interrupted
    report = tmp_path / "report"
    checkpoint = report / "checkpoint.jsonl"
    assert interrupt(start(tmp_path / "data", report), signal.SIGKILL, checkpoint) == -signal.SIGKILL
    assert interrupt(start(tmp_path / "data", report), signal.SIGINT, checkpoint) > 0
    assert not (report / "report.html").exists()
    assert start(tmp_path / "data", report).wait() == 1
    run(tmp_path / "data", tmp_path / "whole", 1)
    kept = [sorted(path.read_text().splitlines()) for path in (checkpoint, tmp_path / "whole")]
    assert kept[0] == kept[1]


def test_how_many_read_and_how_much_at_a_time(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)))
    assert _verify.usual_processes(["cpu"]) == 1
    assert _verify.usual_processes(["cuda:0", "cpu"]) == 4
    assert _readers._threads(10 << 20, 4) == 12
    assert _readers._threads(100 << 20, 4) == 3  # memory is what bounds it
    assert _readers._threads(1 << 30, 4) == 2
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(2)))
    assert _verify.usual_processes(["cuda:0"]) == 1
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(128)))
    assert _verify.usual_processes(["cuda:0"]) == 8
