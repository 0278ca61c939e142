"""What encrypts on a CPU today: the libraries that our ciphers are compared with, for rates and for right answers.

A peer is a function of (key, iv, data, out) that encrypts all of `data` into `out` on the calling thread. A library
that is not installed has no peers. The iv of CTR is the first counter, a whole block; that of ECB is ignored.
"""

from __future__ import annotations

import contextlib
import ctypes
import ctypes.util
import functools
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from verifier.drivers._cxx import find_compiler
from verifier.errors import BackendError, DeviceUnavailableError
from verifier.model import Bytes

__all__ = ["CipherPeer", "cipher_peers"]

CipherPeer = Callable[[bytes, bytes, Bytes, Bytes], None]

_MODES = ("ECB", "CTR", "CBC")


def cipher_peers(algorithm: str, mode: str, key_bytes: int) -> Iterator[tuple[str, CipherPeer]]:
    """Names and functions of the libraries here that have the cipher: mode is ECB, CTR or CBC."""
    for name, find in _FINDERS.items():
        peer = find(algorithm, mode, key_bytes)
        if peer is not None:
            yield name, peer


def _call(what: str, done: int, expected: int) -> None:
    if done != expected:
        raise BackendError(f"{what}: returned {done}")


def _openssl(algorithm: str, mode: str, key_bytes: int) -> CipherPeer | None:
    """The system's libcrypto through ctypes; with its GOST provider also Kuznyechik."""
    library = _libcrypto()
    if library is None:
        return None
    name = {
        "AES": f"AES-{8 * key_bytes}-{mode}",
        "ARIA": f"ARIA-{8 * key_bytes}-{mode}",
        "SM4": f"SM4-{mode}",
        "KUZNYECHIK": f"kuznyechik-{mode.lower()}",
    }.get(algorithm)
    cipher = library.EVP_CIPHER_fetch(None, name.encode(), None) if name else None
    if not cipher:
        return None
    # GOST R 34.13 gives half of the counter and starts at zero.
    half = algorithm == "KUZNYECHIK" and mode == "CTR"

    def encrypt(key: bytes, iv: bytes, data: Bytes, out: Bytes) -> None:
        if half and any(iv[8:]):
            raise BackendError("kuznyechik-ctr: OpenSSL takes counters that end in eight zeros")
        context, written = library.EVP_CIPHER_CTX_new(), ctypes.c_int()
        try:
            _call("EVP_EncryptInit_ex", library.EVP_EncryptInit_ex(context, cipher, None, key, iv or None), 1)
            library.EVP_CIPHER_CTX_set_padding(context, 0)
            done = library.EVP_EncryptUpdate(
                context, out.ctypes.data, ctypes.byref(written), data.ctypes.data, data.size
            )
            _call("EVP_EncryptUpdate", done * (written.value == data.size), 1)
        finally:
            library.EVP_CIPHER_CTX_free(context)

    return encrypt


@functools.cache
def _libcrypto() -> Any:
    path = ctypes.util.find_library("crypto")
    library: Any = ctypes.CDLL(path) if path else None
    if library is None or not hasattr(library, "EVP_CIPHER_fetch"):  # OpenSSL before 3.0
        return None
    pointer, text = ctypes.c_void_p, ctypes.c_char_p
    for name, result, arguments in (
        ("OSSL_PROVIDER_load", pointer, (pointer, text)),
        ("EVP_CIPHER_fetch", pointer, (pointer, text, text)),
        ("EVP_CIPHER_CTX_new", pointer, ()),
        ("EVP_CIPHER_CTX_free", None, (pointer,)),
        ("EVP_CIPHER_CTX_set_padding", ctypes.c_int, (pointer, ctypes.c_int)),
        ("EVP_EncryptInit_ex", ctypes.c_int, (pointer, pointer, pointer, text, text)),
        (
            "EVP_EncryptUpdate",
            ctypes.c_int,
            (pointer, pointer, ctypes.POINTER(ctypes.c_int), pointer, ctypes.c_int),
        ),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    for provider in (b"default", b"gostprov"):
        library.OSSL_PROVIDER_load(None, provider)
    return library


def _libgcrypt(algorithm: str, mode: str, key_bytes: int) -> CipherPeer | None:
    path = ctypes.util.find_library("gcrypt")
    number = {"AES": {16: 7, 24: 8, 32: 9}.get(key_bytes), "SM4": 318}.get(algorithm)
    if path is None or number is None:
        return None
    library = ctypes.CDLL(path)
    size, handle = ctypes.c_size_t, ctypes.c_void_p()
    library.gcry_check_version.restype = ctypes.c_char_p
    library.gcry_check_version(None)
    if library.gcry_cipher_algo_info(number, 8, None, None):  # not in this version
        return None
    code = {"ECB": 1, "CBC": 3, "CTR": 6}[mode]

    def encrypt(key: bytes, iv: bytes, data: Bytes, out: Bytes) -> None:
        _call("gcry_cipher_open", library.gcry_cipher_open(ctypes.byref(handle), number, code, 0), 0)
        try:
            _call("gcry_cipher_setkey", library.gcry_cipher_setkey(handle, key, size(len(key))), 0)
            if mode == "CTR":
                _call("gcry_cipher_setctr", library.gcry_cipher_setctr(handle, iv, size(len(iv))), 0)
            elif mode == "CBC":
                _call("gcry_cipher_setiv", library.gcry_cipher_setiv(handle, iv, size(len(iv))), 0)
            pointers = (ctypes.c_void_p(out.ctypes.data), size(out.size), ctypes.c_void_p(data.ctypes.data))
            _call("gcry_cipher_encrypt", library.gcry_cipher_encrypt(handle, *pointers, size(data.size)), 0)
        finally:
            library.gcry_cipher_close(handle)

    return encrypt


def _cryptopp(algorithm: str, mode: str, key_bytes: int) -> CipherPeer | None:  # noqa: ARG001
    library = _libcryptopp()
    if library is None or algorithm not in ("AES", "ARIA", "HIGHT", "SM4"):
        return None
    function = getattr(library, algorithm.lower())
    size, code = ctypes.c_size_t, _MODES.index(mode)

    def encrypt(key: bytes, iv: bytes, data: Bytes, out: Bytes) -> None:
        pointers = ctypes.c_void_p(data.ctypes.data), ctypes.c_void_p(out.ctypes.data)
        function(code, key, size(len(key)), iv, *pointers, size(data.size))

    return encrypt


@functools.cache
def _libcryptopp() -> ctypes.CDLL | None:
    """The library behind cryptopp_ciphers.cpp, built now; None without a compiler or Crypto++'s headers."""
    with contextlib.suppress(DeviceUnavailableError), tempfile.TemporaryDirectory(prefix="verifier-peer-") as folder:
        library = Path(folder) / "cryptopp.so"
        source = Path(__file__).with_name("cryptopp_ciphers.cpp")
        command = [*find_compiler().command, "-O2", "-std=c++17", "-fPIC", "-shared", str(source)]
        done = subprocess.run([*command, "-o", str(library), "-lcryptopp"], capture_output=True, check=False)
        if done.returncode == 0:
            return ctypes.CDLL(str(library))
    return None


def _pycryptodome(algorithm: str, mode: str, key_bytes: int) -> CipherPeer | None:  # noqa: ARG001
    if algorithm != "AES" or mode == "CBC":
        return None
    try:
        from Cryptodome.Cipher import AES
    except ImportError:
        return None

    def encrypt(key: bytes, iv: bytes, data: Bytes, out: Bytes) -> None:
        cipher: Any
        if mode == "CTR":
            cipher = AES.new(key, AES.MODE_CTR, nonce=b"", initial_value=iv)
        else:
            cipher = AES.new(key, AES.MODE_ECB)
        cipher.encrypt(data.data, output=out.data)

    return encrypt


_FINDERS: dict[str, Callable[[str, str, int], CipherPeer | None]] = {
    "openssl": _openssl,
    "libgcrypt": _libgcrypt,
    "cryptopp": _cryptopp,
    "pycryptodome": _pycryptodome,
}
