"""Widths of the contract's encodings, in bytes, where they are fixed.

A column of a fixed-width encoding may still come with offsets: items of another length are then malformed one by
one, and their neighbours are decided. An encoding that is not listed here is of variable width.
"""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["DEFAULT_SM2_USER_ID", "MAX_SM2_USER_ID_BYTES", "fixed_width"]

DEFAULT_SM2_USER_ID = b"1234567812345678"
MAX_SM2_USER_ID_BYTES = 8191  # its length in bits must fit 16 bits (GB/T 32918.2, 5.5)

_INPUT = {"DIGEST": 32, "HASH_AS_MESSAGE": 32}
_SIGNATURE = {"RAW_RS": 64, "RAW_RSV": 65, "RAW_RS_KEY": 128}
_KEY = {"RAW_XY": 64, "SEC1_UNCOMPRESSED": 65, "SEC1_COMPRESSED": 33, "IN_SIGNATURE": 0, "INDEX": 4}


def fixed_width(column: str, parameters: Mapping[str, str | int]) -> int | None:
    """Bytes of one value of a column under these parameters, or None where values vary in width."""
    if column == "input":
        kind = str(parameters.get("input_kind", "MESSAGE"))
        if kind == "DIGEST":
            return int(parameters.get("digest_bytes", 32)) or 32
        return _INPUT.get(kind)
    if column == "signature":
        return _SIGNATURE.get(str(parameters.get("signature_encoding")))
    if column == "key":
        return _KEY.get(str(parameters.get("key_encoding", "IN_SIGNATURE")))
    return None
