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
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from verifier.drivers import Image
from verifier.drivers.build import find_image
from verifier.errors import BuildError, VerifierError
from verifier.manifest import DEFAULT, Choice, Manifest
from verifier.registry._providers import build_files
from verifier.registry._source import PluginSource

__all__ = ["Build", "at_hand", "build_apart", "images_for", "is_ptx", "prebuilt"]

_log = structlog.get_logger(__name__)

_CUBIN = re.compile(r"sm_(\d+)(\d)\Z")
_PTX = re.compile(r"compute_(\d+)(\d)\Z")


@dataclass(frozen=True)
class Build:
    """What an image is built for, and with which variant and tunables."""

    target: str
    choice: Choice = field(default_factory=Choice)

    @classmethod
    def of(cls, manifest: Manifest, target: str, choice: Choice) -> Build:
        """A build for a target with that part of a choice that is for such devices. Raises ManifestError."""
        return cls(target, manifest.applied(choice, target))

    def inputs(self, manifest: Manifest) -> tuple[str, dict[str, int | str]]:
        """The source and the macros. Raises ManifestError."""
        return manifest.build(self.choice, self.target)

    def is_default(self, manifest: Manifest) -> bool:
        """Whether the plugin's own defaults give the same image."""
        return self.inputs(manifest) == manifest.build(Choice(), self.target)

    @property
    def text(self) -> str:
        """The target, and the choice where there is one."""
        return self.target if self.choice.text == DEFAULT else f"{self.target} ({self.choice.text})"


def images_for(
    source: PluginSource, builds: Iterable[Build], *, cache: Path | None, timeout_s: float
) -> dict[Build, Image]:
    """An image for each build: the bundle's own where it has one that runs there, else out of the cache, else built.

    A bundle's images are the defaults. Raises ManifestError, ProviderError, BuildError or DeviceUnavailableError (no
    compiler; the text says what to install).
    """
    images: dict[Build, Image] = {}
    wanted = set(builds)
    for build in wanted:
        image = at_hand(source, build, cache)
        if image is not None:
            images[build] = image
    missing = sorted(wanted - set(images), key=lambda build: build.text)
    names = [build.text for build in missing]
    if missing:
        _log.info("building", plugin=source.label, targets=names)
    began = time.monotonic()
    with ThreadPoolExecutor(max(1, len(missing))) as pool:
        built = [pool.submit(build_apart, source, build, cache=cache, timeout_s=timeout_s) for build in missing]
    images |= {build: future.result() for build, future in zip(missing, built, strict=True)}
    if missing:
        _log.info("built", plugin=source.label, targets=names, took_s=round(time.monotonic() - began, 3))
    return images


def at_hand(source: PluginSource, build: Build, cache: Path | None) -> Image | None:
    """The image of a build where nothing needs compiling for it, or None."""
    found = prebuilt(source.images, build.target) if build.is_default(source.manifest) else None
    return found or cached(source, build, cache)


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


def cached(source: PluginSource, build: Build, cache: Path | None) -> Image | None:
    """The image of an earlier build, without starting anything."""
    start, defines = build.inputs(source.manifest)
    files = build_files(source, build.choice, build.target)
    return find_image(files, start, build.target, defines, cache=cache)


def build_apart(source: PluginSource, build: Build, *, cache: Path | None, timeout_s: float) -> Image:
    """Builds in a child process of low priority, so that what serves is not slowed down and a compiler that crashes
    or hangs takes nothing with it. The child and its compilers end with this process too. Raises what build_image
    raises, and BuildError after `timeout_s`."""
    start, defines = build.inputs(source.manifest)
    files = build_files(source, build.choice, build.target)
    request = pickle.dumps((files, start, build.target, defines, cache))
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
            raise BuildError(f"{source.label} for {build.text}: the build took more than {timeout_s:g} s") from None
        finally:
            _end(child)
    finally:
        os.close(read_end)
        os.close(write_end)
    if child.returncode != 0:
        text = noise.decode("utf-8", "replace").strip()
        raise BuildError(f"{source.label} for {build.text}: the build ended with {_status(child.returncode)}: {text}")
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
