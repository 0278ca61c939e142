"""The daemon's signals: whenever the first one comes, it stops, and a second one ends it."""

from __future__ import annotations

import signal
import subprocess
import sys

ROUNDS = 2000
# A timer's signal with the handler of SIGTERM, at any moment of waiting for it.
WAITING = f"""
import random, signal
from verifier.cli.serve import _stop_on_signals, _wait
random.seed(1)
for _ in range({ROUNDS}):
    stop = _stop_on_signals()
    signal.signal(signal.SIGALRM, signal.getsignal(signal.SIGTERM))
    signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-6, 60e-6))
    assert _wait(stop) == signal.SIGALRM
"""
TWICE = """
import os, signal
from verifier.cli.serve import _stop_on_signals, _wait
stop = _stop_on_signals()
os.kill(os.getpid(), signal.SIGINT)
assert _wait(stop) == signal.SIGINT
os.kill(os.getpid(), signal.SIGTERM)
"""


def test_the_first_one_is_never_lost():
    subprocess.run([sys.executable, "-c", WAITING], check=True, timeout=120)


def test_a_second_one_ends_the_process():
    assert subprocess.run([sys.executable, "-c", TWICE], timeout=120).returncode == 128 + signal.SIGTERM
