"""Named ways to spoil a signed transaction, and the reason for which a validator must reject each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from node_adapter.chain._keys import N
from node_adapter.chain._transaction import Transaction, der
from verifier.model import Code

__all__ = ["FAULTS", "Fault"]

Spoil = Callable[[Transaction, bytes, bytes], Transaction]


@dataclass(frozen=True, slots=True)
class Fault:
    """A way to spoil a transaction.

    `before` changes what is signed, `user_id` under which id; `after` gets the transaction, its signature r || s and
    another account's key, and gives the transaction with its spoilt signature or key. `reason` is a name of
    verifier.model.Code, or of the chain's own rules.
    """

    reason: str
    after: Spoil = lambda tx, signature, _: replace(tx, signature=der(signature))
    before: Callable[[Transaction], Transaction] = lambda tx: tx
    user_id: bytes | None = None


def _signed(r: Callable[[bytes, bytes], bytes]) -> Spoil:
    return lambda tx, signature, _: replace(tx, signature=der(r(signature[:32], signature[32:])))


def _encoded(change: Callable[[bytes], bytes]) -> Spoil:
    return lambda tx, signature, _: replace(tx, signature=change(der(signature)))


def _keyed(change: Callable[[bytes], bytes]) -> Spoil:
    return lambda tx, signature, _: replace(tx, key=change(tx.key), signature=der(signature))


def _padded(encoded: bytes) -> bytes:
    """r with one zero byte too many in front."""
    return bytes([0x30, encoded[1] + 1, 0x02, encoded[3] + 1, 0]) + encoded[4:]


_ZERO = bytes(32)
_ORDER = N.to_bytes(32, "big")

FAULTS: dict[str, Fault] = {
    "wrong digest": Fault(
        Code.INVALID.name, lambda tx, signature, _: replace(tx, amount=tx.amount + 1, signature=der(signature))
    ),
    "wrong key": Fault(
        Code.INVALID.name, lambda tx, signature, other: replace(tx, key=other, signature=der(signature))
    ),
    "wrong user id": Fault(Code.INVALID.name, user_id=b"ALICE123@YAHOO.COM"),
    "swapped r and s": Fault(Code.INVALID.name, _signed(lambda r, s: s + r)),
    "r is zero": Fault(Code.OUT_OF_RANGE.name, _signed(lambda _, s: _ZERO + s)),
    "r is n": Fault(Code.OUT_OF_RANGE.name, _signed(lambda _, s: _ORDER + s)),
    "s is zero": Fault(Code.OUT_OF_RANGE.name, _signed(lambda r, _: r + _ZERO)),
    "s is n": Fault(Code.OUT_OF_RANGE.name, _signed(lambda r, _: r + _ORDER)),
    "bytes behind the signature": Fault(Code.SIGNATURE_DER.name, _encoded(lambda encoded: encoded + b"\0")),
    "signature cut short": Fault(Code.SIGNATURE_DER.name, _encoded(lambda encoded: encoded[:-1])),
    "padded integer": Fault(Code.SIGNATURE_DER.name, _encoded(_padded)),
    "key off the curve": Fault(Code.KEY_NOT_ON_CURVE.name, _keyed(lambda key: key[:-1] + bytes([key[-1] ^ 1]))),
    "key coordinate over p": Fault(Code.KEY_RANGE.name, _keyed(lambda key: b"\xff" * 32 + key[32:])),
    "nonce used before": Fault("NONCE", before=lambda tx: replace(tx, nonce=tx.nonce - 1)),
    "more than the balance": Fault("BALANCE", before=lambda tx: replace(tx, amount=1 << 62)),
}
