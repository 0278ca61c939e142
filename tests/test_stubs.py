"""The committed stubs are what the .proto files give."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
STUBS = sorted(path.name for path in (ROOT / "verifier" / "v1").glob("*_pb2*"))


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    pytest.importorskip("grpc_tools")
    folder = tmp_path_factory.mktemp("stubs")
    options = [f"--{kind}={folder}" for kind in ("python_out", "pyi_out", "grpc_python_out")]
    files = [str(path.relative_to(ROOT)) for path in (ROOT / "proto").rglob("*.proto")]
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I", "proto", *options, *files]
    subprocess.run(command, cwd=ROOT, check=True)
    return folder / "verifier" / "v1"


def test_every_stub_is_committed(made):
    assert sorted(path.name for path in made.iterdir()) == STUBS


@pytest.mark.parametrize("name", STUBS)
def test_the_stub_is_current(made, name):
    """script/stubs makes them anew."""
    assert (ROOT / "verifier" / "v1" / name).read_text() == (made / name).read_text()
