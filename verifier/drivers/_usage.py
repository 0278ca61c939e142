"""What the compiler's log says about each kernel."""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["KernelUsage", "kernel_usage"]


@dataclass(frozen=True, slots=True)
class KernelUsage:
    """Resources of one kernel: registers a thread, bytes a thread of stack and spills, bytes a block of shared."""

    name: str
    registers: int
    spill_stores: int
    spill_loads: int
    stack: int
    shared: int


_ENTRY = re.compile(r"Compiling entry function '(\w+)'")
_FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")


def kernel_usage(log: str) -> list[KernelUsage]:
    """Every kernel of a ptxas log (option -v), in its order. Empty for a log of a C++ compiler.

    Stack and spills are summed over the kernel and the functions that it calls without inlining.
    """
    found: list[KernelUsage] = []
    entry, frame = "", (0, 0, 0)
    for line in log.splitlines():
        if match := _ENTRY.search(line):
            entry, frame = match[1], (0, 0, 0)
        elif match := _FRAME.search(line):
            stack, stores, loads = frame
            frame = (stack + int(match[1]), stores + int(match[2]), loads + int(match[3]))
        elif (match := _USED.search(line)) and entry:
            shared = _SHARED.search(line)
            stack, stores, loads = frame
            found.append(KernelUsage(entry, int(match[1]), stores, loads, stack, int(shared[1]) if shared else 0))
    return found
