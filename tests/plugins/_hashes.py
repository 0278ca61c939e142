"""The hash functions from libraries, by their names in the contract."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from Cryptodome.Hash import keccak


def sm3(message: bytes) -> bytes:
    if "sm3" in hashlib.algorithms_available:
        return hashlib.new("sm3", message).digest()
    from gmssl import sm3 as pure  # the interpreter's OpenSSL was built without it

    return bytes.fromhex(pure.sm3_hash(list(message)))


HASHES: dict[str, Callable[[bytes], bytes]] = {
    "SM3": sm3,
    "SHA256": lambda message: hashlib.sha256(message).digest(),
    "SHA256D": lambda message: hashlib.sha256(hashlib.sha256(message).digest()).digest(),
    "KECCAK256": lambda message: keccak.new(digest_bits=256, data=message).digest(),
    "SHA3_256": lambda message: hashlib.sha3_256(message).digest(),
}
