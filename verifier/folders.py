"""Where a user's files are kept."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["cache_folder", "state_folder"]


def cache_folder() -> Path:
    """What can be made again: verifier under $XDG_CACHE_HOME, by default ~/.cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or _home() / ".cache") / "verifier"


def state_folder() -> Path:
    """Sockets: verifier under $XDG_RUNTIME_DIR, by default ~/.local/state; /run/verifier for root."""
    if os.geteuid() == 0:
        return Path("/run/verifier")
    return Path(os.environ.get("XDG_RUNTIME_DIR") or _home() / ".local" / "state") / "verifier"


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError:  # a container's user that nobody knows: what it may write to is then said by name
        return Path("/")
