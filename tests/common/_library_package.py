"""An installed package that brings an archive, made here: what a provider names."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from verifier.drivers._cxx import find_compiler

PACKAGE, VERSION = "verifier-test-library", "1.2.3"


def archive(folder: Path, code: str, flags: Sequence[str] = ()) -> bytes:
    """The bytes of an archive of one C++ source."""
    compiler = find_compiler()
    zig = compiler.family == "zig"
    (folder / "library.cpp").write_text(code)
    commands = (
        [*compiler.command, "-c", "-O1", "-fPIC", *flags, "library.cpp", "-o", "library.o"],
        [*(compiler.command[:-1] if zig else ()), "ar", "rcs", "library.a", "library.o"],
    )
    for command in commands:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    return (folder / "library.a").read_bytes()


def install(folder: Path, data: bytes, monkeypatch: pytest.MonkeyPatch, file: str = "library.a") -> str:
    """Puts the archive beside a package's records on the search path; its SHA-256."""
    records = folder / f"{PACKAGE.replace('-', '_')}-{VERSION}.dist-info"
    records.mkdir(parents=True)
    (records / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {PACKAGE}\nVersion: {VERSION}\n")
    (records / "RECORD").write_text(f"lib/{file},,\n{records.name}/METADATA,,\n{records.name}/RECORD,,\n")
    (folder / "lib").mkdir()
    (folder / "lib" / file).write_bytes(data)
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    return hashlib.sha256(data).hexdigest()
