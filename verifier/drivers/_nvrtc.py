"""Cubins by NVRTC, the run-time compiler. It needs neither a GPU nor a driver nor headers."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping
from typing import Any

from verifier.errors import BuildError, DeviceUnavailableError

__all__ = ["compile_cubin", "nvrtc_version"]

# no-source-include: the working folder is no place to include from.
_OPTIONS = ("--std=c++17", "--generate-line-info", "--device-int128", "--no-source-include", "--ptxas-options=-v")
_MISSING = "NVRTC is missing: install it with `pip install 'verifier[cuda]'`"


def nvrtc_version() -> str:
    """NVRTC's version. Raises DeviceUnavailableError where it is not installed."""
    nvrtc = _nvrtc()
    try:
        error, major, minor = nvrtc.nvrtcVersion()
    except RuntimeError:  # cuda.pathfinder found no library
        raise DeviceUnavailableError(_MISSING) from None
    if error != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise DeviceUnavailableError(f"NVRTC does not answer: {error.name}")
    # The library itself tells no patch level, which may change what it generates.
    try:
        package = f" ({importlib.metadata.version('nvidia-cuda-nvrtc')})"
    except importlib.metadata.PackageNotFoundError:
        package = ""
    return f"NVRTC {major}.{minor}{package}"


def compile_cubin(
    files: Mapping[str, bytes], source: str, target: str, defines: Mapping[str, int | str]
) -> tuple[bytes, str]:
    """Compiles one source to a cubin: (the cubin, the log with registers and spills of every kernel). For a virtual
    architecture (compute_80) it is PTX, and the log is empty.

    Includes are taken from `files` and nowhere else. Raises BuildError, DeviceUnavailableError.
    """
    version = nvrtc_version()
    nvrtc = _nvrtc()
    options = [*_OPTIONS, f"--gpu-architecture={target}"]
    options += [f"--define-macro={name}={value}" for name, value in sorted(defines.items())]
    arguments = [option.encode() for option in options]
    headers = sorted(name for name in files if name != source)
    error, program = nvrtc.nvrtcCreateProgram(
        files[source], source.encode(), len(headers), [files[name] for name in headers], [n.encode() for n in headers]
    )
    if error != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise BuildError(f"{source} for {target}: {version}: {error.name}")
    try:
        (error,) = nvrtc.nvrtcCompileProgram(program, len(arguments), arguments)
        log = _text(nvrtc, program, nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog).decode(errors="replace")
        if error != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise BuildError(f"{source} does not compile for {target} with {version}: {error.name}\n{log}")
        if target.startswith("compute_"):
            image = _text(nvrtc, program, nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX)
        else:
            image = _text(nvrtc, program, nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN)
    finally:
        nvrtc.nvrtcDestroyProgram(program)
    # Without the times, which differ from run to run.
    lines = (line for line in log.rstrip("\0\n").splitlines() if "Compile time" not in line)
    return image, "\n".join(lines)


def _text(nvrtc: Any, program: Any, size: Any, get: Any) -> bytes:
    """What one of NVRTC's pairs of size and content gives."""
    error, count = size(program)
    if error == nvrtc.nvrtcResult.NVRTC_SUCCESS:
        data: bytes = b"\0" * count
        (error,) = get(program, data)
    if error != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise BuildError(f"NVRTC gives no result: {error.name}")
    return data


def _nvrtc() -> Any:
    """The bindings, imported when they are needed: importing this package must work without them."""
    try:
        from cuda.bindings import nvrtc
    except ImportError as error:
        raise DeviceUnavailableError(f"the CUDA bindings are missing: `pip install cuda-python` ({error})") from None
    return nvrtc
