"""Transactions: a transfer between accounts, its canonical bytes, and its signature."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from msgspec import Meta

from node_adapter.client import Algorithm, Hash, InputKind, KeyEncoding, LowS, Scheme, SignatureEncoding
from node_adapter.errors import ChainError

__all__ = ["TRANSACTION_SCHEME", "TRANSACTION_SCHEMES", "Transaction", "address", "der"]

# The message is hashed with the signer's ZA by the verifier, as ChainMaker's national-algorithm mode has it.
TRANSACTION_SCHEME = Scheme(Algorithm.SM2, InputKind.MESSAGE, SignatureEncoding.DER_STRICT, KeyEncoding.RAW_XY)

TRANSACTION_SCHEMES = {
    Algorithm.SM2: TRANSACTION_SCHEME,
    # Fabric's rules: SHA-256, DER, s not above n / 2.
    Algorithm.ECDSA_P256: Scheme(
        Algorithm.ECDSA_P256,
        InputKind.MESSAGE,
        SignatureEncoding.DER_STRICT,
        KeyEncoding.RAW_XY,
        low_s=LowS.REQUIRE,
        hash=Hash.SHA256,
    ),
}

MAX_SIGNATURE_BYTES = 256
MAX_PAYLOAD_BYTES = 1 << 16
U32 = Annotated[int, Meta(ge=0, lt=1 << 32)]
U63 = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]

_HEAD = struct.Struct(">4sIQ64s20sQI")
_MAGIC = b"VTX1"


def address(key: bytes) -> bytes:
    """The account of a public key (x || y): the last 20 bytes of its SHA-256."""
    return hashlib.sha256(key).digest()[-20:]


def der(signature: bytes) -> bytes:
    """The DER encoding of r || s."""
    return encode_dss_signature(int.from_bytes(signature[:32], "big"), int.from_bytes(signature[32:], "big"))


@dataclass(frozen=True)
class Transaction:
    """Moves `amount` from the account of `key` to `recipient`. `nonce` counts the sender's transactions from 0."""

    chain: U32
    nonce: U63
    key: Annotated[bytes, Meta(min_length=64, max_length=64)]
    recipient: Annotated[bytes, Meta(min_length=20, max_length=20)]
    amount: U63
    payload: Annotated[bytes, Meta(max_length=MAX_PAYLOAD_BYTES)] = b""
    signature: Annotated[bytes, Meta(max_length=MAX_SIGNATURE_BYTES)] = b""

    @cached_property
    def signed(self) -> bytes:
        """The bytes that are signed: magic, then all fields big-endian, then the payload behind its length."""
        fields = (self.chain, self.nonce, self.key, self.recipient, self.amount, len(self.payload))
        return _HEAD.pack(_MAGIC, *fields) + self.payload

    def encoded(self) -> bytes:
        """What a client sends: the body, and the signature in all that follows."""
        return self.signed + self.signature

    @classmethod
    def decoded(cls, data: bytes) -> Transaction:
        """Reads what a client sent. Raises ChainError, naming the place, for what is no transaction."""
        if len(data) < _HEAD.size:
            raise ChainError(f"a transaction of {len(data)} bytes: its head alone has {_HEAD.size}")
        magic, chain, nonce, key, recipient, amount, payload = _HEAD.unpack_from(data)
        if magic != _MAGIC:
            raise ChainError(f"a transaction begins with {magic!r}, not {_MAGIC!r}")
        left = len(data) - _HEAD.size
        if payload > min(left, MAX_PAYLOAD_BYTES):
            raise ChainError(
                f"a payload of {payload} bytes at byte {_HEAD.size}: {left} follow; the limit is {MAX_PAYLOAD_BYTES}"
            )
        end = _HEAD.size + payload
        if len(data) - end > MAX_SIGNATURE_BYTES:
            raise ChainError(
                f"a signature of {len(data) - end} bytes at byte {end}; the limit is {MAX_SIGNATURE_BYTES}"
            )
        transaction = cls(chain, nonce, key, recipient, amount, data[_HEAD.size : end], data[end:])
        transaction.__dict__["signed"] = data[:end]  # as it would be encoded: every field has one encoding
        return transaction

    @cached_property
    def sender(self) -> bytes:
        """The account that pays."""
        return address(self.key)

    @cached_property
    def hash(self) -> bytes:
        """SHA-256 over body and signature: two transactions that differ in anything have different hashes."""
        return hashlib.sha256(self.encoded()).digest()
