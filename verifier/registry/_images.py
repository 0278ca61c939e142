"""Built images for the targets at hand: out of the bundle, out of the cache, or built beside the service."""

from __future__ import annotations

import contextlib
import os
import pickle
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import structlog

from verifier.drivers import Image
from verifier.drivers.build import find_image
from verifier.errors import BuildError, VerifierError
from verifier.registry._source import PluginSource

__all__ = ["build_apart", "images_for", "is_ptx", "prebuilt"]

_log = structlog.get_logger(__name__)

_CUBIN = re.compile(r"sm_(\d+)(\d)\Z")
_PTX = re.compile(r"compute_(\d+)(\d)\Z")


def images_for(
    source: PluginSource, targets: Iterable[str], *, cache: Path | None, timeout_s: float
) -> dict[str, Image]:
    """An image for each target: the bundle's own where it has one that runs there, else built.

    Raises BuildError or DeviceUnavailableError (no compiler; the text says what to install).
    """
    images: dict[str, Image] = {}
    for target in targets:
        image = prebuilt(source.images, target) or cached(source, target, cache)
        if image is not None:
            images[target] = image
    missing = sorted(set(targets) - set(images))
    if missing:
        _log.info("building", plugin=source.label, targets=missing)
    began = time.monotonic()
    with ThreadPoolExecutor(max(1, len(missing))) as pool:
        built = [pool.submit(build_apart, source, target, cache=cache, timeout_s=timeout_s) for target in missing]
    images |= {target: future.result() for target, future in zip(missing, built, strict=True)}
    if missing:
        _log.info("built", plugin=source.label, targets=missing, took_s=round(time.monotonic() - began, 3))
    return images


def prebuilt(images: Mapping[str, Image], target: str) -> Image | None:
    """The best of a bundle's images for a target: its own, else the nearest older one that runs there.

    A cubin runs on its own major architecture from its minor one on, PTX on every later architecture, code for an
    x86-64 level on the levels above.
    """
    if target in images:
        return images[target]
    if match := _CUBIN.match(target):
        major, minor = int(match[1]), int(match[2])
        older = [(int(m[2]), name) for name in images if (m := _CUBIN.match(name)) and int(m[1]) == major]
        fitting = [entry for entry in older if entry[0] <= minor]
        ptx = [(int(m[1]), int(m[2]), name) for name in images if (m := _PTX.match(name))]
        portable = [entry for entry in ptx if entry[:2] <= (major, minor)]
        return images[max(fitting)[-1]] if fitting else images[max(portable)[-1]] if portable else None
    levels = [name for name in images if target.startswith("x86-64") and name.startswith("x86-64") and name <= target]
    return images[max(levels)] if levels else None


def is_ptx(image: Image) -> bool:
    """Whether an image is PTX, which the driver compiles at load."""
    return _PTX.match(image.target) is not None


def cached(source: PluginSource, target: str, cache: Path | None) -> Image | None:
    """The image of an earlier build, without starting anything."""
    return find_image(source.compiled, source.manifest.source, target, source.manifest.defines, cache=cache)


def build_apart(source: PluginSource, target: str, *, cache: Path | None, timeout_s: float) -> Image:
    """Builds in a child process of low priority, so that what serves is not slowed down and a compiler that crashes
    or hangs takes nothing with it. The child and its compilers end with this process too. Raises what build_image
    raises, and BuildError after `timeout_s`."""
    request = pickle.dumps((source.compiled, source.manifest.source, target, dict(source.manifest.defines), cache))
    read_end, write_end = os.pipe()  # the child sees its end when this process is gone, however it went
    try:
        child = subprocess.Popen(
            [sys.executable, "-m", "verifier.registry._build_child", str(read_end)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            pass_fds=(read_end,),
        )
        try:
            answer, noise = child.communicate(request, timeout_s)
        except subprocess.TimeoutExpired:
            raise BuildError(f"{source.label} for {target}: the build took more than {timeout_s:g} s") from None
        finally:
            _end(child)
    finally:
        os.close(read_end)
        os.close(write_end)
    if child.returncode != 0:
        text = noise.decode("utf-8", "replace").strip()
        raise BuildError(f"{source.label} for {target}: the build ended with {_status(child.returncode)}: {text}")
    # The child is our own program: nobody else writes to this pipe.
    result = pickle.loads(answer)
    if isinstance(result, VerifierError):
        raise result
    assert isinstance(result, Image)
    return result


def _end(child: subprocess.Popen[bytes]) -> None:
    """Ends the child and the compilers that it started."""
    if child.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.communicate()


def _status(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"status {code}"
