"""Shared libraries by a C++ compiler found when it is needed.

The order is docs/decisions/0003-compiler-order.md's: what the operator says in $CXX, clang++, the clang that PyPI has
(ziglang) where it is installed, and last g++. Options in $CXXFLAGS come last and so win.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from verifier.errors import BuildError, DeviceUnavailableError

__all__ = ["ARCHIVE_SUFFIX", "Compiler", "compile_library", "extra_flags", "find_compiler"]

ARCHIVE_SUFFIX = ".a"

_TIMEOUT_S = 900

# Freestanding: no C++ library, no exceptions, nothing exported but what says so. Kernels read bytes as words,
# hence no-strict-aliasing.
_FLAGS = (
    *("-x", "c++", "-std=c++17", "-O3", "-fPIC", "-shared"),
    *("-ffreestanding", "-fno-exceptions", "-fno-rtti", "-fno-strict-aliasing", "-fvisibility=hidden"),
    *("-fno-stack-protector", "-fno-asynchronous-unwind-tables", "-fno-threadsafe-statics", "-nostdinc++"),
    "-g0",  # which zig asks for by itself, with the strings in another order each time
)
# A unique symbol would keep a library in memory after it was unloaded.
_LINK = {
    "clang": ("-nodefaultlibs", "-Wl,--no-undefined", "-lc", "-lgcc"),
    "gcc": ("-fno-gnu-unique", "-nodefaultlibs", "-Wl,--no-undefined", "-lc", "-lgcc"),
    "zig": ("-nostdlib++", "-fno-sanitize=all", "-Wl,--no-undefined"),
}


@dataclass(frozen=True, slots=True)
class Compiler:
    """A C++ compiler: how it is run and what it says it is."""

    command: tuple[str, ...]
    family: str  # gcc, clang, zig
    version: str


def find_compiler() -> Compiler:
    """The first compiler that runs. Raises DeviceUnavailableError that says what to install."""
    return _find(os.environ.get("CXX", ""), os.environ.get("PATH", ""))


def extra_flags() -> tuple[str, ...]:
    """The operator's own options, which count as part of the compiler."""
    return tuple(shlex.split(os.environ.get("CXXFLAGS", "")))


@functools.lru_cache(maxsize=8)
def _find(cxx: str, path: str) -> Compiler:
    if cxx:
        found = _identify(tuple(shlex.split(cxx)))
        if found is None:
            raise DeviceUnavailableError(f"cpu: the compiler that CXX names does not run: {cxx}")
        return found
    candidates: list[tuple[str, ...]] = []
    if where := shutil.which("clang++", path=path):
        candidates.append((where,))
    if importlib.util.find_spec("ziglang") is not None:
        candidates.append((sys.executable, "-m", "ziglang", "c++"))
    if where := shutil.which("g++", path=path):
        candidates.append((where,))
    for command in candidates:
        found = _identify(command)
        if found is not None:
            return found
    raise DeviceUnavailableError(
        "cpu: no C++ compiler: install one with `apt install g++` or `pip install 'verifier[compiler]'`"
    )


def _identify(command: tuple[str, ...]) -> Compiler | None:
    """What the command is, or None where it does not run."""
    try:
        done = subprocess.run(
            [*command, "--version"], capture_output=True, text=True, timeout=60, check=True, env=_environment()
        )
    except (OSError, subprocess.SubprocessError):
        return None
    version = done.stdout.partition("\n")[0].strip()
    if any(Path(part).name in ("zig", "ziglang") for part in command):
        return Compiler(command, "zig", f"zig c++, {version}")  # it answers with the version of the clang inside
    return Compiler(command, "clang" if "clang" in version else "gcc", version)


def compile_library(
    compiler: Compiler, files: Mapping[str, bytes], source: str, target: str, defines: Mapping[str, int | str]
) -> tuple[bytes, str]:
    """Compiles one source to a shared library: (the library, the compiler's log). Raises BuildError.

    Archives among the files are linked in, and what they call stays inside the image, whatever else is loaded.
    """
    archives = sorted(name for name in files if name.endswith(ARCHIVE_SUFFIX))
    with tempfile.TemporaryDirectory(prefix="verifier-build-") as folder:
        root = Path(folder)
        for name, data in files.items():
            (root / name).write_bytes(data)
        # Relative names in a fixed order: the same input gives the same bytes, wherever the folder is.
        command = [*compiler.command, *_FLAGS, *_architecture(compiler, target), "-I."]
        command += [f"-D{name}={value}" for name, value in sorted(defines.items())]
        command += [*extra_flags(), "-o", "image.so", source]
        if archives:
            command += ["-x", "none", *archives, "-Wl,-Bsymbolic"]
        command += _LINK[compiler.family]
        try:
            done = subprocess.run(
                command,
                cwd=root,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_TIMEOUT_S,
                check=False,
                env=_environment() | {"TMPDIR": folder},
            )
        except subprocess.TimeoutExpired:
            raise BuildError(f"{source} for {target}: {compiler.version} took over {_TIMEOUT_S} s") from None
        except OSError as error:
            raise BuildError(f"{source} for {target}: {compiler.version}: {error}") from None
        log = done.stdout + done.stderr
        if done.returncode != 0:
            raise BuildError(f"{source} does not compile for {target} with {compiler.version}:\n{log}")
        return (root / "image.so").read_bytes(), log


def _architecture(compiler: Compiler, target: str) -> tuple[str, ...]:
    if target == "aarch64":
        return ()
    return (f"-march={target.replace('-', '_')}",) if compiler.family == "zig" else (f"-march={target}",)


def _environment() -> dict[str, str]:
    return os.environ | {"LC_ALL": "C"}
