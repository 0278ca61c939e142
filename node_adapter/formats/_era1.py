"""Ethereum's history files: e2store records with headers and bodies, each compressed with framed Snappy (era1)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import cramjam

from node_adapter.errors import FormatError

__all__ = ["VERSION", "blocks"]

VERSION = b"\x65\x32"  # the type of a file's first record, which has no content
_HEADER, _BODY = b"\x03\0", b"\x04\0"
_PREFIX_BYTES = 8  # type (2), length of the content (u32 little-endian), two zeros


def blocks(data: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Each block's header and body, both RLP, behind the body's offset. Records of other types are passed over.

    Headers come before their bodies, in the same order. Raises FormatError at the record that is wrong, and where
    there is no block at all: files of the consensus chain (era) have the same records, with other content.
    """
    headers: deque[bytes] = deque()
    others: set[str] = set()
    at = given = 0
    while at < len(data):
        start = at + _PREFIX_BYTES
        if start > len(data):
            raise FormatError(at, f"{len(data) - at} bytes are left; a record begins with {_PREFIX_BYTES}")
        kind, length = data[at : at + 2], int.from_bytes(data[at + 2 : at + 6], "little")
        if data[at + 6 : start] != b"\0\0":
            raise FormatError(at + 6, f"{data[at + 6 : start].hex()} in a record; these two bytes are zero")
        if length > len(data) - start:
            raise FormatError(at + 2, f"a record of {length} bytes, but {len(data) - start} are left")
        if kind == VERSION and length:
            raise FormatError(at + 2, f"a version record of {length} bytes; it has none")
        content = data[start : start + length]
        if kind == _HEADER:
            headers.append(_uncompressed(content, start))
        elif kind == _BODY:
            if not headers:
                raise FormatError(at, "a body without its header")
            yield start, headers.popleft(), _uncompressed(content, start)
            given += 1
        else:
            others.add(kind.hex())
        at = start + length
    if headers:
        raise FormatError(at, f"the file ends before the bodies of {len(headers)} headers")
    if not given:
        raise FormatError(0, f"no block of Ethereum, but records of types {', '.join(sorted(others))}")


def _uncompressed(content: bytes, at: int) -> bytes:
    try:
        return bytes(cramjam.snappy.decompress(content))
    except cramjam.DecompressionError as error:
        raise FormatError(at, f"not framed Snappy: {error}") from None
