"""The CPU: threads, ranges, libraries that come and go, faults."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from verifier.drivers import BatchStruct, _target, host, open_driver
from verifier.drivers._target import host_target, runs_on_host, x86_64_level
from verifier.drivers.build import build_image
from verifier.errors import ConfigError, DeviceUnavailableError

# Writes which lane did an item, and fails on purpose.
PROBE = b"""
#include "abi.cuh"
PLUGIN_INFO(0, 0, 0)
DEVICE void mark(const Batch& batch, const Lane& lane, u32 item) {
    batch.codes[item] = (u8)(batch.codes[item] * 2 + 1);
    batch.outputs[0][item] = (u8)lane.index;
    for (volatile u32 i = 0; i < batch.parameters[0]; i++) {}
}
ITEM_STAGE(mark_lanes, mark, 32, 1)
DEVICE void fault(const Batch& batch, const Lane&, u32 item) { *(volatile u8*)(u64)(16 + item) = 1; }
ITEM_STAGE(crash, fault, 32, 1)
DEVICE void first_of_group(const Batch& batch, const Lane&, u32 first, u32 stride, u32 count) {
    for (u32 i = 0; i < count; i++) batch.codes[first + i * stride] = (u8)count;
}
GROUP_STAGE(groups, first_of_group, 5, 32, 1)
"""


@pytest.fixture
def probe(parity_files, image_cache):
    return build_image(parity_files | {"probe.cu": PROBE}, "probe.cu", host_target(), {}, cache=image_cache)


def marks(
    image, threads: int, items: int, spin: int = 0, item_s: float | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """How often each item was done (1, 3, 7, ...) and by which lane. `item_s`: what an item is said to take."""
    driver = open_driver("cpu", threads=threads)
    module, stream = driver.load(image), driver.stream()
    codes, lanes = np.zeros(items, np.uint8), np.full(items, 255, np.uint8)
    batch = BatchStruct(items=items, codes=codes.ctypes.data)
    batch.outputs[0] = lanes.ctypes.data
    batch.parameters[0] = spin
    function = module.function("mark_lanes")
    assert function.lanes == threads
    function.item_s = item_s
    stream.launch(function, batch)
    stream.synchronize()
    for child in (stream, module, driver):
        child.close()
    return codes, lanes


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
@pytest.mark.parametrize("items", [1, 31, 32, 33, 257, 10_000])
def test_every_item_is_done_once_and_a_word_by_one_lane(probe, threads, items):
    codes, lanes = marks(probe, threads, items)
    assert (codes == 1).all()
    assert lanes.max() < threads
    firsts = lanes[np.arange(items) // 32 * 32]
    assert np.array_equal(lanes, firsts)


def test_several_threads_take_part(probe):
    _, lanes = marks(probe, 4, 4096, spin=20_000)
    assert len(set(lanes)) > 1


def test_what_is_soon_done_wakes_nobody(probe, monkeypatch):
    monkeypatch.setattr(host, "time", SimpleNamespace(perf_counter=lambda: 0.0))
    codes, lanes = marks(probe, 4, 4096, spin=20_000, item_s=1e-9)
    assert (codes == 1).all()
    assert not lanes.any()


def test_what_was_thought_to_be_soon_done_is_helped_with(probe, monkeypatch):
    ticks = itertools.count()
    monkeypatch.setattr(host, "time", SimpleNamespace(perf_counter=lambda: float(next(ticks))))
    codes, lanes = marks(probe, 4, 4096, spin=20_000, item_s=1e-9)
    assert (codes == 1).all()
    assert not lanes[:1024].any()  # a range: a quarter
    assert len(set(lanes)) > 1


def test_groups_end_at_the_end_of_the_batch(probe):
    driver = open_driver("cpu", threads=1)
    module, stream = driver.load(probe), driver.stream()
    codes = np.zeros(13, np.uint8)
    stream.launch(module.function("groups"), BatchStruct(items=13, codes=codes.ctypes.data))
    stream.synchronize()
    assert codes.tolist() == [5] * 10 + [3] * 3
    for child in (stream, module, driver):
        child.close()


@pytest.mark.parametrize("threads", [0, -1, 1025])
def test_the_number_of_threads_is_bounded(threads):
    with pytest.raises(ConfigError, match="threads"):
        open_driver("cpu", threads=threads)


@pytest.mark.parametrize("name", ["", "cpu:0", "cuda", "cuda:", "cuda:x", "gpu:0", "cuda:-1"])
def test_unknown_devices_are_named(name):
    with pytest.raises(DeviceUnavailableError, match="is no device"):
        open_driver(name)


def test_a_fault_in_a_library_ends_the_process(probe, tmp_path):
    (tmp_path / "image").write_bytes(probe.data)
    program = f"""
        from pathlib import Path
        from verifier.drivers import BatchStruct, Image, open_driver
        driver = open_driver("cpu", threads=2)
        image = Image({probe.target!r}, Path("image").read_bytes(), {probe.digest!r})
        stream, module = driver.stream(), driver.load(image)
        stream.launch(module.function("crash"), BatchStruct(items=64))
        stream.synchronize()
        print("alive")
    """
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        check=False,
    )
    assert done.returncode == -signal.SIGSEGV
    assert b"alive" not in done.stdout


def resources() -> tuple[int, int, int]:
    """Open files, mapped regions of plugins, threads."""
    maps = Path("/proc/self/maps").read_text().splitlines()
    return (
        len(list(Path("/proc/self/fd").iterdir())),
        sum("memfd:" in line for line in maps),
        threading.active_count(),
    )


def test_200_reloads_leave_nothing_behind(probe):
    driver = open_driver("cpu", threads=2)
    before = resources()
    for _ in range(200):
        module = driver.load(probe)
        module.function("publish")
        assert resources()[1] > before[1]
        module.close()
        assert resources() == before
    driver.close()


def test_opening_and_closing_leaves_nothing_behind(probe):
    marks(probe, 3, 100)
    before = resources()
    for _ in range(20):
        marks(probe, 3, 10_000)
    assert resources() == before


def test_a_quota_of_the_control_group_bounds_the_threads(tmp_path, monkeypatch):
    monkeypatch.setattr(_target, "_CPU_MAX", tmp_path / "cpu.max")
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    counts = []
    for text in ("150000 100000", "50000 100000", "1600000 100000", "max 100000", ""):
        (tmp_path / "cpu.max").write_text(text)
        counts.append(_target.usable_threads())
    assert counts == [2, 1, 8, 8, 8]


def test_available_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(_target, "_MEMINFO", tmp_path / "meminfo")
    assert _target.available_memory_bytes() > 0
    (tmp_path / "meminfo").write_text("MemTotal:  9 kB\nMemFree:  1 kB\nMemAvailable:  5 kB\n")
    assert _target.available_memory_bytes() == 5 * 1024


def test_levels_of_x86_64():
    v2 = {"cx16", "lahf_lm", "popcnt", "sse4_1", "sse4_2", "ssse3"}
    v3 = v2 | {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"}
    v4 = v3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
    assert x86_64_level(frozenset(v2 - {"popcnt"})) is None
    assert x86_64_level(frozenset(v2)) == "x86-64-v2"
    assert x86_64_level(frozenset(v3 - {"fma"})) == "x86-64-v2"
    assert x86_64_level(frozenset(v3)) == "x86-64-v3"
    assert x86_64_level(frozenset(v4 | {"extra"})) == "x86-64-v4"
    assert x86_64_level(frozenset(v4 - {"avx2"})) == "x86-64-v2"


def test_lower_levels_run_too():
    assert runs_on_host(host_target())
    if host_target() != "aarch64":
        assert runs_on_host("x86-64-v2")
        assert not runs_on_host("aarch64")
    assert not runs_on_host("sm_90")
