"""The contract's scheme against what a plugin's manifest accepts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from verifier.errors import RequestError
from verifier.manifest import Operation
from verifier.registry import parameter_number
from verifier.scheduling import Priority
from verifier.schemes import DEFAULT_SM2_USER_ID, MAX_SM2_USER_ID_BYTES
from verifier.v1 import verifier_pb2 as pb

__all__ = ["Scheme", "enum_name", "one_of", "read_priority", "read_scheme", "required"]

_ENUMS: dict[str, Any] = {
    "algorithm": pb.Algorithm,
    "input_kind": pb.InputKind,
    "signature_encoding": pb.SignatureEncoding,
    "key_encoding": pb.KeyEncoding,
    "low_s": pb.LowS,
    "hash": pb.Hash,
    "address_hash": pb.Hash,
    "priority": pb.Priority,
}
_FIELDS = ("input_kind", "signature_encoding", "key_encoding", "low_s", "hash")
_HASH_OF = {"SM2": "SM3"}  # algorithms that define their hash
_USER_ID = "sm2_user_id"


def _name(enum: Any, number: int) -> str | None:
    values = enum.DESCRIPTOR.values_by_number
    if number not in values:
        return None
    prefix = values[0].name.removesuffix("UNSPECIFIED")
    name: str = values[number].name.removeprefix(prefix)
    return "" if number == 0 else name


def enum_name(parameter: str, number: int) -> str | None:
    """The name of an enum's value without its prefix, "" for UNSPECIFIED, None where the contract has none."""
    return _name(_ENUMS[parameter], number)


def required(field: str, parameter: str, number: int, accepted: tuple[str | int, ...]) -> str:
    """As `one_of`, for a parameter of manifests."""
    return one_of(field, _ENUMS[parameter], number, accepted)


def one_of(field: str, enum: Any, number: int, accepted: tuple[str | int, ...]) -> str:
    """The name, without its prefix, of a value that must be set and accepted. Raises RequestError naming what is
    accepted."""
    name = _name(enum, number)
    if name and name in accepted:
        return name
    given = (
        f"{number} is not a value of the contract"
        if name is None
        else f"{name} is not accepted"
        if name
        else "not set"
    )
    raise RequestError(field, f"{given}; accepted are {', '.join(map(str, accepted))}")


def read_priority(number: int) -> Priority:
    """A request's priority; POOL where it names none. Raises RequestError."""
    if enum_name("priority", number) is None:
        raise RequestError("priority", f"{number} is not a value of the contract; they are 0 to 4")
    return Priority(number or Priority.POOL)


@dataclass(frozen=True, slots=True)
class Scheme:
    """A scheme as a plugin takes it: `names` by parameter for column widths, and what goes into the batch's key."""

    names: Mapping[str, str | int]
    numbers: Mapping[str, int]
    constant: bytes
    indexed: bool  # keys are given as indices


def read_scheme(
    operation: Operation, scheme: pb.Scheme, *, ignore: frozenset[str] = frozenset(), address_hash: int = 0
) -> Scheme:
    """Checks every field of a scheme. `ignore` are fields that the call does not use.

    Fields that do not matter for the input kind get the manifest's first value, so that equal work has equal keys.
    Raises RequestError naming the field and the accepted values.
    """
    names: dict[str, str | int] = {}
    for name in _FIELDS:
        if name not in ignore:
            _read_field(operation, name, getattr(scheme, name), names)
    indexed = names.get("key_encoding") == "INDEX"
    _read_digest_bytes(operation, scheme, names)
    if address_hash:
        accepted = tuple(n for n in operation.parameters.get("address_hash", ()) if n != "UNSPECIFIED")
        names["address_hash"] = required("address_hash", "address_hash", address_hash, accepted or ("none",))
    numbers = {
        name: parameter_number(name, value)
        for name, value in names.items()
        if name in operation.parameters and value in operation.parameters[name]
    }
    return Scheme(names, numbers, _constant(operation, scheme, names), indexed)


def _read_field(operation: Operation, name: str, number: int, names: dict[str, str | int]) -> None:
    field = f"scheme.{name}"
    accepted = operation.parameters.get(name, ())
    match name:
        case "low_s":
            accepted = accepted or ("ACCEPT_ANY",)
            names[name] = required(field, name, number or pb.LOW_S_ACCEPT_ANY, accepted)
        case "hash":
            _read_hash(operation, number, names)
        case "key_encoding" if "RAW_XY" in accepted and "INDEX" not in accepted:
            names[name] = required(field, name, number, (*accepted, "INDEX"))
        case _ if accepted:
            names[name] = required(field, name, number, accepted)
        case _ if number:
            raise RequestError(field, f"must not be set: {operation.algorithm} has no such choice here")


def _read_hash(operation: Operation, number: int, names: dict[str, str | int]) -> None:
    own = _HASH_OF.get(operation.algorithm)
    accepted = operation.parameters.get("hash") or ((own,) if own else ())
    if not accepted:
        if number:
            raise RequestError("scheme.hash", f"must not be set: {operation.algorithm} hashes nothing here")
        return
    if number or (not own and names.get("input_kind") == "MESSAGE"):
        names["hash"] = required("scheme.hash", "hash", number, accepted)
    if own or names.get("input_kind") != "MESSAGE":
        names["hash"] = own if own in accepted else accepted[0]


def _read_digest_bytes(operation: Operation, scheme: pb.Scheme, names: dict[str, str | int]) -> None:
    accepted = operation.parameters.get("digest_bytes", (32,))
    if scheme.digest_bytes and scheme.digest_bytes not in accepted:
        raise RequestError(
            "scheme.digest_bytes",
            f"{scheme.digest_bytes} is not accepted; accepted are {', '.join(map(str, accepted))}",
        )
    matters = names.get("input_kind") == "DIGEST"
    names["digest_bytes"] = (scheme.digest_bytes or 32) if matters else accepted[0]


def _constant(operation: Operation, scheme: pb.Scheme, names: Mapping[str, str | int]) -> bytes:
    if operation.constant != _USER_ID:
        if scheme.HasField(_USER_ID):
            raise RequestError("scheme.sm2_user_id", f"must not be set: {operation.algorithm} has no user id")
        return b""
    if len(scheme.sm2_user_id) > MAX_SM2_USER_ID_BYTES:
        raise RequestError(
            "scheme.sm2_user_id", f"{len(scheme.sm2_user_id)} bytes; the limit is {MAX_SM2_USER_ID_BYTES}"
        )
    if names.get("input_kind") == "DIGEST" or not scheme.HasField(_USER_ID):
        return DEFAULT_SM2_USER_ID
    return scheme.sm2_user_id
