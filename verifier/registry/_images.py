"""Built images for the targets at hand: out of the bundle, out of the cache, or built beside the service."""

from __future__ import annotations

import pickle
import signal
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from verifier.drivers import Image
from verifier.errors import BuildError, VerifierError
from verifier.registry._source import PluginSource

__all__ = ["build_apart", "images_for"]


def images_for(
    source: PluginSource, targets: Iterable[str], *, cache: Path | None, timeout_s: float
) -> dict[str, Image]:
    """An image for each target: the bundle's own where it has one, else built.

    Raises BuildError or DeviceUnavailableError (no compiler; the text says what to install).
    """
    images = {target: source.images[target] for target in targets if target in source.images}
    missing = sorted(set(targets) - set(images))
    with ThreadPoolExecutor(max(1, len(missing))) as pool:
        built = [pool.submit(build_apart, source, target, cache=cache, timeout_s=timeout_s) for target in missing]
    return images | {target: future.result() for target, future in zip(missing, built, strict=True)}


def build_apart(source: PluginSource, target: str, *, cache: Path | None, timeout_s: float) -> Image:
    """Builds in a child process of low priority, so that what serves is not slowed down and a compiler that crashes
    or hangs takes nothing with it. Raises what build_image raises, and BuildError after `timeout_s`."""
    request = pickle.dumps((dict(source.files), source.manifest.source, target, dict(source.manifest.defines), cache))
    child = subprocess.Popen(
        [sys.executable, "-m", "verifier.registry._build_child"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        answer, noise = child.communicate(request, timeout_s)
    except subprocess.TimeoutExpired:
        raise BuildError(f"{source.label} for {target}: the build took more than {timeout_s:g} s") from None
    finally:
        _end(child)
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
        try:
            import os

            os.killpg(child.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        child.communicate()


def _status(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"status {code}"
