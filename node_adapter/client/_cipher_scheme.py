"""What is done to a message: the contract's enums of block ciphers, typed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from verifier.ciphers import CIPHERS, Cipher
from verifier.v1 import cipher_pb2

__all__ = [
    "CipherAlgorithm",
    "CipherByteOrder",
    "CipherMode",
    "CipherScheme",
    "CounterFormat",
    "Direction",
    "pb",
]

pb: Any = cipher_pb2


class CipherAlgorithm(IntEnum):
    """Block cipher."""

    AES = 1
    SM4 = 2
    ARIA = 3
    KUZNYECHIK = 4
    HIGHT = 5
    SKINNY_64 = 6
    SKINNY_128 = 7


class CipherMode(IntEnum):
    """Mode of operation. Only GCM authenticates."""

    ECB = 1
    CTR = 2
    CBC = 3
    GCM = 4


class Direction(IntEnum):
    """AUTHENTICATE checks the tag of a ciphertext in GCM and gives no data."""

    ENCRYPT = 1
    DECRYPT = 2
    AUTHENTICATE = 3


class CipherByteOrder(IntEnum):
    """HIGHT's two byte orders; UNSPECIFIED for other ciphers."""

    UNSPECIFIED = 0
    LOW_FIRST = 1
    HIGH_FIRST = 2


class CounterFormat(IntEnum):
    """What the iv of CTR is: a whole counter block, or half of one as GOST R 34.13 has it."""

    FULL_BLOCK = 1
    GOST_HALF_BLOCK = 2


@dataclass(frozen=True, slots=True)
class CipherScheme:
    """A cipher in a mode. `counter_format` counts in CTR alone, `byte_order` for HIGHT alone."""

    algorithm: CipherAlgorithm
    mode: CipherMode
    byte_order: CipherByteOrder = CipherByteOrder.UNSPECIFIED
    counter_format: CounterFormat = CounterFormat.FULL_BLOCK
    plugin: str = ""

    @property
    def cipher(self) -> Cipher:
        """Its sizes."""
        return CIPHERS[self.algorithm.name]

    @property
    def iv_bytes(self) -> int:
        """Bytes of an initial vector."""
        return self.cipher.iv_bytes(self.mode.name, gost=self.counter_format is CounterFormat.GOST_HALF_BLOCK)

    def behind_tag(self, nonce: bytes) -> tuple[CipherScheme, bytes]:
        """What decrypts a message in GCM once it is authenticated: CTR, and the counter behind the tag's."""
        return CipherScheme(self.algorithm, CipherMode.CTR, plugin=self.plugin), nonce + bytes(3) + b"\2"

    def message(self, direction: Direction) -> Any:
        """As the contract's message."""
        return pb.CipherScheme(
            algorithm=self.algorithm,
            mode=self.mode,
            direction=direction,
            byte_order=self.byte_order,
            counter_format=self.counter_format if self.mode is CipherMode.CTR else 0,
            plugin=self.plugin,
        )
