"""What every driver refuses."""

from __future__ import annotations

import ctypes
import hashlib
from collections import Counter
from collections.abc import Iterable
from typing import Any, Protocol

import numpy as np

from verifier.drivers._abi import ABI_VERSION, BatchStruct, PluginInfo
from verifier.drivers._driver import Image
from verifier.errors import BackendError, PluginError
from verifier.model import Bytes

__all__ = [
    "Child",
    "address_of",
    "check_abi",
    "check_contiguous",
    "check_digest",
    "check_no_children",
    "check_size",
    "copy_of",
]


def check_abi(info: PluginInfo) -> None:
    """Raises PluginError where an image was built against another ABI."""
    size = ctypes.sizeof(BatchStruct)
    if info.abi != ABI_VERSION or info.batch_bytes != size:
        raise PluginError(
            f"the image has ABI {info.abi} with a batch of {info.batch_bytes} bytes, "
            f"this program has ABI {ABI_VERSION} with {size}"
        )


def check_digest(image: Image) -> None:
    """Raises PluginError where an image's bytes are not those that its digest was taken over."""
    if hashlib.sha256(image.data).hexdigest() != image.digest:
        raise PluginError("the image's bytes do not agree with its digest")


class Child(Protocol):
    """Something that depends on a device and must be closed before it."""

    noun: str


def check_no_children(children: Iterable[Child]) -> None:
    """Raises BackendError where something that depends on a device is still open."""
    counts = Counter(child.noun for child in children)
    if counts:
        listed = ", ".join(f"{count} {noun}{'s' * (count > 1)}" for noun, count in sorted(counts.items()))
        raise BackendError(f"device: still open: {listed}")


def copy_of(error: BackendError) -> BackendError:
    """The same error, to be raised again: a raised exception keeps the traceback of whoever raised it."""
    return BackendError(str(error), sticky=error.sticky)


def check_contiguous(name: str, array: Bytes) -> None:
    """Raises ValueError where an array is not plain bytes in a row."""
    if array.dtype != np.uint8 or not array.flags.c_contiguous:
        raise ValueError(f"{name}: {array.dtype} array, not contiguous uint8")


def address_of(array: Bytes) -> int:
    """Where a contiguous array begins: `array.ctypes.data`, in a quarter of its time where the array is writable."""
    if array.flags.writeable and array.size:
        memory: Any = array  # a buffer, which its type says of newer Pythons only
        return ctypes.addressof(ctypes.c_uint8.from_buffer(memory))
    return int(array.ctypes.data)


def check_size(name: str, nbytes: int) -> None:
    """Raises ValueError where a size is negative."""
    if nbytes < 0:
        raise ValueError(f"{name}: {nbytes} is negative")
