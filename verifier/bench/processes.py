"""What Linux tells of processes: children, processor time, memory, open files (proc(5)).

Processes and threads end while one looks: those that have are left out of lists, and otherwise an OSError.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

__all__ = ["children", "cpu_s", "open_files", "private_bytes", "proportional_bytes", "tree"]

_ENDED = (FileNotFoundError, ProcessLookupError)


def children(pid: int, code: str = "") -> list[int]:
    """Process ids of the children, of those whose command line has `code` in it."""
    found: list[int] = []
    for task in _folder(pid, "task").iterdir():
        with suppress(*_ENDED):
            found += map(int, (task / "children").read_text().split())
    return sorted(child for child in found if not code or code in _command_line(child))


def tree(pid: int) -> list[int]:
    """The process and all its descendants."""
    found = [pid]
    with suppress(*_ENDED):
        for child in children(pid):
            found += tree(child)
    return found


def cpu_s(pid: int) -> float:
    """User and system time of a process, without its children."""
    fields = _folder(pid, "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def private_bytes(pid: int) -> int:
    """Anonymous memory that is resident: neither files nor what is shared."""
    return _kib(_folder(pid, "status"), "RssAnon:")


def proportional_bytes(pid: int) -> int:
    """Resident memory, of each page the process's share (PSS)."""
    return _kib(_folder(pid, "smaps_rollup"), "Pss:")


def open_files(pid: int) -> int:
    """How many descriptors are open."""
    return len(os.listdir(_folder(pid, "fd")))  # noqa: PTH208 - counts, and reads nothing


def _folder(pid: int, name: str) -> Path:
    return Path("/proc", str(pid), name)


def _command_line(pid: int) -> str:
    with suppress(*_ENDED):
        return _folder(pid, "cmdline").read_bytes().decode(errors="replace")
    return ""


def _kib(path: Path, field: str) -> int:
    """A field's bytes; 0 of a process that has ended and is not yet waited for."""
    lines = path.read_text().splitlines()
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith(field)), 0)
