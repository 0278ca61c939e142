"""Whether a thread may look for what is to come without giving up its core."""

from __future__ import annotations

import os

__all__ = ["SPARE_CORES", "may_look"]

# With fewer cores whoever looks takes the core from those that it waits for.
SPARE_CORES = 4


def may_look() -> bool:
    """Whether this process has cores enough."""
    return len(os.sched_getaffinity(0)) >= SPARE_CORES
