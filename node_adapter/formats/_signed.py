"""Signatures found in files, and their verification in as few batches as their schemes allow."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from node_adapter.client import Hash, KeyEncoding, Priority, Result, Scheme, VerifierClient
from node_adapter.errors import UndecidedError
from verifier.model import Code

__all__ = ["Outcome", "Record", "Signed", "Unsigned", "Unverifiable", "Verdict", "settle", "verify_signed"]


@dataclass(frozen=True, slots=True)
class Signed:
    """One signature: where it stands, and the columns' values. With `recover` the key is found, not given.

    `signer` is the address that a recovered key must have; None takes any.
    `choice` (check, signature, key) marks one of several keys that may have made a signature: the signatures of a
    check must be by different keys, in the keys' order (Bitcoin's CHECKMULTISIG).
    """

    where: str
    scheme: Scheme
    input: bytes
    signature: bytes
    key: bytes = b""
    recover: bool = False
    choice: tuple[str, int, int] | None = None
    signer: bytes | None = None


@dataclass(frozen=True, slots=True)
class Unverifiable:
    """Something that would have to be verified and cannot be, and why."""

    where: str
    why: str


@dataclass(frozen=True, slots=True)
class Unsigned:
    """Something that the chain's rules let pass without a signature, and why: there is nothing to verify."""

    where: str
    why: str


@dataclass(frozen=True, slots=True)
class Record:
    """A block or transaction of a file: its name, how many transactions it has, and the signatures in it.

    `stop` is about where it ends in the file, 0 where that is not known: how much has been read by now.
    """

    name: str
    transactions: int
    signed: tuple[Signed, ...]
    unverifiable: tuple[Unverifiable, ...] = ()
    unsigned: tuple[Unsigned, ...] = ()
    stop: int = field(default=0, compare=False)

    @classmethod
    def of(cls, name: str, transactions: int, found: Iterable[Signed | Unverifiable | Unsigned]) -> Record:
        """The record of what was found, each in its order."""
        found = list(found)
        return cls(
            name,
            transactions,
            tuple(item for item in found if isinstance(item, Signed)),
            tuple(item for item in found if isinstance(item, Unverifiable)),
            tuple(item for item in found if isinstance(item, Unsigned)),
        )


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of signatures: a code each, an address (20 bytes) where a key was recovered, and who answered.

    `failures` says why signatures are undecided that the daemon gave no answer about.
    """

    codes: npt.NDArray[np.uint8]
    addresses: dict[int, bytes] = field(default_factory=dict)
    served_by: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    failures: tuple[UndecidedError, ...] = ()

    def raise_unanswered(self) -> None:
        """Raises the first failure where no signature was decided: then nothing is known of any."""
        if self.failures and not self.codes.any():
            raise self.failures[0]

    @property
    def valid(self) -> npt.NDArray[np.bool_]:
        """Signatures that are valid."""
        return np.asarray(self.codes == Code.VALID)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The code of one signature, and the address that it recovered, if any."""

    where: str
    code: Code
    address: bytes | None = None


def settle(signed: Sequence[Signed], outcome: Outcome) -> list[Verdict]:
    """One verdict a signature, in order: of a signature with several keys, that of the first key that fits.

    Where none fits it is undecided if a key that could fit is undecided, else the code of the last.
    """
    verdicts = []
    used: dict[str, tuple[int, int]] = {}  # check: the last key that made a signature, at least and at most
    place = 0
    while place < len(signed):
        item = signed[place]
        if item.choice is None:
            code, address = Code(int(outcome.codes[place])), outcome.addresses.get(place)
            if item.signer is not None and code is Code.VALID and address != item.signer:
                code = Code.INVALID
            verdicts.append(Verdict(item.where, code, address))
            place += 1
            continue
        check, signature, _ = item.choice
        codes = {}
        while place < len(signed) and (choice := signed[place].choice) and choice[:2] == (check, signature):
            codes[choice[2]] = Code(int(outcome.codes[place]))
            place += 1
        code, used[check] = _choose(codes, *used.get(check, (-1, -1)))
        verdicts.append(Verdict(item.where, code))
    return verdicts


def _choose(codes: dict[int, Code], least: int, most: int) -> tuple[Code, tuple[int, int]]:
    """The code of a signature from those of its keys, of which only keys after the last one used may have made it;
    and the key used then. Where keys are undecided that is one between a least and a most."""
    possible = [key for key, code in codes.items() if key > least and code in (Code.VALID, Code.UNDECIDED)]
    certain = [key for key, code in codes.items() if key > most and code is Code.VALID]
    if certain:
        return Code.VALID, (min(possible), min(certain))
    if possible:
        return Code.UNDECIDED, (least, max(most, *possible))
    return next((code for key, code in reversed(codes.items()) if key > least), Code.INVALID), (least, most)


def verify_signed(client: VerifierClient, signed: Sequence[Signed]) -> Outcome:
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
                priority=Priority.BULK,
                allow_undecided=True,
            )
            good = np.flatnonzero(found.valid)
            addresses.update({places[i]: found.addresses[i].tobytes() for i in good})
            result: Result = found
        else:
            shown = scheme.key_encoding is KeyEncoding.IN_SIGNATURE
            keys = None if shown else [signed[place].key for place in places]
            result = client.verify(scheme, inputs, signatures, keys, priority=Priority.BULK, allow_undecided=True)
        codes[places] = result.codes
        results.append(result)
    return Outcome(
        codes,
        addresses,
        tuple(sorted({label for result in results for label in result.served_by})),
        tuple(sorted({device for result in results for device in result.devices})),
        tuple(failure for result in results for failure in result.failures),
    )
