"""The hash functions from libraries, by their names in the contract."""

from __future__ import annotations

import hashlib
from collections.abc import Callable


def sm3(message: bytes) -> bytes:
    if "sm3" in hashlib.algorithms_available:
        return hashlib.new("sm3", message).digest()
    from gmssl import sm3 as pure  # the interpreter's OpenSSL was built without it

    return bytes.fromhex(pure.sm3_hash(list(message)))


def keccak256(message: bytes) -> bytes:
    from Cryptodome.Hash import keccak  # loaded when it is used: sanitizers refuse how it loads its libraries

    return keccak.new(digest_bits=256, data=message).digest()


HASHES: dict[str, Callable[[bytes], bytes]] = {
    "SM3": sm3,
    "SHA256": lambda message: hashlib.sha256(message).digest(),
    "SHA256D": lambda message: hashlib.sha256(hashlib.sha256(message).digest()).digest(),
    "KECCAK256": keccak256,
    "SHA3_256": lambda message: hashlib.sha3_256(message).digest(),
}
