"""SM2 keys and signatures of the simulated chain, made with `gmssl`.

Everything is derived from a seed, nonces included, so that a run can be repeated. Not for real keys.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass

from gmssl import func, sm2, sm3

from verifier.schemes import DEFAULT_SM2_USER_ID

__all__ = ["GENERATOR", "A", "B", "N", "P", "SigningKey", "public_key", "user_hash"]

P = int(sm2.default_ecc_table["p"], 16)
N = int(sm2.default_ecc_table["n"], 16)
A = int(sm2.default_ecc_table["a"], 16)
B = int(sm2.default_ecc_table["b"], 16)
GENERATOR = bytes.fromhex(sm2.default_ecc_table["g"])


def _sm3(message: bytes) -> bytes:
    return bytes.fromhex(sm3.sm3_hash(func.bytes_to_list(message)))


def user_hash(public: bytes, user_id: bytes = DEFAULT_SM2_USER_ID) -> bytes:
    """ZA of a public key (x || y) and a user id (GB/T 32918.2, 5.5)."""
    curve = A.to_bytes(32, "big") + B.to_bytes(32, "big") + GENERATOR
    return _sm3((8 * len(user_id)).to_bytes(2, "big") + user_id + curve + public)


def public_key(private: int) -> bytes:
    """The public key x || y, 64 bytes big-endian."""
    point: str = sm2.CryptSM2("", "")._kg(private, sm2.default_ecc_table["g"])
    return bytes.fromhex(point)


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A private number and its public key, x || y."""

    private: int
    public: bytes

    @classmethod
    def derive(cls, seed: int, role: str, number: int) -> SigningKey:
        """The key of one participant of the chain with this seed."""
        digest = hashlib.sha512(f"{seed}/{role}/{number}".encode()).digest()
        private = int.from_bytes(digest, "big") % (N - 2) + 1
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
