"""The words that every layer shares: codes, columns, batches and their results."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from verifier.errors import RequestError
from verifier.secret import Secret

if TYPE_CHECKING:
    from verifier.regions import Region

__all__ = [
    "Batch",
    "BatchKey",
    "BatchResult",
    "Bytes",
    "Code",
    "Column",
    "Offsets",
    "StageTimes",
    "Timings",
    "bitmap_bytes",
    "bits_of",
]

Bytes = npt.NDArray[np.uint8]
Offsets = npt.NDArray[np.uint32]


class Code(IntEnum):
    """What became of an item; one byte each. Mirrors `Code` in plugins/common/abi.cuh.

    1 is valid, 2 to 15 invalid (4 on: for a stated reason), 16 on malformed. 0 is not decided.
    """

    UNDECIDED = 0
    VALID = 1
    INVALID = 2
    RETRY = 3
    OUT_OF_RANGE = 4
    HIGH_S = 5
    SIGNATURE_LENGTH = 16
    SIGNATURE_DER = 17
    RECOVERY_ID = 18
    KEY_LENGTH = 24
    KEY_PREFIX = 25
    KEY_RANGE = 26
    KEY_NOT_ON_CURVE = 27
    KEY_SPKI = 28
    KEY_INDEX = 29
    INPUT_LENGTH = 32


def bitmap_bytes(items: int) -> int:
    """Bytes of a bitmap of `items` bits."""
    return (items + 7) // 8


def bits_of(bitmap: Bytes, items: int) -> npt.NDArray[np.bool_]:
    """A bitmap's bits, one an item."""
    return np.unpackbits(bitmap, count=items, bitorder="little").view(np.bool_)


@dataclass(frozen=True, slots=True)
class Column:
    """All items' values of one field.

    Fixed width: `stride` bytes an item and no offsets. Variable width: `offsets`, items + 1 numbers that start
    at 0, never fall, and end at len(data); `stride` is then 0. An absent column has stride 0 and no data. Where
    `region` is set `data` lies in it, and workers read it there; offsets never lie in one.
    """

    data: Bytes
    stride: int = 0
    offsets: Offsets | None = None
    region: Region | None = None

    @classmethod
    def fixed(
        cls, name: str, data: bytes | memoryview | Bytes, stride: int, items: int, region: Region | None = None
    ) -> Column:
        """A column of `items` values of `stride` bytes. Raises RequestError naming the field and the length."""
        array = np.frombuffer(data, np.uint8)
        if array.size != items * stride:
            raise RequestError(
                f"{name}.data",
                f"{array.size} bytes, but {items} items of {stride} bytes are {items * stride}",
            )
        return cls(array, stride, None, region)

    @classmethod
    def variable(
        cls,
        name: str,
        data: bytes | memoryview | Bytes,
        offsets: bytes | memoryview | Offsets,
        items: int,
        region: Region | None = None,
    ) -> Column:
        """A column of `items` values of any length. `offsets` is u32 little-endian, items + 1 of them."""
        array = np.frombuffer(data, np.uint8)
        raw = np.frombuffer(offsets, np.uint8)
        if raw.size != 4 * (items + 1):
            raise RequestError(
                f"{name}.offsets", f"{raw.size} bytes, but {items} items need {items + 1} offsets of 4 bytes"
            )
        numbers = raw.view("<u4")
        if numbers[0] != 0:
            raise RequestError(f"{name}.offsets", f"the first offset is {numbers[0]}, not 0")
        if numbers[-1] != array.size:
            raise RequestError(
                f"{name}.offsets", f"the last offset is {numbers[-1]}, but data has {array.size} bytes"
            )
        falls = numbers[1:] < numbers[:-1]
        if falls.any():
            raise RequestError(f"{name}.offsets", f"offsets run backwards at item {int(falls.argmax())}")
        return cls(array, 0, numbers, region)

    @classmethod
    def absent(cls) -> Column:
        """A column that the scheme does not use."""
        return cls(np.empty(0, np.uint8))

    @property
    def nbytes(self) -> int:
        """Bytes of data and offsets."""
        return self.data.size + (0 if self.offsets is None else 4 * self.offsets.size)


@dataclass(frozen=True, slots=True)
class BatchKey:
    """What batches must share to be launched together.

    `parameters` are numbers in the order of the operation's manifest; `constant` are bytes that all items share
    (SM2: the user id; ciphers: the key, a Secret). What workers copy of a Secret and of the inputs whose numbers are
    in `secret_inputs` they overwrite after use.
    """

    plugin: str
    operation: str
    parameters: tuple[int, ...] = ()
    constant: bytes | Secret = b""
    version: str | None = None  # pinned by the caller; None: the active one
    secret_inputs: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Batch:
    """N items of one operation and one scheme, as columns in the order of the operation's manifest."""

    key: BatchKey
    items: int
    inputs: tuple[Column, ...]
    nbytes: int = field(init=False, repr=False, compare=False)  # of all columns; asked for a dozen times a request

    def __post_init__(self) -> None:
        object.__setattr__(self, "nbytes", sum([column.nbytes for column in self.inputs]))


class StageTimes(NamedTuple):
    """Nanoseconds of a launch's copies and kernels, each summed over its chunks, which overlap."""

    copy_in_ns: int
    kernel_ns: int
    copy_out_ns: int


@dataclass(slots=True)
class Timings:
    """Nanoseconds; `device` is copies and kernels, and `stages` says how it divides where that was measured."""

    queue_ns: int = 0
    device_ns: int = 0
    total_ns: int = 0
    stages: StageTimes | None = None


@dataclass(slots=True)
class BatchResult:
    """What came of a batch. A bit of `valid` counts only where `decided` is set.

    `valid` and `decided` are bitmaps (uint8, bit i of byte i // 8 is item i, least significant first), `codes` one
    Code an item, `outputs` uint8 arrays of shape (items, width).
    """

    items: int
    valid: Bytes
    decided: Bytes
    codes: Bytes
    outputs: tuple[Bytes, ...] = ()
    served_by: str = ""
    device: str = ""
    timings: Timings = field(default_factory=Timings)

    @classmethod
    def undetermined(cls, items: int) -> BatchResult:
        """The result of a batch that no device finished: nothing is decided."""
        zeros = np.zeros(bitmap_bytes(items), np.uint8)
        return cls(items, zeros, zeros.copy(), np.zeros(items, np.uint8))
