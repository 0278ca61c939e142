"""A minute of bench/soak.py, which operators run for half an hour."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(400)
def test_a_minute_of_mixed_traffic_swaps_faults_and_overload(tmp_path):
    out = tmp_path / "soak.jsonl"
    command = [sys.executable, str(ROOT / "bench" / "soak.py"), "--seconds", "60", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    record = json.loads(out.read_text())
    assert record["settings"]["calls_right"] > 0
    assert record["settings"]["did_swap"] > 0
