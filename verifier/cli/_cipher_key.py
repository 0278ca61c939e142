"""Key files: who may read them, and what is in them."""

from __future__ import annotations

import enum
import os
import stat
from pathlib import Path

from verifier.ciphers import Cipher
from verifier.cli._cipher_names import CipherFileError, Named

__all__ = ["KeyFormat", "read_key"]

_MOST = 4096


class KeyFormat(enum.StrEnum):
    """How a key is written down."""

    hex = "hex"
    raw = "raw"


def read_key(path: Path, key_format: KeyFormat, named: Named, *, any_mode: bool) -> bytearray:
    """The key in a file, for the caller to overwrite. Raises CipherFileError; OSError where it cannot be read."""
    with path.open("rb", buffering=0) as file:
        _check_mode(path, os.fstat(file.fileno()), any_mode)
        data = bytearray(_MOST)
        size = file.readinto(data) or 0
    try:
        key = bytearray(memoryview(data)[:size]) if key_format is KeyFormat.raw else _from_hex(path, data[:size])
    finally:
        data[:] = bytes(len(data))
    _check_length(path, key, named)
    return key


def _check_mode(path: Path, status: os.stat_result, any_mode: bool) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise CipherFileError(f"{path}: a key file must be a regular file")
    if any_mode:
        return
    if status.st_uid not in (os.geteuid(), 0):
        raise CipherFileError(f"{path}: belongs to user {status.st_uid}, who may change it")
    if status.st_mode & 0o077:
        raise CipherFileError(
            f"{path}: mode {stat.S_IMODE(status.st_mode):04o} lets others at it: chmod 600, or say --any-key-mode"
        )


def _from_hex(path: Path, data: bytearray) -> bytearray:
    try:
        return bytearray.fromhex(data.decode("ascii"))
    except ValueError:
        raise CipherFileError(
            f"{path}: not hexadecimal; for a file of the key's own bytes say --key-format raw"
        ) from None


def _check_length(path: Path, key: bytearray, named: Named) -> None:
    cipher: Cipher = named.scheme.cipher
    sizes = cipher.key_bytes if named.key_bytes is None else (named.key_bytes,)
    if len(key) not in sizes:
        wanted = " or ".join(map(str, sizes))
        raise CipherFileError(f"{path}: a key of {len(key)} bytes; {named.name} takes {wanted}")
