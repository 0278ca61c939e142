"""Signatures found in files, and their verification in as few batches as their schemes allow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from node_adapter.client import Hash, Priority, Result, Scheme, VerifierClient
from verifier.model import Code

__all__ = ["Outcome", "Record", "Signed", "Unverifiable", "verify_signed"]


@dataclass(frozen=True, slots=True)
class Signed:
    """One signature: where it stands, and the columns' values. With `recover` the key is found, not given."""

    where: str
    scheme: Scheme
    input: bytes
    signature: bytes
    key: bytes = b""
    recover: bool = False


@dataclass(frozen=True, slots=True)
class Unverifiable:
    """Something that would have to be verified and cannot be, and why."""

    where: str
    why: str


@dataclass(frozen=True, slots=True)
class Record:
    """A block of a file: its name, how many transactions it has, and the signatures in it."""

    name: str
    transactions: int
    signed: tuple[Signed, ...]
    unverifiable: tuple[Unverifiable, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of signatures: a code each, an address (20 bytes) where a key was recovered, and who answered."""

    codes: npt.NDArray[np.uint8]
    addresses: dict[int, bytes] = field(default_factory=dict)
    served_by: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()

    @property
    def valid(self) -> npt.NDArray[np.bool_]:
        """Signatures that are valid."""
        return np.asarray(self.codes == Code.VALID)


def verify_signed(client: VerifierClient, signed: Sequence[Signed], *, timeout_s: float = 120.0) -> Outcome:
    """Verifies signatures of any schemes through the daemon, one batch a scheme. Undecided ones stay code 0."""
    codes = np.zeros(len(signed), np.uint8)
    addresses: dict[int, bytes] = {}
    groups: dict[tuple[Scheme, bool], list[int]] = {}
    for place, item in enumerate(signed):
        groups.setdefault((item.scheme, item.recover), []).append(place)
    results: list[Result] = []
    for (scheme, recover), places in groups.items():
        inputs = [signed[place].input for place in places]
        signatures = [signed[place].signature for place in places]
        if recover:
            found = client.recover(
                scheme,
                inputs,
                signatures,
                address_hash=Hash.KECCAK256,
                timeout_s=timeout_s,
                priority=Priority.BULK,
                allow_undecided=True,
            )
            good = np.flatnonzero(found.valid)
            addresses.update({places[i]: found.addresses[i].tobytes() for i in good})
            result: Result = found
        else:
            keys = [signed[place].key for place in places]
            result = client.verify(
                scheme, inputs, signatures, keys, timeout_s=timeout_s, priority=Priority.BULK, allow_undecided=True
            )
        codes[places] = result.codes
        results.append(result)
    return Outcome(
        codes,
        addresses,
        tuple(sorted({label for result in results for label in result.served_by})),
        tuple(sorted({device for result in results for device in result.devices})),
    )
