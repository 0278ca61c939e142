"""What the CPU of this machine is, as a build target."""

from __future__ import annotations

import functools
import os
import platform
from collections.abc import Iterable
from pathlib import Path

from verifier.errors import DeviceUnavailableError

__all__ = [
    "CPU_TARGETS",
    "available_memory_bytes",
    "cpu_name",
    "host_target",
    "missing_cpu_flags",
    "runs_on_host",
    "usable_threads",
    "x86_64_level",
]

# The levels of the x86-64 psABI, by the kernel's names for what each adds.
_LEVELS = (
    ("x86-64-v2", frozenset({"cx16", "lahf_lm", "popcnt", "sse4_1", "sse4_2", "ssse3"})),
    ("x86-64-v3", frozenset({"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"})),
    ("x86-64-v4", frozenset({"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"})),
)
_X86_64 = tuple(name for name, _ in _LEVELS)
CPU_TARGETS = (*_X86_64, "aarch64")
_CPUINFO = Path("/proc/cpuinfo")
_MEMINFO = Path("/proc/meminfo")
_CPU_MAX = Path("/sys/fs/cgroup/cpu.max")


def x86_64_level(flags: frozenset[str]) -> str | None:
    """The highest level whose features, and all lower levels' features, are in `flags`; None below the second."""
    level = None
    for name, needed in _LEVELS:
        if not needed <= flags:
            break
        level = name
    return level


@functools.cache
def host_target() -> str:
    """What plugins are built for on this CPU: x86-64-v2, x86-64-v3, x86-64-v4 or aarch64.

    Raises DeviceUnavailableError on any other CPU.
    """
    machine = platform.machine()
    if machine in ("aarch64", "arm64"):
        return "aarch64"
    if machine not in ("x86_64", "AMD64"):
        raise DeviceUnavailableError(f"cpu: {machine} is not supported, only x86-64 and aarch64 are")
    level = x86_64_level(frozenset(_field("flags").split()))
    if level is None:
        raise DeviceUnavailableError("cpu: older than x86-64-v2 (SSE 4.2), which is the least that is supported")
    return level


def runs_on_host(target: str) -> bool:
    """Whether code built for `target` runs on this CPU: its own level and those below."""
    host = host_target()
    if target in _X86_64 and host in _X86_64:
        return _X86_64.index(target) <= _X86_64.index(host)
    return target == host


def missing_cpu_flags(needed: Iterable[str]) -> list[str]:
    """Those of the flags, as /proc/cpuinfo names them, that this CPU has not."""
    have = frozenset(_field("flags").split())
    return [flag for flag in needed if flag not in have]


def cpu_name() -> str:
    """The CPU's name as its maker gives it, or the architecture."""
    return _field("model name") or platform.processor() or platform.machine()


def usable_threads() -> int:
    """CPUs that this process may run on: its affinity, and its control group's quota rounded up."""
    allowed = len(os.sched_getaffinity(0))
    try:
        quota, period = _CPU_MAX.read_text(encoding="ascii").split()
        return max(1, min(allowed, -(-int(quota) // int(period))))
    except (OSError, ValueError):  # no control group here, or one without a quota ("max")
        return allowed


def available_memory_bytes() -> int:
    """Memory that the system can give without swapping."""
    try:
        for line in _MEMINFO.read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")


@functools.cache
def _field(name: str) -> str:
    """The first value of a field of /proc/cpuinfo, empty where it has none."""
    try:
        lines = _CPUINFO.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return ""
