"""What verifies signatures on a CPU today: the libraries that our CPU figures stand beside, a core each.

A peer is a function that verifies a set and says how many items were valid, so that a wrong answer is noticed.
Those that are not installed are left out.
"""

from __future__ import annotations

import ctypes
import ctypes.util
from collections.abc import Callable, Iterator
from typing import Any

from verifier.bench.crypto_mb_peer import crypto_mb
from verifier.bench.signatures import SignatureSet

__all__ = ["Peer", "coincurve_recover", "peers_for"]

Peer = Callable[[SignatureSet], int]


def peers_for(algorithm: str, *, messages: bool = False) -> Iterator[tuple[str, Peer]]:
    """Names and functions of the peers that verify `algorithm` and are installed here; with `messages` those that
    hash these too, 32 bytes each."""
    if not messages:
        for name, find in _FINDERS.items():
            peer = find(algorithm)
            if peer is not None:
                yield name, peer
    peer = crypto_mb(algorithm, messages=messages)
    if peer is not None:
        yield "crypto_mb", peer


def _gmssl(algorithm: str) -> Peer | None:
    if algorithm != "SM2":
        return None
    try:
        from gmssl import sm2
    except ImportError:
        return None

    def verify(items: SignatureSet) -> int:
        valid = 0
        for digest, signature, key in zip(items.digests, items.signatures, items.keys, strict=True):
            oracle = sm2.CryptSM2(private_key="", public_key="")
            # Its constructor strips every leading "0" and "4" of a key that starts with 04.
            oracle.public_key = key.tobytes().hex()
            valid += bool(oracle.verify(signature.tobytes().hex(), digest.tobytes()))
        return valid

    return verify


def _coincurve(algorithm: str) -> Peer | None:
    """libsecp256k1 as coincurve brings it, by its own functions."""
    if algorithm != "ECDSA_SECP256K1":
        return None
    try:
        import coincurve.context
        from coincurve._libsecp256k1 import ffi, lib
    except ImportError:
        return None

    context = coincurve.context.GLOBAL_CONTEXT.ctx

    def verify(items: SignatureSet) -> int:
        valid, public, pair = 0, ffi.new("secp256k1_pubkey *"), ffi.new("secp256k1_ecdsa_signature *")
        for digest, signature, key in zip(items.digests, items.signatures, items.keys, strict=True):
            if not lib.secp256k1_ec_pubkey_parse(context, public, b"\4" + key.tobytes(), 65):
                continue
            if not lib.secp256k1_ecdsa_signature_parse_compact(context, pair, signature.tobytes()):
                continue
            # It takes low s only; n - s is valid exactly where s is.
            lib.secp256k1_ecdsa_signature_normalize(context, pair, pair)
            valid += lib.secp256k1_ecdsa_verify(context, pair, digest.tobytes(), public)
        return valid

    return verify


def coincurve_recover() -> Peer | None:
    """Recovery by libsecp256k1: how many items' keys come out as they are. None where it is not installed."""
    try:
        import coincurve.context
        from coincurve._libsecp256k1 import ffi, lib
    except ImportError:
        return None
    context = coincurve.context.GLOBAL_CONTEXT.ctx
    buffer, size, public = ffi.new("unsigned char[65]"), ffi.new("size_t *"), ffi.new("secp256k1_pubkey *")
    pair = ffi.new("secp256k1_ecdsa_recoverable_signature *")

    def recover(items: SignatureSet) -> int:
        right = 0
        rows = zip(items.digests, items.signatures, items.recovery, items.keys, strict=True)
        for digest, signature, number, key in rows:
            parse = lib.secp256k1_ecdsa_recoverable_signature_parse_compact
            if not parse(context, pair, signature.tobytes(), int(number)):
                continue
            if not lib.secp256k1_ecdsa_recover(context, public, pair, digest.tobytes()):
                continue
            size[0] = 65
            lib.secp256k1_ec_pubkey_serialize(context, buffer, size, public, lib.SECP256K1_EC_UNCOMPRESSED)
            right += ffi.buffer(buffer, 65)[1:] == key.tobytes()
        return right

    return recover


def _der(signature: bytes) -> bytes:
    from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

    return encode_dss_signature(int.from_bytes(signature[:32], "big"), int.from_bytes(signature[32:], "big"))


def _openssl(algorithm: str) -> Peer | None:
    """The system's libcrypto through ctypes: EVP_PKEY_verify on digests, one prepared context a signature."""
    curve = {"SM2": b"SM2", "ECDSA_P256": b"P-256", "ECDSA_SECP256K1": b"secp256k1"}.get(algorithm)
    path = ctypes.util.find_library("crypto")
    if curve is None or path is None:
        return None
    library = ctypes.CDLL(path)
    if not hasattr(library, "EVP_PKEY_fromdata"):  # OpenSSL before 3.0
        return None
    return _OpenSsl(library, curve, b"SM2" if algorithm == "SM2" else b"EC")


class _Parameter(ctypes.Structure):
    """OSSL_PARAM."""

    _fields_ = (
        ("key", ctypes.c_char_p),
        ("data_type", ctypes.c_uint),
        ("data", ctypes.c_void_p),
        ("data_size", ctypes.c_size_t),
        ("return_size", ctypes.c_size_t),
    )


class _OpenSsl:
    _UTF8, _OCTETS, _PUBLIC_KEY = 4, 5, 0x86

    def __init__(self, library: ctypes.CDLL, curve: bytes, key_type: bytes) -> None:
        self.library, self.curve, self.key_type = library, curve, key_type
        pointer = ctypes.c_void_p
        for name, result, arguments in (
            ("EVP_PKEY_CTX_new_from_name", pointer, (pointer, ctypes.c_char_p, ctypes.c_char_p)),
            ("EVP_PKEY_CTX_new", pointer, (pointer, pointer)),
            ("EVP_PKEY_CTX_free", None, (pointer,)),
            ("EVP_PKEY_free", None, (pointer,)),
            ("EVP_PKEY_fromdata_init", ctypes.c_int, (pointer,)),
            ("EVP_PKEY_fromdata", ctypes.c_int, (pointer, ctypes.POINTER(pointer), ctypes.c_int, pointer)),
            ("EVP_PKEY_verify_init", ctypes.c_int, (pointer,)),
            (
                "EVP_PKEY_verify",
                ctypes.c_int,
                (pointer, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t),
            ),
        ):
            function: Any = getattr(library, name)
            function.restype, function.argtypes = result, arguments

    def _key(self, point: bytes) -> ctypes.c_void_p:
        library = self.library
        group = ctypes.create_string_buffer(self.curve)
        public = ctypes.create_string_buffer(b"\4" + point, 65)
        parameters = (_Parameter * 3)(
            _Parameter(b"group", self._UTF8, ctypes.addressof(group), len(self.curve), 0),
            _Parameter(b"pub", self._OCTETS, ctypes.addressof(public), 65, 0),
            _Parameter(None, 0, None, 0, 0),
        )
        context = library.EVP_PKEY_CTX_new_from_name(None, self.key_type, None)
        key = ctypes.c_void_p()
        library.EVP_PKEY_fromdata_init(context)
        library.EVP_PKEY_fromdata(context, ctypes.byref(key), self._PUBLIC_KEY, parameters)
        library.EVP_PKEY_CTX_free(context)
        return key

    def __call__(self, items: SignatureSet) -> int:
        library, valid = self.library, 0
        for digest, signature, key in zip(items.digests, items.signatures, items.keys, strict=True):
            public = self._key(key.tobytes())
            if not public:  # not a point of the curve
                continue
            context = library.EVP_PKEY_CTX_new(public, None)
            library.EVP_PKEY_verify_init(context)
            der = _der(signature.tobytes())
            valid += library.EVP_PKEY_verify(context, der, len(der), digest.tobytes(), 32) == 1
            library.EVP_PKEY_CTX_free(context)
            library.EVP_PKEY_free(public)
        return valid


_FINDERS: dict[str, Callable[[str], Peer | None]] = {
    "openssl": _openssl,
    "coincurve": _coincurve,
    "gmssl": _gmssl,
}
