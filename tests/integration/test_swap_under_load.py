"""Plugins are replaced while clients saturate the daemon, and no caller notices."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from _admin import MARKED, MARKS, PLAIN, AdminDaemon, Swapper, copy_plugin, marked_parity
from _load import Load

from verifier.drivers import list_devices, open_driver

MIB = 1 << 20
SETTLED = 5  # swaps until memory must be flat


@pytest.fixture(params=["cpu", pytest.param("cuda:0", marks=pytest.mark.gpu)])
def device_id(request) -> str:
    if request.param not in {device.id for device in list_devices()}:
        pytest.skip(f"there is no {request.param}")
    return request.param


@pytest.fixture
def start_admin(tmp_path):
    made = []

    def begin(*arguments, **options) -> AdminDaemon:
        daemon = AdminDaemon(tmp_path, *arguments, **options)
        made.append(daemon)
        return daemon

    yield begin
    for daemon in made:
        daemon.process.kill()
        daemon.stop()


class Memory:
    """What the daemon and its workers hold, and the free memory of a GPU, noted after every swap."""

    def __init__(self, daemon: AdminDaemon, device_id: str) -> None:
        self._pids = [daemon.process.pid, *daemon.workers()]
        self._driver = open_driver(device_id) if device_id.startswith("cuda") else None
        self.host: list[int] = []  # bytes
        self.mappings: list[int] = []
        self.files: list[int] = []  # open ones
        self.device: list[int] = []  # bytes that are not free

    def note(self) -> None:
        processes = [Path(f"/proc/{pid}") for pid in self._pids]
        pages = sum(int((process / "statm").read_text().split()[1]) for process in processes)
        self.host.append(pages * os.sysconf("SC_PAGE_SIZE"))
        self.mappings.append(sum(_libraries(process) for process in processes))
        self.files.append(sum(len(list((process / "fd").iterdir())) for process in processes))
        if self._driver is not None:
            self.device.append(-self._driver.memory_free_bytes())

    def close(self) -> None:
        if self._driver is not None:
            self._driver.close()

    def assert_flat(self) -> None:
        """Nothing is left behind by a swap: a few MiB of the allocator's own, no library, no open file."""
        assert rise(self.host) < 48 * MIB
        assert rise(self.mappings) <= 4
        assert rise(self.files) <= 8
        if self.device:
            assert rise(self.device) < 32 * MIB


def _libraries(process: Path) -> int:
    """Executable mappings: each loaded plugin has one."""
    return sum(line.split()[1] == "r-xp" for line in (process / "maps").read_text().splitlines())


def rise(values: list[int]) -> float:
    """How much the last values are above those of the first swaps after the fifth; medians, since work goes on."""
    settled = values[SETTLED:]
    return float(np.median(settled[-5:]) - np.median(settled[:5]))


def test_a_rise_is_seen():
    assert rise([0] * SETTLED + [n * MIB for n in range(20)]) == 15 * MIB
    assert rise([n * MIB for n in range(SETTLED)] + [SETTLED * MIB] * 10) == 0


@pytest.mark.parametrize("swaps", [20, pytest.param(200, marks=pytest.mark.long)])
def test_swaps_under_load_cost_no_verdict_and_no_memory(start_admin, tmp_path, device_id, swaps):
    """Four client processes without a pause. Versions differ in the reason that they give for an invalid item, so an
    answer that mixed two instances, or named the wrong one, is found."""
    plain, other = copy_plugin(tmp_path / "plain"), marked_parity(tmp_path / "other")
    daemon = start_admin([str(plain)], "plugins.drain_timeout_s=60", devices=(device_id,))
    swapper = Swapper(daemon, "parity", plain, other, MARKED)
    memory = Memory(daemon, device_id)
    generations = set()
    with Load(daemon.address, tmp_path, marks=MARKS) as load:
        for _ in range(swaps):
            generations.add(swapper.swap().generation)
            memory.note()
    report = load.report
    memory.close()
    report.assert_all_right()
    hit = report.within(swapper.spans)
    print(f"{report.calls} calls, {int(hit.sum())} of them while a swap was under way")
    assert hit.sum() >= swaps, "the load did not overlap the swaps"
    served = {label.partition("@")[2].partition("#")[0] for label in report.served_by}
    assert served == {PLAIN, MARKED}
    assert len(generations) >= swaps * 3 // 5
    memory.assert_flat()
    assert daemon.workers() == memory._pids[1:], "no worker was replaced"
    left = [i.label for i in daemon.instances().values() if i.devices]
    assert len(left) == 2, f"one serves and one is kept for a roll-back, not {left}"
