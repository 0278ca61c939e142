"""Which devices this machine has, and how one is opened by its id."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from verifier.drivers._driver import DeviceInfo, Driver
from verifier.errors import BuildError, DeviceUnavailableError

__all__ = ["Device", "list_devices", "open_driver", "probe_devices"]


@dataclass(frozen=True, slots=True)
class Device:
    """A device that was looked for: what it is, or why it cannot be used."""

    id: str  # cuda:0, cpu; "cuda" where no GPU was found
    info: DeviceInfo | None
    problem: str = ""  # why it, or the compiler for it, cannot be used, and what to install
    compiler: str = ""  # what builds plugins for it; empty: only images that are built already can run


def probe_devices() -> list[Device]:
    """Every device that was looked for, usable or not: GPUs, the CPU, then fakes where they are enabled."""
    from verifier.drivers.host import host_device

    devices: list[Device] = []
    try:
        from verifier.drivers.cuda import cuda_devices

        devices += [_with_compiler(info) for info in cuda_devices()]
    except DeviceUnavailableError as error:
        devices.append(Device("cuda", None, str(error), _nvrtc()))
    try:
        devices.append(_with_compiler(host_device()))
    except DeviceUnavailableError as error:
        devices.append(Device("cpu", None, str(error)))
    if os.environ.get("VERIFIER_FAKE_DEVICES"):
        from verifier.drivers.fake import fake_devices

        devices += [_with_compiler(info) for info in fake_devices()]
    return devices


def list_devices() -> list[DeviceInfo]:
    """The devices that open_driver opens here."""
    return [device.info for device in probe_devices() if device.info is not None]


def open_driver(device_id: str, **options: Any) -> Driver:
    """Opens `cpu`, `cuda:N` or, where VERIFIER_FAKE_DEVICES enables fakes, `fake:N`.

    Options of `cpu`: threads (default: all CPUs that this process may run on). Of `cuda:N`: spin (wait for the
    device without giving up the CPU: lower latency for a busy core). Of `fake:N`: faults, memory_bytes. Raises
    DeviceUnavailableError that says what is missing and what to install.
    """
    kind, colon, number = device_id.partition(":")
    if device_id == "cpu":
        from verifier.drivers.host import HostDriver

        return HostDriver(**options)
    if colon and number.isdecimal():
        if kind == "cuda":
            from verifier.drivers.cuda import CudaDriver

            return CudaDriver(int(number), **options)
        if kind == "fake":
            from verifier.drivers.fake import open_fake

            return open_fake(device_id, **options)
    raise DeviceUnavailableError(f"{device_id!r} is no device: cpu, or cuda:0 and so on")


def _nvrtc() -> str:
    """NVRTC's version; it builds for GPUs where there is none."""
    from verifier.drivers._nvrtc import nvrtc_version

    try:
        return nvrtc_version()
    except DeviceUnavailableError:
        return ""


def _with_compiler(info: DeviceInfo) -> Device:
    from verifier.drivers.build import compiler_id

    try:
        return Device(info.id, info, compiler=compiler_id(info.target))
    except (BuildError, DeviceUnavailableError) as error:
        return Device(info.id, info, f"plugins cannot be built: {error}")
