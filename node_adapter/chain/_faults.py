"""Named ways to spoil a signed transaction, and the reason for which a node must reject each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from node_adapter.chain._keys import P256_N, N
from node_adapter.chain._transaction import Transaction, der
from node_adapter.client import Algorithm
from verifier.model import Code

__all__ = ["FAULTS", "Fault", "faults_of"]

Spoil = Callable[[Transaction, bytes, bytes], Transaction]


@dataclass(frozen=True, slots=True)
class Fault:
    """A way to spoil a transaction.

    `before` changes what is signed, `user_id` under which id; `after` gets the transaction, its signature r || s and
    another account's key, and gives the transaction with its spoilt signature or key. `reason` is a name of
    verifier.model.Code, or of the chain's own rules. `algorithms` are those that the fault exists for.
    """

    reason: str
    after: Spoil = lambda tx, signature, _: replace(tx, signature=der(signature))
    before: Callable[[Transaction], Transaction] = lambda tx: tx
    user_id: bytes | None = None
    algorithms: tuple[Algorithm, ...] = (Algorithm.SM2, Algorithm.ECDSA_P256)


def _signed(change: Callable[[bytes, bytes], bytes]) -> Spoil:
    return lambda tx, signature, _: replace(tx, signature=der(change(signature[:32], signature[32:])))


def _encoded(change: Callable[[bytes], bytes]) -> Spoil:
    return lambda tx, signature, _: replace(tx, signature=change(der(signature)))


def _keyed(change: Callable[[bytes], bytes]) -> Spoil:
    return lambda tx, signature, _: replace(tx, key=change(tx.key), signature=der(signature))


def _padded(encoded: bytes) -> bytes:
    """r with one zero byte too many in front."""
    return bytes([0x30, encoded[1] + 1, 0x02, encoded[3] + 1, 0]) + encoded[4:]


def _negated(s: bytes) -> bytes:
    return (P256_N - int.from_bytes(s, "big")).to_bytes(32, "big")


_ZERO = bytes(32)
_ORDER = N.to_bytes(32, "big")
_SM2 = (Algorithm.SM2,)
_P256 = (Algorithm.ECDSA_P256,)

FAULTS: dict[str, Fault] = {
    "wrong digest": Fault(
        Code.INVALID.name, lambda tx, signature, _: replace(tx, amount=tx.amount + 1, signature=der(signature))
    ),
    "wrong key": Fault(
        Code.INVALID.name, lambda tx, signature, other: replace(tx, key=other, signature=der(signature))
    ),
    "wrong user id": Fault(Code.INVALID.name, user_id=b"ALICE123@YAHOO.COM", algorithms=_SM2),
    "swapped r and s": Fault(Code.INVALID.name, _signed(lambda r, s: s + r), algorithms=_SM2),
    "r is zero": Fault(Code.OUT_OF_RANGE.name, _signed(lambda _, s: _ZERO + s)),
    # SM2's n is below P-256's, so for P-256 it is a number like any other.
    "r is n": Fault(Code.OUT_OF_RANGE.name, _signed(lambda _, s: _ORDER + s), algorithms=_SM2),
    "s is zero": Fault(Code.OUT_OF_RANGE.name, _signed(lambda r, _: r + _ZERO)),
    "s is n": Fault(Code.OUT_OF_RANGE.name, _signed(lambda r, _: r + _ORDER), algorithms=_SM2),
    "s above n / 2": Fault(Code.HIGH_S.name, _signed(lambda r, s: r + _negated(s)), algorithms=_P256),
    "bytes behind the signature": Fault(Code.SIGNATURE_DER.name, _encoded(lambda encoded: encoded + b"\0")),
    "signature cut short": Fault(Code.SIGNATURE_DER.name, _encoded(lambda encoded: encoded[:-1])),
    "padded integer": Fault(Code.SIGNATURE_DER.name, _encoded(_padded)),
    "key off the curve": Fault(Code.KEY_NOT_ON_CURVE.name, _keyed(lambda key: key[:-1] + bytes([key[-1] ^ 1]))),
    "key coordinate over p": Fault(Code.KEY_RANGE.name, _keyed(lambda key: b"\xff" * 32 + key[32:])),
    "nonce used before": Fault("NONCE", before=lambda tx: replace(tx, nonce=tx.nonce - 1)),
    "more than the balance": Fault("BALANCE", before=lambda tx: replace(tx, amount=1 << 62)),
    "another chain": Fault("CHAIN", before=lambda tx: replace(tx, chain=tx.chain + 1)),
}


def faults_of(algorithm: Algorithm) -> list[str]:
    """The names of the faults that transactions of this algorithm can have."""
    return sorted(name for name, fault in FAULTS.items() if algorithm in fault.algorithms)
