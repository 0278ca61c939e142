"""The CUDA driver API: how it is found, and what its errors mean."""

from __future__ import annotations

import functools
import re
from typing import Any

from verifier.drivers._driver import DeviceInfo
from verifier.errors import BackendError, DeviceUnavailableError

__all__ = ["STICKY", "check", "cuda_devices", "driver_api", "error_of", "runs_on"]

# After these the context gives the same error to every call, or cannot be trusted: only a new process helps.
STICKY = frozenset(
    {
        "CUDA_ERROR_ASSERT",  # a kernel's assertion failed
        "CUDA_ERROR_CONTAINED",  # a hardware error that the GPU has contained
        "CUDA_ERROR_CONTEXT_IS_DESTROYED",  # by someone else in the process
        "CUDA_ERROR_DEINITIALIZED",  # the driver is shutting down
        "CUDA_ERROR_ECC_UNCORRECTABLE",  # memory has lost data
        "CUDA_ERROR_EXTERNAL_DEVICE",  # an asynchronous error outside CUDA's control
        "CUDA_ERROR_HARDWARE_STACK_ERROR",  # the call stack is corrupt or overflowed
        "CUDA_ERROR_ILLEGAL_ADDRESS",  # a kernel used memory that is not its own
        "CUDA_ERROR_ILLEGAL_INSTRUCTION",
        "CUDA_ERROR_INVALID_ADDRESS_SPACE",
        "CUDA_ERROR_INVALID_PC",  # a kernel jumped to nowhere
        "CUDA_ERROR_LAUNCH_FAILED",  # any other exception in a kernel
        "CUDA_ERROR_LAUNCH_TIMEOUT",  # a kernel ran too long for a device with a display
        "CUDA_ERROR_MISALIGNED_ADDRESS",
        "CUDA_ERROR_MPS_CLIENT_TERMINATED",  # the MPS server has ended this client
        "CUDA_ERROR_NVLINK_UNCORRECTABLE",
        "CUDA_ERROR_TENSOR_MEMORY_LEAK",
        "CUDA_ERROR_UNKNOWN",  # nothing is known, so nothing is trusted
    }
)

_TARGET = re.compile(r"sm_(\d+)(\d)([af]?)")
_PTX_TARGET = re.compile(r"compute_(\d+)(\d)")
_MISSING = "there is no NVIDIA driver: install it, or start the container with its GPUs"


@functools.cache
def driver_api() -> Any:
    """cuda.bindings.driver, initialised. Raises DeviceUnavailableError that says what is missing."""
    try:
        from cuda.bindings import driver
    except ImportError as error:
        raise DeviceUnavailableError(
            f"cuda: the CUDA bindings are missing: `pip install cuda-python` ({error})"
        ) from None
    try:
        (status,) = driver.cuInit(0)
    except RuntimeError:  # cuda.pathfinder found no library
        raise DeviceUnavailableError(f"cuda: {_MISSING}") from None
    if int(status) != 0:
        raise DeviceUnavailableError(f"cuda: the driver does not start: {_describe(status)}")
    return driver


def check(what: str, result: tuple[Any, ...]) -> Any:
    """What a call of the API gave: nothing, a value, or several. Raises BackendError, sticky where it must be."""
    if int(result[0]) != 0:
        raise error_of(what, result[0])
    return result[1] if len(result) == 2 else result[1:]


def error_of(what: str, error: Any) -> BackendError:
    """The error of a call that failed."""
    if error.name == "CUDA_ERROR_OUT_OF_MEMORY":
        return BackendError(f"{what}: out of memory")
    return BackendError(f"{what}: {_describe(error)}", sticky=error.name in STICKY)


def cuda_devices() -> list[DeviceInfo]:
    """The GPUs of this machine, in CUDA's order. Raises DeviceUnavailableError where there is none."""
    api = driver_api()
    count = check("count devices", api.cuDeviceGetCount())
    if count == 0:
        raise DeviceUnavailableError("cuda: the driver is here, but no GPU is visible (CUDA_VISIBLE_DEVICES?)")
    return [device_info(index) for index in range(count)]


def device_info(index: int) -> DeviceInfo:
    """What GPU `index` is."""
    api = driver_api()
    device = check(f"cuda:{index}", api.cuDeviceGet(index))
    attributes = api.CUdevice_attribute

    def attribute(name: str) -> int:
        key = getattr(attributes, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(check(name.lower(), api.cuDeviceGetAttribute(key, device)))

    name = check("device name", api.cuDeviceGetName(256, device))
    version = check("driver version", api.cuDriverGetVersion())
    return DeviceInfo(
        id=f"cuda:{index}",
        kind="cuda",
        name=name.split(b"\0")[0].decode(errors="replace"),
        target=f"sm_{attribute('COMPUTE_CAPABILITY_MAJOR')}{attribute('COMPUTE_CAPABILITY_MINOR')}",
        units=attribute("MULTIPROCESSOR_COUNT"),
        memory_bytes=int(check("device memory", api.cuDeviceTotalMem(device))),
        driver_version=f"CUDA {version // 1000}.{version % 1000 // 10}",
        unified=False,
        concurrent_managed=bool(attribute("CONCURRENT_MANAGED_ACCESS")),
    )


def runs_on(target: str, device: str) -> bool:
    """Whether a cubin for `target` runs on a `device` such as sm_90: equal major versions, and a minor not newer.

    Targets with a suffix are for one architecture (a) or its family (f). PTX (compute_80) runs on every device that
    is not older: the driver compiles it.
    """
    if ptx := _PTX_TARGET.fullmatch(target):
        here = _TARGET.fullmatch(device)
        return here is not None and (int(ptx[1]), int(ptx[2])) <= (int(here[1]), int(here[2]))
    built, here = _TARGET.fullmatch(target), _TARGET.fullmatch(device)
    if built is None or here is None or built[1] != here[1]:
        return False
    return built[2] == here[2] if built[3] == "a" else int(built[2]) <= int(here[2])


def _describe(error: Any) -> str:
    from cuda.bindings import driver

    try:
        failed, text = driver.cuGetErrorString(error)
    except RuntimeError:  # no library, as on a machine that only builds
        return str(error.name)
    return f"{error.name}: {text.decode(errors='replace')}" if int(failed) == 0 else str(error.name)
