"""What a row asks for: an operation and its scheme, as a file's metadata names them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from node_adapter.client import Algorithm, Hash, InputKind, KeyEncoding, LowS, Scheme, SignatureEncoding
from node_adapter.errors import LedgerError, RequestError

__all__ = ["ADDRESS_BYTES", "Call"]

ADDRESS_BYTES = 20

_ENUMS: dict[str, Any] = {
    "algorithm": Algorithm,
    "input_kind": InputKind,
    "signature_encoding": SignatureEncoding,
    "key_encoding": KeyEncoding,
    "low_s": LowS,
    "hash": Hash,
}
_OTHERS = {"operation", "digest_bytes", "sm2_user_id"}


@dataclass(frozen=True, slots=True)
class Call:
    """A scheme, and whether the key is recovered instead of given."""

    scheme: Scheme
    recover: bool = False

    @property
    def operation(self) -> str:
        """The plugin operation's name."""
        return "recover" if self.recover else "verify"

    @property
    def has_keys(self) -> bool:
        """Whether the key column is used."""
        return not self.recover and self.scheme.key_encoding is not KeyEncoding.IN_SIGNATURE

    @property
    def address_hash(self) -> Hash:
        """The hash that makes an address of a recovered key: the chain's own."""
        return Hash.SM3 if self.scheme.algorithm is Algorithm.SM2 else Hash.KECCAK256

    def as_json(self) -> dict[str, Any]:
        """Names instead of numbers; the user id in hexadecimal, absent where the default is meant."""
        scheme = self.scheme
        found: dict[str, Any] = {"operation": self.operation}
        found |= {name: getattr(scheme, name).name for name in _ENUMS}
        if scheme.digest_bytes:
            found["digest_bytes"] = scheme.digest_bytes
        if scheme.sm2_user_id is not None:
            found["sm2_user_id"] = scheme.sm2_user_id.hex()
        return found

    @classmethod
    def from_json(cls, found: Any, where: str) -> Call:
        """Raises LedgerError naming the field, what it is, and what it may be."""
        if not isinstance(found, dict):
            raise LedgerError(where, f"{found!r} is not an object")
        if unknown := set(found) - set(_ENUMS) - _OTHERS:
            raise LedgerError(where, f"unknown field {', '.join(sorted(unknown))}")
        operation = found.get("operation")
        if operation not in ("verify", "recover"):
            raise LedgerError(f"{where}.operation", f"{operation!r}; it is verify or recover")
        values = {name: _member(enum, found.get(name), f"{where}.{name}") for name, enum in _ENUMS.items()}
        user_id = found.get("sm2_user_id")
        try:
            scheme = Scheme(
                **values,
                digest_bytes=int(found.get("digest_bytes", 0)),
                sm2_user_id=None if user_id is None else bytes.fromhex(user_id),
            )
        except (RequestError, TypeError, ValueError) as error:
            raise LedgerError(where, str(error)) from None
        return cls(scheme, operation == "recover")


def _member(enum: Any, name: Any, where: str) -> Any:
    if name not in enum.__members__:
        raise LedgerError(where, f"{name!r}; it is one of {', '.join(enum.__members__)}")
    return enum[name]
