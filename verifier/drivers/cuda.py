"""GPUs."""

from __future__ import annotations

from typing import Any

from verifier.drivers._driver import DeviceInfo
from verifier.errors import DeviceUnavailableError

__all__ = ["CudaDriver", "cuda_devices"]


def cuda_devices() -> list[DeviceInfo]:
    """The GPUs here."""
    raise DeviceUnavailableError("cuda: not yet")


def CudaDriver(index: int, **options: Any) -> Any:  # noqa: N802, ARG001, D103
    raise DeviceUnavailableError("cuda: not yet")
