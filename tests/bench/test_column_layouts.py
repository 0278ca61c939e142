"""bench/column_layouts.py: it measures right answers only, and no batch that cannot be interleaved."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "bench" / "column_layouts.py"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), "cpu", "--threads", "1", "--runs", "1", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=600)


@pytest.mark.long
def test_all_three_layouts_give_the_answers():
    done = run("--items", "160")
    assert done.returncode == 0, done.stdout + done.stderr
    layouts = [line.partition(":")[0] for line in done.stdout.splitlines()]
    assert layouts == ["as they come", "transposed on the device", "interleaved by the sender"]


def test_whole_groups_only():
    done = run("--items", "33")
    assert done.returncode == 2
    assert "--items 33: must be a multiple of 32" in done.stderr
