"""The CUDA driver: what can be said without a GPU, and what only a GPU can show."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from cuda.bindings.driver import CUresult

from verifier.drivers import list_devices, open_driver
from verifier.drivers._cuda_api import STICKY, check, runs_on
from verifier.drivers._cuda_module import CudaFunction
from verifier.drivers.build import build_image
from verifier.errors import BackendError, DeviceUnavailableError, PluginError

ROOT = Path(__file__).parents[2]


def run_alone(program: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs a program in a process of its own."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", textwrap.dedent(program)]
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done


def test_every_sticky_error_is_one_of_cuda():
    assert {result.name for result in CUresult} >= STICKY


@pytest.mark.parametrize(
    ("name", "sticky"),
    [
        ("CUDA_ERROR_ILLEGAL_ADDRESS", True),
        ("CUDA_ERROR_LAUNCH_FAILED", True),
        ("CUDA_ERROR_HARDWARE_STACK_ERROR", True),
        ("CUDA_ERROR_ECC_UNCORRECTABLE", True),
        ("CUDA_ERROR_OUT_OF_MEMORY", False),
        ("CUDA_ERROR_INVALID_VALUE", False),
        ("CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", False),
        ("CUDA_ERROR_NOT_READY", False),
    ],
)
def test_errors_are_sorted_into_sticky_and_not(name, sticky):
    with pytest.raises(BackendError, match="launch x: ") as caught:
        check("launch x", (getattr(CUresult, name),))
    assert caught.value.sticky is sticky


def test_a_call_gives_its_values():
    assert check("x", (CUresult.CUDA_SUCCESS,)) == ()
    assert check("x", (CUresult.CUDA_SUCCESS, 1)) == 1
    assert check("x", (CUresult.CUDA_SUCCESS, 1, 2)) == (1, 2)


@pytest.mark.parametrize(
    ("built", "device", "runs"),
    [
        ("sm_90", "sm_90", True),
        ("sm_80", "sm_86", True),
        ("sm_86", "sm_80", False),
        ("sm_80", "sm_90", False),
        ("sm_100", "sm_103", True),
        ("sm_100", "sm_10", False),
        ("sm_100a", "sm_103", False),
        ("sm_100f", "sm_103", True),
        ("sm_90a", "sm_90", True),
        ("x86-64-v3", "sm_90", False),
    ],
)
def test_which_cubins_run_where(built, device, runs):
    assert runs_on(built, device) is runs


@pytest.mark.parametrize(
    ("items", "blocks"), [(0, 1), (1, 1), (32, 1), (33, 2), (4096, 128), (10_000, 264), (1_000_000, 264)]
)
def test_grids_give_every_warp_a_block_until_the_device_is_full(items, blocks):
    function = CudaFunction(None, "f", None, threads=128, blocks=264, shared=0, warp_items=32)
    assert function.grid(items) == blocks


def test_a_kernel_for_few_items_has_no_more_lanes_than_its_stage():
    """Memory is for the stage's lanes."""
    function = CudaFunction(None, "f_few", None, threads=256, blocks=264, shared=0, warp_items=8)
    function.hold_to(132 * 512 - 1)
    assert (function.blocks, function.lanes) == (263, 263 * 256)
    function.hold_to(1 << 20)
    assert function.blocks == 263
    assert function.grid(9) == 2
    with pytest.raises(PluginError, match="f_few"):
        function.hold_to(255)


def test_nothing_needs_a_driver_until_a_device_is_opened(tmp_path):
    """In a process of its own: without cuda.bindings, and with them but without a GPU that is visible."""
    program = """
        import sys
        sys.modules["cuda.bindings"] = None
        import verifier.drivers.cuda, verifier.drivers.build
        from verifier.drivers import open_driver
        from verifier.errors import DeviceUnavailableError
        try:
            open_driver("cuda:0")
        except DeviceUnavailableError as error:
            print(error)
    """
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "pip install cuda-python" in done.stdout


def test_without_a_driver_it_says_what_to_install():
    if any(device.kind == "cuda" for device in list_devices()):
        pytest.skip("there is a GPU")
    with pytest.raises(DeviceUnavailableError, match="driver"):
        open_driver("cuda:0")


@pytest.fixture
def gpu():
    try:
        driver = open_driver("cuda:0")
    except DeviceUnavailableError as error:
        pytest.skip(str(error))
    yield driver
    driver.close()


@pytest.mark.gpu
def test_there_is_no_such_gpu(gpu):
    with pytest.raises(DeviceUnavailableError, match="cuda:99"):
        open_driver("cuda:99")


@pytest.mark.gpu
def test_threads_come_from_the_launch_bounds(gpu, parity_files, image_cache):
    image = build_image(parity_files, "parity.cu", gpu.info.target, {}, cache=image_cache)
    module = gpu.load(image)
    threads = {"parity_table": 128, "parity_sum": 128, "parity_decide": 64, "publish": 256}
    for name, expected in threads.items():
        function = module.function(name)
        assert function.threads == expected
        assert function.lanes % (gpu.info.units * expected) == 0
    assert module.constant("parity_table_count") == 256
    assert module.info.scratch_lane_bytes == 8
    module.close()


@pytest.mark.gpu
def test_200_reloads_leave_device_memory_flat(gpu, parity_files, image_cache):
    image = build_image(parity_files, "parity.cu", gpu.info.target, {}, cache=image_cache)

    def reload() -> None:
        module = gpu.load(image)
        module.function("parity_sum")
        module.close()

    for _ in range(5):
        reload()
    before = gpu.memory_free_bytes()
    for _ in range(200):
        reload()
    assert gpu.memory_free_bytes() == before


FAULTS = b"""
#include "abi.cuh"
PLUGIN_INFO(0, 0, 0)
DEVICE void wild(const Batch& batch, const Lane&, u32 item) { *(volatile u8*)(u64)(16 + item) = 1; }
ITEM_STAGE(wild_pointer, wild, 32, 1)
DEVICE void trap(const Batch& batch, const Lane&, u32 item) { asm volatile("trap;"); }
ITEM_STAGE(trap_stage, trap, 32, 1)
"""


@pytest.mark.gpu
@pytest.mark.parametrize("stage", ["wild_pointer", "trap_stage"])
def test_a_fault_in_a_kernel_loses_the_device(gpu, parity_files, image_cache, tmp_path, stage):
    """In a process of its own: it does not come back."""
    image = build_image(parity_files | {"f.cu": FAULTS}, "f.cu", gpu.info.target, {}, cache=image_cache)
    (tmp_path / "image").write_bytes(image.data)
    program = f"""
        from pathlib import Path
        from verifier.drivers import BatchStruct, Image, open_driver
        from verifier.errors import BackendError
        driver = open_driver("cuda:0")
        image = Image({image.target!r}, Path("image").read_bytes(), {image.digest!r})
        module, stream, buffer = driver.load(image), driver.stream(), driver.allocate(64)
        stream.launch(module.function({stage!r}), BatchStruct(items=64))
        event = stream.record()
        for call in (event.synchronize, stream.synchronize, driver.synchronize, lambda: driver.allocate(64)):
            try:
                call()
            except BackendError as error:
                print("sticky" if error.sticky else "not sticky", error)
            else:
                print("no error")
        for child in (buffer, stream, module, driver):
            child.close()
        print("closed")
    """
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["sticky"] * 4 + ["closed"]
