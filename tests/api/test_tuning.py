"""The allocator's settings: memory of big messages stays with the process."""

from __future__ import annotations

import subprocess
import sys

import pytest

CODE = """
import sys
from verifier.api import tune_malloc
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096
tuned = tune_malloc() if sys.argv[1] == "tuned" else False
before = resident()
block = b"x" * (64 << 20)
del block
print(tuned, resident() - before > 32 << 20)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="mallopt is the GNU C library's")
@pytest.mark.parametrize(("how", "expected"), [("tuned", "True True"), ("plain", "False False")])
def test_freed_memory_is_kept_only_when_tuned(how, expected):
    result = subprocess.run(
        [sys.executable, "-c", CODE, how], capture_output=True, text=True, timeout=120, check=True
    )
    assert result.stdout.strip() == expected
