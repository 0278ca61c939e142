"""The CUDA driver's calls, against a stub of libcuda that runs stages on the CPU (cuda_stub/libcuda.c)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from verifier.drivers.build import build_image, compiler_id, host_target
from verifier.errors import DeviceUnavailableError

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


@pytest.fixture(scope="module")
def stub(tmp_path_factory) -> Path:
    """The folder of a libcuda.so.1."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler for the stub")
    try:
        compiler_id("sm_90")
    except DeviceUnavailableError as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("stub")
    source, library = HERE / "cuda_stub" / "libcuda.c", folder / "libcuda.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
    return folder


def environment(stub: Path, **more: str) -> dict[str, str]:
    paths = os.pathsep.join((str(ROOT), str(HERE / "cuda_stub")))
    return os.environ | {"LD_LIBRARY_PATH": str(stub), "PYTHONPATH": paths} | more


def run(stub: Path, folder: Path, program: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Runs a program over the stub, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env=environment(stub, **more),
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done


def test_the_suite_of_every_driver_passes(stub, tmp_path):
    suite = HERE / "test_every_driver.py"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "stub_images",
        "-p",
        "no:cacheprovider",
        "-k",
        "cuda",
        suite,
    ]
    done = subprocess.run(
        [*command, f"--basetemp={tmp_path / 'inner'}"],
        env=environment(stub),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
    assert " skipped" not in done.stdout, done.stdout


LOST = """
    from pathlib import Path
    import numpy as np
    from verifier.drivers import BatchStruct, Image, open_driver
    from verifier.errors import BackendError
    driver = open_driver("cuda:0")
    image = Image("sm_90", Path("image").read_bytes(), {digest!r})
    module, stream, other, buffer = driver.load(image), driver.stream(), driver.stream(), driver.allocate(64)
    pinned = driver.allocate_pinned(64)
    event = stream.record()
    calls = {{
        "first": {first},
        "allocate": lambda: driver.allocate(8),
        "stream": driver.stream,
        "launch": lambda: other.launch(module.function("publish"), BatchStruct()),
        "synchronize": driver.synchronize,
    }}
    for name, call in calls.items():
        try:
            call()
        except BackendError as error:
            print(name, "sticky" if error.sticky else "not sticky", error)
        else:
            print(name, "well")
    for child in (event, pinned, buffer, other, stream, module, driver):
        child.close()
    print("closed")
"""


def test_an_allocation_that_fails_half_way_leaves_nothing(stub, tmp_path):
    program = """
        from verifier.drivers import open_driver
        from verifier.errors import BackendError
        driver = open_driver("cuda:0")
        before = driver.memory_free_bytes()
        for call in (driver.allocate_managed, driver.allocate_pinned):
            try:
                call(1 << 20)
            except BackendError as error:
                print("sticky" if error.sticky else "not sticky")
        print(driver.memory_free_bytes() == before)
        driver.close()
    """
    fail = "cuMemAdvise_v2=801,cuMemHostGetDevicePointer_v2=801"
    done = run(stub, tmp_path, program, STUB_FAIL=fail, STUB_ONCE="1")
    assert done.stdout.split("\n")[:3] == ["not sticky", "not sticky", "True"]


@pytest.mark.parametrize(
    ("call", "error", "first"),
    [
        ("cuEventSynchronize", 700, "event.synchronize"),
        ("cuStreamSynchronize", 719, "stream.synchronize"),
        ("cuCtxSynchronize", 214, "driver.synchronize"),
        ("cuMemcpyHtoDAsync_v2", 716, "lambda: stream.copy_in(buffer.address, np.zeros(64, np.uint8))"),
        ("cuLaunchKernel", 714, 'lambda: stream.launch(module.function("publish"), BatchStruct())'),
    ],
)
def test_after_a_sticky_error_all_calls_fail_and_closing_does_not(stub, tmp_path, parity_files, call, error, first):
    image = build_image(parity_files, "parity.cu", host_target(), {})
    (tmp_path / "image").write_bytes(image.data)
    done = run(stub, tmp_path, LOST.format(digest=image.digest, first=first), STUB_FAIL=f"{call}={error}")
    *lines, last = done.stdout.splitlines()
    assert [line.split()[:2] for line in lines] == [
        [name, "sticky"] for name in ("first", "allocate", "stream", "launch", "synchronize")
    ]
    assert last == "closed"


def test_an_event_that_is_not_reached_says_so_and_one_behind_an_error_is_reached(stub, tmp_path):
    program = """
        from verifier.drivers import open_driver
        driver = open_driver("cuda:0")
        stream = driver.stream()
        event = stream.record()
        print(event.reached())
        for child in (event, stream, driver):
            child.close()
    """
    success, not_ready, illegal_address = 0, 600, 700
    for code, told in ((success, "True"), (not_ready, "False"), (illegal_address, "True")):
        done = run(stub, tmp_path, program, STUB_FAIL=f"cuEventQuery={code}", STUB_ONCE="1")
        assert done.stdout.split("\n")[0] == told


def test_events_are_used_again_and_destroyed_with_the_device(stub, tmp_path):
    program = """
        from verifier.drivers import open_driver
        driver = open_driver("cuda:0")
        stream, other = driver.stream(), driver.stream()
        first, second = stream.record(), stream.record()
        handles = {int(first.handle), int(second.handle)}
        first.close()
        second.close()
        first.close()  # idempotent: no two may share one
        events = [other.record(), other.record(), other.record()]
        new = {int(event.handle) for event in events}
        print(len(new), handles < new, events[1].elapsed_ns(events[0]) >= 0)
        for child in (*events, other, stream, driver):
            child.close()
        print(len(driver.events))
    """
    done = run(stub, tmp_path, program)
    assert done.stdout.split("\n")[:2] == ["3 True True", "0"]


def test_a_device_that_does_not_open_says_why(stub, tmp_path):
    program = """
        from verifier.drivers import open_driver
        from verifier.errors import DeviceUnavailableError
        try:
            open_driver("cuda:0")
        except DeviceUnavailableError as error:
            print(error)
    """
    for call, code, text in (
        ("cuInit", 100, "cuda: the driver does not start"),
        ("cuDevicePrimaryCtxRetain", 2, "memory"),
    ):
        assert text in run(stub, tmp_path, program, STUB_FAIL=f"{call}={code}").stdout


FEW = """
#include "abi.cuh"

// The item's code tells which kernel had it.
DEVICE void many(const Batch& batch, const Lane&, u32 item) { batch.codes[item] = VALID; }
DEVICE void few(const Batch& batch, const Lane&, u32 item) { batch.codes[item] = INVALID; }

PLUGIN_INFO(64, 0, 64)
ITEM_STAGE(mark, many, 128, 1)
EXPORT const u32 mark_few_items = 8;
#if COMPLETE
ITEM_STAGE(mark_few, few, 128, 1)
#endif
"""


def few_image(folder: Path, parity_files: dict[str, bytes], complete: int) -> str:
    image = build_image(parity_files | {"few.cu": FEW.encode()}, "few.cu", host_target(), {"COMPLETE": complete})
    (folder / "image").write_bytes(image.data)
    return image.digest


def test_launches_over_few_items_run_the_kernel_for_few(stub, tmp_path, parity_files):
    program = """
        from pathlib import Path
        from verifier.drivers import BatchStruct, Image, open_driver
        driver = open_driver("cuda:0")
        module = driver.load(Image("sm_90", Path("image").read_bytes(), "{digest}"))
        few = 8 * driver.info.units  # of all multiprocessors
        stream, codes, mark = driver.stream(), driver.allocate_managed(2 * few), module.function("mark")
        for items in (1, few, few + 1, 2 * few):
            codes.array[:] = 0
            stream.launch(mark, BatchStruct(items=items, codes=codes.address))
            stream.synchronize()
            print(items / few, *sorted(set(codes.array[:items].tolist())), codes.array[items:].any())
        stream.launch(mark, BatchStruct())
        assert mark.for_items(0) is mark
        for child in (codes, stream, module, driver):
            child.close()
    """
    digest = few_image(tmp_path, parity_files, 1)
    done = run(stub, tmp_path, program.format(digest=digest))
    sizes, codes = zip(*(line.split(maxsplit=1) for line in done.stdout.splitlines()), strict=True)
    assert codes == ("2 False", "2 False", "1 False", "1 False")
    assert [float(size) for size in sizes][1::2] == [1, 2]


def test_a_kernel_for_few_that_the_image_lacks_is_named(stub, tmp_path, parity_files):
    program = """
        from pathlib import Path
        from verifier.drivers import Image, open_driver
        from verifier.errors import PluginError
        driver = open_driver("cuda:0")
        module = driver.load(Image("sm_90", Path("image").read_bytes(), "{digest}"))
        try:
            module.function("mark")
        except PluginError as error:
            print(error)
        for child in (module, driver):
            child.close()
    """
    digest = few_image(tmp_path, parity_files, 0)
    assert "mark_few" in run(stub, tmp_path, program.format(digest=digest)).stdout
