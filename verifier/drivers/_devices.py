"""Which devices this machine has, and how one is opened by its id."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from verifier.drivers._driver import DeviceInfo, Driver
from verifier.errors import DeviceUnavailableError

__all__ = ["Device", "list_devices", "open_driver", "probe_devices"]


@dataclass(frozen=True, slots=True)
class Device:
    """A kind of device that was looked for: what it is, or why it cannot be used."""

    id: str  # cuda:0, cpu; "cuda" where none was found
    info: DeviceInfo | None
    problem: str = ""  # why it cannot be used, and what to install
    compiler: str = ""  # what builds plugins for it


def probe_devices() -> list[Device]:
    """Every device that was looked for, usable or not. GPUs first, then the CPU, then fakes where enabled."""
    raise NotImplementedError


def list_devices() -> list[DeviceInfo]:
    """The devices that open_driver opens here."""
    return [device.info for device in probe_devices() if device.info is not None]


def open_driver(device_id: str, **options: Any) -> Driver:
    """Opens `cpu`, `cuda:N` or, where fakes are enabled, `fake:N`.

    Options of the CPU: `threads` (default: all that this process may use). Raises DeviceUnavailableError that says
    what is missing and what to install.
    """
    raise DeviceUnavailableError(f"{device_id}: no such device; {options}")
