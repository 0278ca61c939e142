"""Waiting for what happens on another thread or in another process."""

from __future__ import annotations

import time
from collections.abc import Callable

WAIT_S = 120.0


def until(condition: Callable[[], object], what: str = "it", timeout_s: float = WAIT_S) -> None:
    """Returns when the condition holds; fails after two minutes, and says what did not come about."""
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, f"not within {timeout_s:g} s: {what}"
        time.sleep(0.01)
