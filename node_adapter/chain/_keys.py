"""Keys and signatures of the simulated chain's accounts: SM2, made with `gmssl`, and ECDSA on P-256.

Everything is derived from a seed, nonces included, so that a run can be repeated. Not for real keys.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from functools import lru_cache

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from gmssl import func, sm2, sm3

from node_adapter.client import Algorithm
from verifier.schemes import DEFAULT_SM2_USER_ID

__all__ = ["GENERATOR", "P256_N", "A", "AccountKey", "B", "N", "P", "P256Key", "SigningKey", "account_key"]

P = int(sm2.default_ecc_table["p"], 16)
N = int(sm2.default_ecc_table["n"], 16)
A = int(sm2.default_ecc_table["a"], 16)
B = int(sm2.default_ecc_table["b"], 16)
GENERATOR = bytes.fromhex(sm2.default_ecc_table["g"])
P256_N = 0xFFFFFFFF_00000000_FFFFFFFF_FFFFFFFF_BCE6FAAD_A7179E84_F3B9CAC2_FC632551

_ECDSA = ec.ECDSA(hashes.SHA256(), deterministic_signing=True)


def _sm3(message: bytes) -> bytes:
    return bytes.fromhex(sm3.sm3_hash(func.bytes_to_list(message)))


def user_hash(public: bytes, user_id: bytes = DEFAULT_SM2_USER_ID) -> bytes:
    """ZA of a public key (x || y) and a user id (GB/T 32918.2, 5.5)."""
    curve = A.to_bytes(32, "big") + B.to_bytes(32, "big") + GENERATOR
    return _sm3((8 * len(user_id)).to_bytes(2, "big") + user_id + curve + public)


def public_key(private: int) -> bytes:
    """The SM2 public key x || y, 64 bytes big-endian."""
    point: str = sm2.CryptSM2("", "")._kg(private, sm2.default_ecc_table["g"])
    return bytes.fromhex(point)


def _private(seed: int, role: str, number: int, order: int) -> int:
    digest = hashlib.sha512(f"{seed}/{role}/{number}".encode()).digest()
    return int.from_bytes(digest, "big") % (order - 2) + 1


@dataclass(frozen=True, slots=True)
class SigningKey:
    """An SM2 private number and its public key, x || y."""

    private: int
    public: bytes

    @classmethod
    def derive(cls, seed: int, role: str, number: int) -> SigningKey:
        """The key of one participant of the chain with this seed."""
        private = _private(seed, role, number, N)
        return cls(private, public_key(private))

    def sign(self, message: bytes, user_id: bytes = DEFAULT_SM2_USER_ID) -> bytes:
        """r || s over e = SM3(ZA || message), 64 bytes."""
        digest = _sm3(user_hash(self.public, user_id) + message)
        secret = self.private.to_bytes(32, "big")
        for attempt in range(256):
            nonce = hmac.digest(secret, digest + bytes([attempt]), "sha512")
            k = int.from_bytes(nonce, "big") % (N - 1) + 1
            signature = sm2.CryptSM2(secret.hex(), "").sign(digest, f"{k:064x}")
            if signature is not None:
                return bytes.fromhex(signature)
        raise AssertionError("no nonce of 256 gives a signature")


@lru_cache(1024)
def _p256(private: int) -> ec.EllipticCurvePrivateKey:
    return ec.derive_private_key(private, ec.SECP256R1())


@dataclass(frozen=True, slots=True)
class P256Key:
    """A P-256 private number and its public key, x || y."""

    private: int
    public: bytes

    @classmethod
    def derive(cls, seed: int, role: str, number: int) -> P256Key:
        """The key of one participant of the chain with this seed."""
        private = _private(seed, role, number, P256_N)
        point = _p256(private).public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
        return cls(private, point[1:])

    def sign(self, message: bytes, user_id: bytes = b"") -> bytes:  # noqa: ARG002
        """r || s over SHA-256 of the message, nonce after RFC 6979, s not above n / 2. ECDSA has no user id."""
        r, s = decode_dss_signature(_p256(self.private).sign(message, _ECDSA))
        return r.to_bytes(32, "big") + min(s, P256_N - s).to_bytes(32, "big")


AccountKey = SigningKey | P256Key


def account_key(algorithm: Algorithm, seed: int, number: int) -> AccountKey:
    """The key of one account of the chain with this seed."""
    kind = SigningKey if algorithm is Algorithm.SM2 else P256Key
    return kind.derive(seed, "account", number)
