"""Kernel source to images: cubins by NVRTC, shared libraries by a C++ compiler."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from verifier.drivers._driver import Image

__all__ = ["build_image", "compiler_id", "host_target"]


def host_target() -> str:
    """What plugins are built for on this CPU: x86-64-v2, x86-64-v3, x86-64-v4 or aarch64."""
    raise NotImplementedError


def compiler_id(target: str) -> str:
    """Name and version of the compiler that builds for `target`. Raises DeviceUnavailableError where there is none."""
    raise NotImplementedError


def build_image(
    files: Mapping[str, bytes],
    source: str,
    target: str,
    defines: Mapping[str, int | str],
    *,
    cache: Path | None = None,
) -> Image:
    """Builds a plugin, or takes it from the cache.

    Args:
        files: every file that the source may include, by the name it is included with: the plugin's folder and
            plugins/common together. Nothing else is ever included.
        source: which of `files` is compiled.
        target: sm_90, x86-64-v3, aarch64, ...: DeviceInfo.target.
        defines: preprocessor macros.
        cache: the folder of built images; None: verifier/images under the user's cache folder.

    Raises:
        BuildError: it does not compile; the text ends with the compiler's log.
        DeviceUnavailableError: no compiler for the target; the text says what to install.
    """
    raise NotImplementedError
