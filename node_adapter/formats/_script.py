"""Bitcoin's scripts as bytes: their operations, and the values on a stack."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from Cryptodome.Hash import RIPEMD160

__all__ = ["ScriptError", "hash160", "number", "operations", "push", "strictly_encoded", "truth", "without"]


class ScriptError(Exception):
    """A script that fails, whatever its signatures are worth; the text says why."""


def hash160(data: bytes) -> bytes:
    """RIPEMD-160 of SHA-256."""
    return RIPEMD160.new(hashlib.sha256(data).digest()).digest()


def operations(script: bytes) -> Iterator[tuple[int, bytes, int]]:
    """Each operation's code, the value it pushes, and where the next begins. Raises ScriptError where cut short."""
    at = 0
    while at < len(script):
        code = script[at]
        at += 1
        value = b""
        if code <= 0x4E:
            width = {0x4C: 1, 0x4D: 2, 0x4E: 4}.get(code, 0)
            length = int.from_bytes(script[at : at + width], "little") if width else code
            at += width
            if at + length > len(script):
                raise ScriptError("a push runs over the script's end")
            value = script[at : at + length]
            at += length
        elif code == 0x4F or 0x51 <= code <= 0x60:
            value = number(code - 0x50)
        yield code, value, at


def without(script: bytes, part: bytes) -> bytes:
    """The script less every place where an operation begins and `part` stands."""
    kept = b""
    start = at = 0
    ends = [0]
    try:
        for _, _, end in operations(script):
            ends.append(end)
    except ScriptError:
        pass  # what follows is no operation, and stays
    for begin in ends:
        if part and begin >= at and script.startswith(part, begin):
            kept += script[start:begin]
            at = begin
            while script.startswith(part, at):
                at += len(part)
            start = at
    return kept + script[start:]


def truth(value: bytes) -> bool:
    """Whether a value counts as true: any but zero and negative zero."""
    return any(value[:-1]) or (bool(value) and value[-1] not in (0, 0x80))


def number(value: int) -> bytes:
    """A number as scripts hold it: little-endian, with a sign bit, as short as can be."""
    size = abs(value)
    content = bytearray(size.to_bytes((size.bit_length() + 7) // 8, "little"))
    if content and content[-1] & 0x80:
        content.append(0)
    if value < 0:
        content[-1] |= 0x80
    return bytes(content)


def strictly_encoded(signature: bytes) -> bool:
    """Whether a signature with its hash type is in strict DER (BIP 66): two positive numbers, as short as can be."""
    if not 9 <= len(signature) <= 73 or signature[0] != 0x30 or signature[1] != len(signature) - 3:
        return False
    at = 2
    for _ in range(2):
        if at + 3 > len(signature) or signature[at] != 0x02:
            return False
        content = signature[at + 2 : at + 2 + signature[at + 1]]
        at += 2 + signature[at + 1]
        if not content or content[0] & 0x80 or (len(content) > 1 and content[0] == 0 and not content[1] & 0x80):
            return False
    return at == len(signature) - 1


def push(value: bytes) -> bytes:
    """The shortest operation that pushes these bytes."""
    if len(value) < 0x4C:
        return bytes([len(value)]) + value
    code, width = (0x4C, 1) if len(value) < 1 << 8 else (0x4D, 2) if len(value) < 1 << 16 else (0x4E, 4)
    return bytes([code]) + len(value).to_bytes(width, "little") + value
