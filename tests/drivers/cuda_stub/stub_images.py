"""A pytest plugin for the stub of libcuda: what NVRTC would build, the C++ compiler builds."""

from __future__ import annotations

from verifier.drivers import build
from verifier.drivers._cxx import compile_library, find_compiler
from verifier.drivers.build import host_target


def _compile(files, source, target, defines):
    return compile_library(find_compiler(), files, source, host_target(), defines)


build.compile_cubin = _compile
