"""Real systems' files, where they are at hand."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real files; a checkout by itself does not have it."""
    folder = Path(os.environ.get("VERIFIER_SHARED", Path(__file__).parents[2].parent / "shared"))
    if not folder.is_dir():
        pytest.skip(f"no real files at {folder}")
    return folder
