"""ECDSA by OpenSSL (P-256) and libsecp256k1: what a daemon must answer, for the tests."""

import hashlib

from coincurve import PublicKey
from Cryptodome.Hash import keccak
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import (
    Prehashed,
    decode_dss_signature,
    encode_dss_signature,
)

from node_adapter.client import Algorithm, Hash, InputKind, LowS, SignatureEncoding
from verifier.model import Code

K1_ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
P256_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


def keccak256(data):
    return keccak.new(digest_bits=256, data=data).digest()


def digest(scheme, message):
    if scheme.input_kind is InputKind.DIGEST:
        return message
    return {Hash.SHA256: lambda m: hashlib.sha256(m).digest(), Hash.KECCAK256: keccak256}[scheme.hash](message)


def lax(signature):
    """A signature as OpenSSL read it before 2015, in strict DER: sign bits and what stands behind do not count."""
    numbers = []
    at = 2 if signature[1] < 0x80 else 2 + (signature[1] & 0x7F)
    for _ in range(2):
        length = signature[at + 1]
        numbers.append(int.from_bytes(signature[at + 2 : at + 2 + length], "big"))
        at += 2 + length
    return encode_dss_signature(*numbers)


def code(scheme, message, signature, key):
    order = P256_ORDER if scheme.algorithm is Algorithm.ECDSA_P256 else K1_ORDER
    if scheme.signature_encoding is SignatureEncoding.DER_LAX:
        signature = lax(signature)
    try:
        r, s = decode_dss_signature(signature)
    except ValueError:
        return Code.SIGNATURE_DER
    if encode_dss_signature(r, s) != signature:
        return Code.SIGNATURE_DER
    if not 0 < r < order or not 0 < s < order:
        return Code.OUT_OF_RANGE
    if scheme.low_s is LowS.REQUIRE and s > order // 2:
        return Code.HIGH_S
    hashed = digest(scheme, message)
    try:
        if scheme.algorithm is Algorithm.ECDSA_P256:
            public = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), key)
            public.verify(signature, hashed, ec.ECDSA(Prehashed(hashes.SHA256())))
            return Code.VALID
        low = encode_dss_signature(r, min(s, order - s))
        return Code.VALID if PublicKey(key).verify(low, hashed, hasher=None) else Code.INVALID
    except InvalidSignature:
        return Code.INVALID
    except ValueError:
        return Code.KEY_NOT_ON_CURVE


def verify(items):
    return [code(items.scheme, *item) for item in zip(items.inputs, items.signatures, items.keys, strict=True)]


def recover(items):
    codes, keys, addresses = [], [], []
    for message, signature in zip(items.inputs, items.signatures, strict=True):
        try:
            if items.scheme.low_s is LowS.REQUIRE and int.from_bytes(signature[32:64], "big") > K1_ORDER // 2:
                raise ValueError("high s")
            public = PublicKey.from_signature_and_message(signature, digest(items.scheme, message), hasher=None)
            keys.append(public.format(compressed=False)[1:])
            addresses.append(keccak256(keys[-1])[-20:])
            codes.append(Code.VALID)
        except Exception:
            keys.append(bytes(64))
            addresses.append(bytes(20))
            codes.append(Code.INVALID)
    return codes, b"".join(keys), b"".join(addresses)
