"""The usual CPU libraries as verifiers: what a node does without a middleware."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from gmssl import func, sm2, sm3

from node_adapter.chain._keys import P256_N, user_hash
from node_adapter.chain._questions import Codes, Question
from node_adapter.client import Algorithm, KeyEncoding, LowS
from node_adapter.errors import ChainError
from verifier.model import Code

__all__ = ["by_library"]

_ECDSA = ec.ECDSA(hashes.SHA256())
_KEYS = 4096  # parsed keys are kept, as nodes keep the identities that they have seen


def by_library(question: Question) -> Codes:
    """One code an item: OpenSSL, through `cryptography`, for P-256, and gmssl for SM2; a signature after the other.

    Knows the chain's own schemes only. What a library refuses without saying why is INVALID.
    """
    verify = _LIBRARIES.get(question.scheme.algorithm)
    if verify is None:
        raise ChainError(f"no library here verifies {question.scheme.algorithm.name}")
    items = zip(question.inputs, question.signatures, question.keys, strict=True)
    return np.array([verify(question, *item) for item in items], np.uint8)


@lru_cache(_KEYS)
def _p256(point: bytes) -> ec.EllipticCurvePublicKey:
    return ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), point)


def _openssl(question: Question, message: bytes, signature: bytes, key: bytes) -> Code:
    try:
        _, s = decode_dss_signature(signature)
    except ValueError:
        return Code.SIGNATURE_DER
    if question.scheme.low_s is LowS.REQUIRE and s > P256_N // 2:
        return Code.HIGH_S
    try:
        _p256(b"\4" + key if question.scheme.key_encoding is KeyEncoding.RAW_XY else key).verify(
            signature, message, _ECDSA
        )
    except (ValueError, InvalidSignature):
        return Code.INVALID
    return Code.VALID


@lru_cache(_KEYS)
def _za(key: bytes) -> bytes:
    return user_hash(key)


def _gmssl(question: Question, message: bytes, signature: bytes, key: bytes) -> Code:  # noqa: ARG001
    try:
        r, s = decode_dss_signature(signature)
    except ValueError:
        return Code.SIGNATURE_DER
    digest = bytes.fromhex(sm3.sm3_hash(func.bytes_to_list(_za(key) + message)))
    oracle = sm2.CryptSM2(private_key="", public_key="")
    # Its constructor strips every leading "0" and "4" of a key that starts with 04.
    oracle.public_key = key.hex()
    return Code.VALID if oracle.verify(f"{r:064x}{s:064x}", digest) else Code.INVALID


_LIBRARIES: dict[Algorithm, Callable[[Question, bytes, bytes, bytes], Code]] = {
    Algorithm.ECDSA_P256: _openssl,
    Algorithm.SM2: _gmssl,
}
