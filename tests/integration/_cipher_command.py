"""`verifier cipher` in this process and in one of its own, and files for it."""

from __future__ import annotations

import sys
from pathlib import Path

import typer
from typer.testing import CliRunner

from verifier.cli import cipher


def key_file(path: Path, key: bytes) -> Path:
    path.write_text(key.hex() + "\n")
    path.chmod(0o600)
    return path


def invoke(*arguments):
    """The command in this process."""
    app = typer.Typer()
    cipher.register(app)
    app.callback()(lambda: None)
    return CliRunner().invoke(app, ["cipher", *map(str, arguments)])


def command(*arguments) -> list[str]:
    return [sys.executable, "-m", "verifier", "cipher", *map(str, arguments)]


def command_after(statement: str, *arguments) -> list[str]:
    """`command` in a process that first runs `statement`, with os, resource and signal imported. Popen's `preexec_fn`
    would run it between fork and exec, where gRPC starts its poller again while its descriptors are being closed: the
    child aborts now and then (github.com/grpc/grpc/issues/43055)."""
    code = f"import os, resource, signal, sys; {statement}; os.execv(sys.executable, sys.argv[1:])"
    return [sys.executable, "-c", code, *command(*arguments)]


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}
