"""Processes of the daemon's own: workers and front ends."""

from __future__ import annotations

import os
import subprocess
import sys

__all__ = ["spawn"]


def spawn(module: str, title: str, fds: tuple[int, ...], **environment: str) -> subprocess.Popen[bytes]:
    """A fresh interpreter that runs `main(*fds)` of a module, and inherits nothing but these descriptors.

    Raises OSError. Ctrl-C does not reach it: the parent drains first, then ends it. `title` is what `ps` shows.
    """
    # The parent's own search path, so that the child cannot be of another version.
    code = f"import sys; sys.path[:] = {sys.path}; from {module} import main; main(*{fds})"
    return subprocess.Popen(
        [sys.executable, "-c", code, title],
        pass_fds=fds,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **environment},
        process_group=0,
    )
