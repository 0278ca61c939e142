"""Plugins are replaced while clients saturate the daemon, and no caller notices."""

from __future__ import annotations

import pytest
from _admin import MARKED, MARKS, PLAIN, AdminDaemon, Swapper, copy_plugin, marked_parity
from _load import Load
from _memory import MIB, SETTLED, Memory, rise

from verifier.drivers import list_devices


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
