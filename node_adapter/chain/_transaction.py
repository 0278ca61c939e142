"""Transactions: a transfer between accounts, its canonical bytes, and its signature."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from node_adapter.client import Algorithm, InputKind, KeyEncoding, Scheme, SignatureEncoding

__all__ = ["TRANSACTION_SCHEME", "Transaction", "address", "der"]

# The message is hashed with the signer's ZA by the verifier, as ChainMaker's national-algorithm mode has it.
TRANSACTION_SCHEME = Scheme(Algorithm.SM2, InputKind.MESSAGE, SignatureEncoding.DER_STRICT, KeyEncoding.RAW_XY)

_HEAD = struct.Struct(">4sIQ64s20sQI")
_MAGIC = b"VTX1"


def address(key: bytes) -> bytes:
    """The account of a public key (x || y): the last 20 bytes of its SHA-256."""
    return hashlib.sha256(key).digest()[-20:]


def der(signature: bytes) -> bytes:
    """The DER encoding of r || s."""
    return encode_dss_signature(int.from_bytes(signature[:32], "big"), int.from_bytes(signature[32:], "big"))


@dataclass(frozen=True, slots=True)
class Transaction:
    """Moves `amount` from the account of `key` to `recipient`. `nonce` counts the sender's transactions from 0."""

    chain: int
    nonce: int
    key: bytes
    recipient: bytes
    amount: int
    payload: bytes = b""
    signature: bytes = b""

    def body(self) -> bytes:
        """The bytes that are signed: magic, then all fields big-endian, then the payload behind its length."""
        fields = (self.chain, self.nonce, self.key, self.recipient, self.amount, len(self.payload))
        return _HEAD.pack(_MAGIC, *fields) + self.payload

    @property
    def sender(self) -> bytes:
        """The account that pays."""
        return address(self.key)

    @property
    def hash(self) -> bytes:
        """SHA-256 over body and signature: two transactions that differ in anything have different hashes."""
        return hashlib.sha256(self.body() + self.signature).digest()
