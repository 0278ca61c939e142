"""What the file tool calls ciphers, and the header of the files that it writes.

A header has 32 bytes:
     0  8  "vcipher1"
     8  1  algorithm, mode, byte order, counter format: numbers of the contract's enums, a byte each
    12  1  bytes of the key
    13  1  bytes of the initial vector
    14  2  zeros
    16 16  the initial vector, then zeros
The ciphertext follows, and in GCM the tag of 16 bytes behind it. The header is not authenticated: whoever decrypts
says which algorithm it must be.
"""

from __future__ import annotations

from dataclasses import dataclass

from node_adapter.client import CipherAlgorithm, CipherByteOrder, CipherMode, CipherScheme, CounterFormat
from verifier.ciphers import CIPHERS

__all__ = ["HEADER_BYTES", "CipherFileError", "Header", "Named", "algorithm_names", "parse_algorithm"]

HEADER_BYTES = 32
_MAGIC = b"vcipher1"
_IV_PLACE = 16


class CipherFileError(Exception):
    """A file, key or option is not what it must be; the text says what to do."""


@dataclass(frozen=True, slots=True)
class Named:
    """An algorithm by its name. `key_bytes` is None where the name leaves it open."""

    name: str
    scheme: CipherScheme
    key_bytes: int | None

    @property
    def gcm(self) -> bool:
        """Whether it authenticates."""
        return self.scheme.mode is CipherMode.GCM

    @property
    def padded(self) -> bool:
        """Whether messages are padded to whole blocks (PKCS#7)."""
        return self.scheme.mode in (CipherMode.ECB, CipherMode.CBC)


def algorithm_names() -> dict[str, tuple[str, int | None]]:
    """Names of ciphers without their mode: each one's algorithm, and its key's bytes where the name says them."""
    names: dict[str, tuple[str, int | None]] = {}
    for algorithm, cipher in CIPHERS.items():
        name = algorithm.lower().replace("_", "-")
        names[name] = algorithm, None
        if len(cipher.key_bytes) > 1:
            names |= {f"{name}-{8 * size}": (algorithm, size) for size in cipher.key_bytes}
    return names


def parse_algorithm(text: str, *, byte_order: CipherByteOrder, gost: bool) -> Named:
    """An algorithm such as sm4-gcm, aes-256-ctr, skinny-128-256-cbc. Raises CipherFileError naming what there is."""
    name, _, mode = text.lower().rpartition("-")
    known = algorithm_names()
    if name not in known:
        shown = ", ".join(known)
        raise CipherFileError(f"--algorithm {text}: a cipher and a mode, such as sm4-gcm; the ciphers are {shown}")
    algorithm, key_bytes = known[name]
    modes = CIPHERS[algorithm].modes
    if mode.upper() not in modes:
        raise CipherFileError(f"--algorithm {text}: {name} has the modes {', '.join(modes).lower()}")
    if (algorithm == "HIGHT") != bool(byte_order):
        problem = "hight needs it: low-first or high-first" if algorithm == "HIGHT" else "only hight has two of them"
        raise CipherFileError(f"--byte-order: {problem}")
    if gost and (algorithm, mode) != ("KUZNYECHIK", "ctr"):
        raise CipherFileError("--gost-counter: only kuznyechik-ctr has it")
    scheme = CipherScheme(
        CipherAlgorithm[algorithm],
        CipherMode[mode.upper()],
        byte_order,
        CounterFormat.GOST_HALF_BLOCK if gost else CounterFormat.FULL_BLOCK,
    )
    return Named(text.lower(), scheme, key_bytes)


@dataclass(frozen=True, slots=True)
class Header:
    """What stands in front of a ciphertext."""

    scheme: CipherScheme
    key_bytes: int
    iv: bytes

    def pack(self) -> bytes:
        """Its 32 bytes."""
        numbers = (
            self.scheme.algorithm,
            self.scheme.mode,
            self.scheme.byte_order,
            self.scheme.counter_format,
            self.key_bytes,
            len(self.iv),
            0,
            0,
        )
        return (_MAGIC + bytes(numbers) + self.iv).ljust(HEADER_BYTES, b"\0")

    @classmethod
    def parse(cls, data: bytes, where: str) -> Header:
        """Raises CipherFileError."""
        if len(data) < HEADER_BYTES or data[:8] != _MAGIC:
            raise CipherFileError(
                f"{where}: does not begin with this tool's header; a bare ciphertext needs --detached and --iv"
            )
        try:
            scheme = CipherScheme(
                CipherAlgorithm(data[8]), CipherMode(data[9]), CipherByteOrder(data[10]), CounterFormat(data[11])
            )
        except ValueError as error:
            raise CipherFileError(f"{where}: its header is damaged: {error}") from None
        iv_bytes = scheme.iv_bytes
        rest = data[14:_IV_PLACE] + data[_IV_PLACE + iv_bytes :]
        if data[13] != iv_bytes or data[12] not in scheme.cipher.key_bytes or any(rest):
            raise CipherFileError(f"{where}: its header is damaged: its lengths are not those of its algorithm")
        return cls(scheme, data[12], data[_IV_PLACE : _IV_PLACE + iv_bytes])

    def check(self, named: Named, key_bytes: int, where: str) -> None:
        """Raises CipherFileError where a file is not what the caller says."""
        if self.scheme != named.scheme:
            have = f"{self.scheme.algorithm.name}-{self.scheme.mode.name}".lower().replace("_", "-")
            details = f", {self.scheme.byte_order.name}, {self.scheme.counter_format.name}".lower().replace("_", "-")
            raise CipherFileError(f"{where}: its header says {have}{details}; asked for is {named.name}")
        if self.key_bytes != key_bytes:
            raise CipherFileError(f"{where}: made with a key of {self.key_bytes} bytes; this one has {key_bytes}")
