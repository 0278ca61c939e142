"""Where the known answers that are not part of the repository lie."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SHARED = Path(os.environ.get("VERIFIER_SHARED", ROOT.parent / "shared"))


def shared_json(*parts: str) -> Any:
    """A file of shared/vectors; skips the test where it is absent."""
    path = SHARED.joinpath("vectors", *parts)
    if not path.exists():
        pytest.skip(f"no {path.name}: set VERIFIER_SHARED to the folder that has vectors/")
    return json.loads(path.read_text())
