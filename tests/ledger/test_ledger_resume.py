"""Checkpoints, interrupted runs, and reports that do not tell how often a run was interrupted."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from _records import expected, sm2_blocks

from node_adapter.ledger import (
    Checkpoint,
    Failure,
    Group,
    Options,
    Outcome,
    _verify,
    export,
    plan_dataset,
    verify_dataset,
    write_report,
)

OUTCOME = Outcome(
    "a.parquet", "d" * 64, 0, {"sm2": "e" * 64}, {"VALID": 3, "INVALID": 1}, (Failure(2, "INVALID", "b", "t", ""),)
)
PLUGINS = {"sm2": "e" * 64, "ecdsa": "f" * 64}


def test_outcomes_are_written_down_together(tmp_path):
    open_one = replace(OUTCOME, row_group=1, counts={"VALID": 1, "UNDECIDED": 1})
    third = replace(OUTCOME, row_group=2)
    with Checkpoint(tmp_path / "c") as done:
        done.add(OUTCOME, open_one, third)
        done.add(open_one)
    with Checkpoint(tmp_path / "c") as done:
        found = [done.find(OUTCOME.digest, place, OUTCOME.plugins) for place in range(3)]
    assert found == [OUTCOME, None, third]


def test_a_gpu_has_as_many_readers_as_there_are_cores_and_memory(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)))

    def at_once(nbytes, *devices):
        group = Group(Path("a"), "a", "", 0, 1, nbytes, (), (0, 0))
        return _verify._at_once([group, replace(group, nbytes=1)], devices)

    assert at_once(1 << 20, "cpu") == 4
    assert at_once(1 << 20, "cuda:0", "cuda:1") == 16
    assert at_once(100 << 20, "cuda:0") == 10
    assert at_once(1 << 30, "cuda:0", "cpu") == 8


def test_an_outcome_survives_its_line():
    assert Outcome.from_line(OUTCOME.as_line()) == OUTCOME


def test_a_checkpoint_knows_what_it_was_told(tmp_path):
    path = tmp_path / "deep" / "checkpoint.jsonl"
    with Checkpoint(path) as done:
        assert done.find(OUTCOME.digest, 0, PLUGINS) is None
        done.add(OUTCOME)
    with Checkpoint(path) as done:
        assert done.find(OUTCOME.digest, 0, PLUGINS) == OUTCOME
        assert done.find(OUTCOME.digest, 1, PLUGINS) is None
        assert done.find("c" * 64, 0, PLUGINS) is None
        assert done.find(OUTCOME.digest, 0, PLUGINS | {"sm2": "0" * 64}) is None


@pytest.mark.parametrize("outcome", [replace(OUTCOME, error="unreadable"), replace(OUTCOME, counts={"UNDECIDED": 1})])
def test_what_is_not_decided_is_not_written_down(tmp_path, outcome):
    with Checkpoint(tmp_path / "checkpoint.jsonl") as done:
        done.add(outcome)
        assert done.find(OUTCOME.digest, 0, PLUGINS) is None
    assert (tmp_path / "checkpoint.jsonl").read_bytes() == b""


def test_a_line_that_was_cut_off_is_dropped_and_written_over(tmp_path):
    path = tmp_path / "checkpoint.jsonl"
    line = OUTCOME.as_line() + "\n"
    path.write_text(line + replace(OUTCOME, row_group=1).as_line()[:40])
    with Checkpoint(path) as done:
        assert done.find(OUTCOME.digest, 1, PLUGINS) is None
        done.add(replace(OUTCOME, row_group=2))
    assert path.read_text() == line + replace(OUTCOME, row_group=2).as_line() + "\n"


def test_two_runs_cannot_write_one_checkpoint(tmp_path):
    path = tmp_path / "checkpoint.jsonl"
    with Checkpoint(path) as done:
        done.add(OUTCOME)
        with pytest.raises(ValueError, match=r"checkpoint\.jsonl: another run writes it"):
            Checkpoint(path)
    with Checkpoint(path) as done:
        assert done.find(OUTCOME.digest, 0, PLUGINS) == OUTCOME


@pytest.mark.parametrize("notes", ["my notes\n", "my notes", '{"mine": 1}', "\0\1"])
def test_a_file_of_something_else_is_not_touched(tmp_path, notes):
    path = tmp_path / "notes.txt"
    path.write_text(notes)
    with pytest.raises(ValueError, match=r"notes\.txt: line 1 is no checkpoint line; name another file"):
        Checkpoint(path)
    assert path.read_text() == notes


@pytest.mark.parametrize("cut", range(12))
def test_a_line_that_was_cut_off_anywhere_is_dropped(tmp_path, cut):
    path = tmp_path / "checkpoint.jsonl"
    path.write_text(OUTCOME.as_line()[:cut] + "\0" * (cut % 2))
    with Checkpoint(path) as done:
        done.add(OUTCOME)
    assert path.read_text() == OUTCOME.as_line() + "\n"


def command(dataset, report):
    return [
        sys.executable,
        "-m",
        "verifier",
        "ledger",
        "verify",
        str(dataset),
        "--device",
        "cpu",
        "--report",
        str(report),
    ]


def read_report(folder):
    tables = [pq.read_table(folder / f"{name}.parquet").to_pylist() for name in ("summary", "failures")]
    return tables, (folder / "report.html").read_text()


def test_killed_at_random_and_started_again_the_report_is_the_same(tmp_path):
    """SIGKILL to the whole process group at random moments, until a run gets through."""
    blocks, made = sm2_blocks(6000)
    export(blocks, tmp_path / "data" / "a.parquet", group_rows=200)
    assert subprocess.run(command(tmp_path / "data", tmp_path / "whole"), check=False).returncode == 1
    checkpoint = tmp_path / "parts" / "checkpoint.jsonl"
    rng, kills = random.Random(5), 0
    while kills < 5:
        process = subprocess.Popen(command(tmp_path / "data", tmp_path / "parts"), start_new_session=True)
        lines = checkpoint.read_bytes().count(b"\n") if checkpoint.exists() else 0
        wanted = lines + rng.randrange(1, 5)
        until = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < until:
            if checkpoint.exists() and checkpoint.read_bytes().count(b"\n") >= wanted:
                break
            time.sleep(0.002)
        assert process.poll() is None, "the run was over before it was killed: give it more to do"
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        kills += 1
    assert not (tmp_path / "parts" / "report.html").exists()
    assert subprocess.run(command(tmp_path / "data", tmp_path / "parts"), check=False).returncode == 1
    assert read_report(tmp_path / "parts") == read_report(tmp_path / "whole")
    lines = [json.loads(line) for line in checkpoint.read_text().splitlines()]
    assert sorted(line["row_group"] for line in lines) == list(range(30))
    (summary, failures), page = read_report(tmp_path / "parts")
    counts: dict[str, int] = {}
    for row in summary:
        counts[row["verdict"]] = counts.get(row["verdict"], 0) + row["signatures"]
    assert counts == expected(made)
    assert len(failures) == int((~made.valid).sum())
    assert "block 0 transaction" in page


def test_what_is_done_is_not_verified_again(tmp_path):
    blocks, _ = sm2_blocks(40, per_block=20)
    export(blocks, tmp_path / "data" / "a.parquet", group_rows=20)
    plan = plan_dataset(tmp_path / "data")
    with Checkpoint(tmp_path / "checkpoint.jsonl") as done:
        first = verify_dataset(plan, done, Options(("cpu",)))
        size = (tmp_path / "checkpoint.jsonl").stat().st_size
        (tmp_path / "data" / "a.parquet").rename(tmp_path / "data" / "b.parquet")
        second = verify_dataset(plan_dataset(tmp_path / "data"), done, Options(("cpu",)))
    assert (tmp_path / "checkpoint.jsonl").stat().st_size == size
    assert [replace(o, path="a.parquet") for o in second] == first


def test_the_page_of_a_report_escapes_what_a_chain_says(tmp_path):
    failure = Failure(0, "INVALID", "b", "<script>alert(1)</script>", "a & b")
    write_report([replace(OUTCOME, failures=(failure,))], tmp_path, "<dataset>")
    page = (tmp_path / "report.html").read_text()
    assert "<script>" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "a &amp; b" in page
    assert "Ledger verification: &lt;dataset&gt;" in page


def test_the_page_of_a_good_report_says_so(tmp_path):
    write_report([replace(OUTCOME, counts={"VALID": 4}, failures=())], tmp_path, "ledger")
    assert "Every signature is valid." in (tmp_path / "report.html").read_text()
    write_report([replace(OUTCOME, error="CRC mismatch")], tmp_path, "ledger")
    page = (tmp_path / "report.html").read_text()
    assert "Every signature is valid." not in page
    assert "CRC mismatch" in page
