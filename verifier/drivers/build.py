"""Kernel source to images: cubins by NVRTC, shared libraries by a C++ compiler."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path

from verifier.drivers._cache import ImageCache, default_cache_folder, image_key
from verifier.drivers._cxx import compile_library, extra_flags, find_compiler
from verifier.drivers._driver import Image
from verifier.drivers._includes import check_includes
from verifier.drivers._nvrtc import compile_cubin, nvrtc_version
from verifier.drivers._target import CPU_TARGETS, host_target, missing_cpu_flags
from verifier.drivers._usage import KernelUsage, kernel_usage
from verifier.errors import BuildError

__all__ = [
    "ImageCache",
    "KernelUsage",
    "build_image",
    "compiler_id",
    "default_cache_folder",
    "find_image",
    "host_target",
    "kernel_usage",
    "missing_cpu_flags",
]

# Part of every cache key: raise it when the options of a compiler change.
_OPTIONS_VERSION = 1

_CUDA_TARGET = re.compile(r"sm_\d{2,3}[af]?|compute_\d{2,3}")  # cubin or PTX
_FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_MACRO_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_MACRO_VALUE = re.compile(r"[A-Za-z0-9_+-]{0,128}")


def compiler_id(target: str) -> str:
    """Name and version of the compiler that builds for `target`.

    Raises DeviceUnavailableError where there is none, BuildError where the target is unknown.
    """
    if _CUDA_TARGET.fullmatch(target):
        return nvrtc_version()
    if target in CPU_TARGETS:
        if (target == "aarch64") != (host_target() == "aarch64"):
            raise BuildError(f"target {target} cannot be built on {host_target()}")
        return " ".join((find_compiler().version, *extra_flags()))
    raise BuildError(f"target {target!r} is neither sm_NN, compute_NN nor one of {', '.join(CPU_TARGETS)}")


def build_image(
    files: Mapping[str, bytes],
    source: str,
    target: str,
    defines: Mapping[str, int | str],
    *,
    cache: ImageCache | Path | None = None,
) -> Image:
    """Builds a plugin, or takes it from the cache.

    Args:
        files: every file that the source may include, by the name it is included with: the plugin's folder and
            plugins/common together. For a CPU, archives (.a) among them are linked in.
        source: which of `files` is compiled.
        target: sm_90, x86-64-v3, aarch64, ...: DeviceInfo.target; compute_80 gives PTX.
        defines: preprocessor macros: numbers or names.
        cache: where built images are kept; None: verifier/images under the user's cache folder.

    Raises:
        BuildError: it includes what is not in `files`, or does not compile; then the text ends with the compiler's
            log.
        DeviceUnavailableError: no compiler for the target; the text says what to install.
    """
    cache, key = _entry(files, source, target, defines, cache)
    found = cache.get(key)
    if found is not None:
        return found
    if _CUDA_TARGET.fullmatch(target):
        data, log = compile_cubin(files, source, target, defines)
    else:
        data, log = compile_library(find_compiler(), files, source, target, defines)
    image = Image(target, data, hashlib.sha256(data).hexdigest(), log)
    cache.put(key, image)
    return image


def find_image(
    files: Mapping[str, bytes],
    source: str,
    target: str,
    defines: Mapping[str, int | str],
    *,
    cache: ImageCache | Path | None = None,
) -> Image | None:
    """What build_image would take from the cache, or None. Raises as build_image does; compiles nothing."""
    cache, key = _entry(files, source, target, defines, cache)
    return cache.get(key)


def _entry(
    files: Mapping[str, bytes],
    source: str,
    target: str,
    defines: Mapping[str, int | str],
    cache: ImageCache | Path | None,
) -> tuple[ImageCache, str]:
    """The cache, and the key that a build has in it."""
    _check(files, source, defines)
    compiler = compiler_id(target)
    if not isinstance(cache, ImageCache):
        cache = ImageCache(cache or default_cache_folder())
    return cache, image_key(files, source, target, defines, f"{compiler}, options {_OPTIONS_VERSION}")


def _check(files: Mapping[str, bytes], source: str, defines: Mapping[str, int | str]) -> None:
    if source not in files:
        raise BuildError(f"source {source!r} is not among the files")
    for name in files:
        if not _FILE_NAME.fullmatch(name):
            raise BuildError(f"file name {name!r} is not plain letters, digits, _ . and -")
    for name, value in defines.items():
        if not _MACRO_NAME.fullmatch(name):
            raise BuildError(f"macro name {name!r} is not an identifier")
        if not _MACRO_VALUE.fullmatch(str(value)):
            raise BuildError(f"macro {name}: value {value!r} is neither a number nor a name")
    check_includes(files, source)
