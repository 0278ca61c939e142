"""What a daemon, its workers and its GPU hold, to see whether anything grows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from _daemon_process import DaemonProcess

from verifier.bench.processes import open_files, private_bytes
from verifier.drivers import open_driver

MIB = 1 << 20
SETTLED = 5  # swaps until memory must be flat


class Memory:
    """What the daemon and its workers hold, and the free memory of a GPU, noted after every swap."""

    def __init__(self, daemon: DaemonProcess, device_id: str) -> None:
        self._pids = [daemon.process.pid, *daemon.workers()]
        self._driver = open_driver(device_id) if device_id.startswith("cuda") else None
        self.host: list[int] = []  # bytes
        self.mappings: list[int] = []
        self.files: list[int] = []  # open ones
        self.device: list[int] = []  # bytes that are not free

    def note(self) -> None:
        # Of their own alone: the slots' pages are shared and bounded, and become resident when they are first used.
        self.host.append(sum(map(private_bytes, self._pids)))
        self.mappings.append(sum(map(_libraries, self._pids)))
        self.files.append(sum(map(open_files, self._pids)))
        if self._driver is not None:
            self.device.append(-self._driver.memory_free_bytes())

    def close(self) -> None:
        if self._driver is not None:
            self._driver.close()

    def assert_flat(self) -> None:
        """Nothing is left behind by a swap: a few MiB of the allocator's own, no library, no open file."""
        assert rise(self.host) < 48 * MIB, [value // MIB for value in self.host]
        assert rise(self.mappings) <= 4
        assert rise(self.files) <= 8
        if self.device:
            assert rise(self.device) < 32 * MIB


def _libraries(pid: int) -> int:
    """Executable mappings: each loaded plugin has one."""
    return sum(line.split()[1] == "r-xp" for line in Path(f"/proc/{pid}/maps").read_text().splitlines())


def rise(values: list[int]) -> float:
    """How much the last values are above those of the first swaps after the fifth; medians, since work goes on."""
    settled = values[SETTLED:]
    return float(np.median(settled[-5:]) - np.median(settled[:5]))
