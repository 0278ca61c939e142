"""Parsers, digests and the whole ecdsa library under AddressSanitizer and UndefinedBehaviorSanitizer."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


def library_path(name: str) -> str | None:
    """Where g++ keeps a sanitizer's library, or None."""
    try:
        done = subprocess.run(["g++", f"-print-file-name={name}"], capture_output=True, text=True, check=False)
    except OSError:
        return None
    path = done.stdout.strip()
    return path if Path(path).is_absolute() else None


LIBRARIES = [library_path("libasan.so"), library_path("libubsan.so")]
pytestmark = pytest.mark.skipif(None in LIBRARIES, reason="g++ has no AddressSanitizer here (libasan, libubsan)")


def run(*command: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {
        "LD_PRELOAD": " ".join(path for path in LIBRARIES if path),
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=0:exitcode=99",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "PYTHONMALLOC": "malloc",
        "PYTHONPATH": os.pathsep.join(
            [str(ROOT), str(HERE), str(HERE.parent / "plugins"), str(HERE.parent / "common")]
        ),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    return subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False, env=environment)


def test_an_overread_is_found(tmp_path):
    """One byte past the end of a column ends the process: the guard fires."""
    source = tmp_path / "overread.cu"
    source.write_text(
        'extern "C" int past_the_end(const unsigned char* data, unsigned size) { return data[size]; }\n'
    )
    code = f"""
import ctypes, numpy, pathlib, _build
from sanitized_run import FLAGS
library = _build.build(pathlib.Path({str(source)!r}), flags=FLAGS)
data = numpy.zeros(65, numpy.uint8)
library.past_the_end(ctypes.c_void_p(data.ctypes.data), ctypes.c_uint32(64))
print("inside", flush=True)
library.past_the_end(ctypes.c_void_p(data.ctypes.data), ctypes.c_uint32(65))
"""
    done = run("-c", code)
    assert "inside" in done.stdout, done.stderr
    assert done.returncode == 99
    assert "heap-buffer-overflow" in done.stderr


@pytest.mark.parametrize(("what", "count"), [("parsers", 300), ("digests", 0), ("gpu_loads", 0)])
def test_clean(what, count):
    done = run(str(HERE / "sanitized_run.py"), what, "1", str(count))
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]


@pytest.mark.timeout(3600)
def test_library_is_clean():
    """Half of its minute is the compiler's."""
    done = run(str(HERE / "sanitized_run.py"), "library", "2", "200")
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
