"""How the items of a batch are to be read: the contract's enums and scheme, typed."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from node_adapter.client._wire import pb
from node_adapter.errors import RequestError
from verifier.schemes import MAX_SM2_USER_ID_BYTES, fixed_width

__all__ = ["Algorithm", "Hash", "InputKind", "KeyEncoding", "LowS", "Priority", "Scheme", "SignatureEncoding"]


class Algorithm(IntEnum):
    """Signature algorithm, curve included. UNSPECIFIED needs `Scheme.plugin`: the plugin's only algorithm."""

    UNSPECIFIED = 0
    SM2 = 1
    ECDSA_P256 = 2
    ECDSA_SECP256K1 = 3


class InputKind(IntEnum):
    """What the input column holds."""

    MESSAGE = 1
    DIGEST = 2
    HASH_AS_MESSAGE = 3


class SignatureEncoding(IntEnum):
    """What the signature column holds."""

    RAW_RS = 1
    DER_STRICT = 2
    DER_LAX = 3
    RAW_RSV = 4
    RAW_RS_KEY = 5


class KeyEncoding(IntEnum):
    """What the key column holds."""

    RAW_XY = 1
    SEC1_UNCOMPRESSED = 2
    SEC1_COMPRESSED = 3
    SPKI = 4
    IN_SIGNATURE = 5
    INDEX = 6


class LowS(IntEnum):
    """Whether s > n / 2 is accepted."""

    ACCEPT_ANY = 1
    REQUIRE = 2


class Hash(IntEnum):
    """Hash functions; UNSPECIFIED is the algorithm's own."""

    UNSPECIFIED = 0
    SM3 = 1
    SHA256 = 2
    SHA256D = 3
    KECCAK256 = 4
    SHA3_256 = 5


class Priority(IntEnum):
    """More urgent classes are batched first."""

    CONSENSUS = 1
    BLOCK = 2
    POOL = 3
    BULK = 4


@dataclass(frozen=True, slots=True)
class Scheme:
    """Algorithm, input kind, encodings and policy of one batch. Nothing is guessed from a length.

    `sm2_user_id` None means 1234567812345678; empty is a different value. `digest_bytes` 0 means 32.
    `plugin` asks for one version, "name@version"; empty takes the active one. Raises RequestError for a user
    id over 8191 bytes.
    """

    algorithm: Algorithm
    input_kind: InputKind
    signature_encoding: SignatureEncoding
    key_encoding: KeyEncoding = KeyEncoding.IN_SIGNATURE
    low_s: LowS = LowS.ACCEPT_ANY
    hash: Hash = Hash.UNSPECIFIED
    sm2_user_id: bytes | None = None
    digest_bytes: int = 0
    plugin: str = ""

    def __post_init__(self) -> None:
        if self.sm2_user_id is None:
            return
        if len(self.sm2_user_id) > MAX_SM2_USER_ID_BYTES:
            raise RequestError(
                "scheme.sm2_user_id", f"{len(self.sm2_user_id)} bytes; the limit is {MAX_SM2_USER_ID_BYTES}"
            )
        object.__setattr__(self, "sm2_user_id", bytes(self.sm2_user_id))  # a scheme is a key of caches

    def width(self, column: str) -> int | None:
        """Bytes of one value of a column, or None where values vary in width."""
        return _width(self, column)

    def message(self) -> Any:
        """The contract's message."""
        scheme = pb.Scheme(
            algorithm=int(self.algorithm),
            input_kind=int(self.input_kind),
            signature_encoding=int(self.signature_encoding),
            key_encoding=int(self.key_encoding),
            low_s=int(self.low_s),
            hash=int(self.hash),
            digest_bytes=self.digest_bytes,
            plugin=self.plugin,
        )
        if self.sm2_user_id is not None:
            scheme.sm2_user_id = self.sm2_user_id
        return scheme


@functools.lru_cache(256)  # asked with every batch, of few schemes
def _width(scheme: Scheme, column: str) -> int | None:
    return fixed_width(
        column,
        {
            "input_kind": scheme.input_kind.name,
            "signature_encoding": scheme.signature_encoding.name,
            "key_encoding": scheme.key_encoding.name,
            "digest_bytes": scheme.digest_bytes,
        },
    )
