"""bench/*.py: every script can be started, and says what it measures."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = sorted((Path(__file__).parents[2] / "bench").glob("*.py"))
EXTRAS = {"cipher_plots.py": "matplotlib", "ledger.py": "pyarrow", "ledger_reading.py": "pyarrow"}


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_a_script_says_what_it_measures(script):
    if script.name in EXTRAS:
        pytest.importorskip(EXTRAS[script.name])
    done = subprocess.run([sys.executable, script, "--help"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("usage: ")
    assert f"python bench/{script.name}" in done.stdout
