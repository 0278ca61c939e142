"""Memory of a GPU, and memory of the host that it sees."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from verifier.model import Bytes

if TYPE_CHECKING:
    from verifier.drivers.cuda import CudaDriver

__all__ = ["CudaBuffer", "view"]


class CudaBuffer:
    """Memory, and the call that gives it back."""

    noun = "buffer"

    def __init__(
        self, driver: CudaDriver, address: int, nbytes: int, array: Bytes | None, free: Callable[[], tuple[Any, ...]]
    ) -> None:
        self._driver = driver
        self._array = array
        self._free: Callable[[], tuple[Any, ...]] | None = free
        self.address = address
        self.nbytes = nbytes
        driver.opened(self)

    @property
    def array(self) -> Bytes | None:
        """The host's view; None for memory of the device, and once closed."""
        return self._array

    def close(self) -> None:
        """Gives the memory back. No stream may still use it, and views of `array` are then invalid."""
        if self._free is None:
            return
        self._array = None
        free, self._free = self._free, None
        self._driver.closed(self)
        self._driver.release("free memory", free)


def view(address: int, nbytes: int) -> Bytes:
    """Memory of this process as an array."""
    return np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(address))
