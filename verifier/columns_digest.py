"""What a client and the daemon compare to be sure that an answer is about the columns that were sent."""

from __future__ import annotations

import xxhash

__all__ = ["columns_digest"]


def columns_digest(*parts: bytes | memoryview) -> bytes:
    """XXH3, 64 bits in canonical form (big-endian), over the parts, each behind its length (u64 little-endian).

    Parts are bytes or views of bytes. Those of a request are data and offsets of its columns in the order of their
    fields, and of VerifyRequest the key table at last. It finds mix-ups, not forgers: whoever can change an answer
    can change this, too. At 23 GB/s on one CPU core it costs an item of 129 bytes 6 ns; SHA-256 would cost 70
    (docs/decisions/0012).
    """
    state = xxhash.xxh3_64()
    update = state.update
    for part in parts:
        update(len(part).to_bytes(8, "little"))
        update(part)
    return state.digest()
