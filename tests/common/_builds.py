"""What the processes of one run build, each thing once.

The first process that imports this makes the folder, which lasts as long as it does; those that it starts find it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

_NAME = "VERIFIER_TEST_BUILDS"
if _NAME not in os.environ:
    _folder = tempfile.TemporaryDirectory(prefix="plugin-tests-")
    os.environ[_NAME] = _folder.name
BUILDS = Path(os.environ[_NAME])


@contextlib.contextmanager
def alone(what: str) -> Iterator[None]:
    """One process of the run at a time builds `what`; those that come later find it built."""
    with (BUILDS / f"{what}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
