"""What came of a batch, as numpy arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeVar, cast

import numpy as np
import numpy.typing as npt

from node_adapter.errors import UndecidedError
from verifier.model import Code

__all__ = ["Digests", "Recovered", "Result", "Served", "Verdicts"]

Bools = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]

# As plain numbers: numpy takes an enum's member several times as slowly.
_VALID, _INVALID, _UNDECIDED = int(Code.VALID), int(Code.INVALID), int(Code.UNDECIDED)


class Served(NamedTuple):
    """Who answered one chunk, and in which time (nanoseconds, as the daemon measured them)."""

    items: int
    served_by: str
    device: str
    queue_ns: int
    device_ns: int
    total_ns: int


@dataclass(frozen=True, slots=True)
class Result:
    """What came of each item: `codes` holds one verifier.model.Code (uint8) an item; 0 is not decided.

    `served` has one entry a chunk, `failures` why chunks stayed without an answer.
    """

    codes: Bytes
    served: tuple[Served, ...] = ()
    failures: tuple[UndecidedError, ...] = ()

    def __len__(self) -> int:
        return self.codes.size

    @property
    def decided(self) -> Bools:
        """Items that a device decided."""
        return cast(Bools, self.codes != _UNDECIDED)

    @property
    def whole(self) -> bool:
        """Whether a device decided every item."""
        return int(np.count_nonzero(self.codes)) == self.codes.size  # UNDECIDED is 0

    @property
    def problems(self) -> tuple[npt.NDArray[np.intp], Bytes]:
        """Indices and codes of the items that are neither plainly valid nor plainly invalid."""
        index = np.flatnonzero((self.codes != _VALID) & (self.codes != _INVALID))
        return index, self.codes[index]

    @property
    def served_by(self) -> tuple[str, ...]:
        """The plugin instances that answered, as plugin@version#generation."""
        return tuple(sorted({part.served_by for part in self.served}))

    @property
    def devices(self) -> tuple[str, ...]:
        """The devices that answered."""
        return tuple(sorted({part.device for part in self.served}))

    def raise_for_undecided(self) -> None:
        """Raises the first failure, or UndecidedError, if any item has no verdict. The error holds this result."""
        if self.whole:
            return
        missing = len(self) - int(np.count_nonzero(self.codes))
        if self.failures:
            first = self.failures[0]
            error = type(first)(f"{missing} of {len(self)} items are undecided: {first}")
        else:
            error = UndecidedError(f"{missing} of {len(self)} items are undecided: the daemon could not decide them")
        error.result = self
        raise error


@dataclass(frozen=True, slots=True)
class Verdicts(Result):
    """Verdicts of signatures. An item that is not decided is neither in `valid` nor in `invalid`."""

    @property
    def valid(self) -> Bools:
        """Items whose signature is valid."""
        return cast(Bools, self.codes == _VALID)

    @property
    def invalid(self) -> Bools:
        """Items that were decided and are not valid, malformed ones included."""
        return self.codes > _VALID


@dataclass(frozen=True, slots=True)
class Recovered(Verdicts):
    """Recovered public keys (items, 64), x || y big-endian, and addresses (items, 20) or (items, 0).

    Zeros where not valid.
    """

    keys: Bytes = field(default_factory=lambda: np.empty((0, 64), np.uint8))
    addresses: Bytes = field(default_factory=lambda: np.empty((0, 0), np.uint8))


@dataclass(frozen=True, slots=True)
class Digests(Result):
    """Hashes of messages (items, 32); zeros where not decided."""

    digests: Bytes = field(default_factory=lambda: np.empty((0, 32), np.uint8))


R = TypeVar("R", bound=Result)


def expand(result: R, inverse: npt.NDArray[np.intp]) -> R:
    """The result of a batch from that of its distinct items."""
    arrays = {
        name: getattr(result, name)[inverse]
        for name in ("codes", "keys", "addresses", "digests")
        if hasattr(result, name)
    }
    return replace(result, **arrays)


def merge(result: R, chosen: npt.NDArray[np.intp], later: R) -> R:
    """A result whose `chosen` items were answered later, elsewhere."""
    arrays = {}
    for name in ("codes", "keys", "addresses", "digests"):
        if hasattr(result, name):
            arrays[name] = getattr(result, name).copy()
            arrays[name][chosen] = getattr(later, name)
    return replace(result, **arrays, served=result.served + later.served, failures=result.failures + later.failures)


def join(parts: Sequence[R]) -> R:
    """One result of several, in their order."""
    first = parts[0]
    if len(parts) == 1:
        return first
    arrays = {
        name: np.concatenate([getattr(part, name) for part in parts])
        for name in ("codes", "keys", "addresses", "digests")
        if hasattr(first, name)
    }
    return replace(
        first,
        **arrays,
        served=tuple(entry for part in parts for entry in part.served),
        failures=tuple(entry for part in parts for entry in part.failures),
    )
