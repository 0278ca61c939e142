"""Malformed values by mutation: of signatures, keys and whole columns."""

from __future__ import annotations

import random

from _ecdsa_cases import be32, der, public, sign
from _reference import Curve, spki


def mutated(value: bytes, generator: random.Random) -> bytes:
    """The value after one to three changes of the kinds that break parsers."""
    data = bytearray(value)
    for _ in range(generator.choice((1, 1, 1, 2, 3))):
        place = generator.randrange(len(data) + 1)
        kind = generator.randrange(7)
        if kind == 0:
            data.insert(place, generator.choice((0x00, 0x01, 0x02, 0x30, 0x7F, 0x80, 0x81, 0x82, 0x84, 0xFF)))
        elif kind == 1:
            data = data[:place]
        elif kind == 2:
            data += generator.randbytes(generator.choice((1, 2, 33, 200)))
        elif kind == 3 and data:
            del data[min(place, len(data) - 1)]
        elif kind == 4 and data:
            data[min(place, len(data) - 1)] = generator.choice((0x00, 0x02, 0x30, 0x7F, 0x80, 0x81, 0x84, 0xFF))
        elif kind == 5 and data:
            data[min(place, len(data) - 1)] ^= 1 << generator.randrange(8)
        elif kind == 6:
            data = bytearray(generator.randbytes(generator.randrange(140)))
    return bytes(data)


def signatures(curve: Curve, encoding: str, count: int, generator: random.Random) -> list[bytes]:
    """Well-formed ones and what mutation makes of them."""
    made = []
    for i in range(count):
        d, k = 1 + i % 5, 7 + i % 11
        r, s, v = sign(curve, d, be32(i % 5), k)
        if generator.random() < 0.2:
            r = generator.choice((0, 1, curve.n, 2**255, 2**264, 2**400 - 1))
        if encoding.startswith("DER"):
            value = der(r, s)
        else:
            tail = {"RAW_RS": b"", "RAW_RSV": bytes([v]), "RAW_RS_KEY": bytes(64)}[encoding]
            value = be32(r % 2**256) + be32(s) + tail
        made.append(value if i % 4 == 0 else mutated(value, generator))
    return made


def keys(curve: Curve, encoding: str, count: int, generator: random.Random) -> list[bytes]:
    """Well-formed ones and what mutation makes of them."""
    made = []
    for i in range(count):
        x, y = public(curve, 1 + i % 5)
        compressed, whole = bytes([2 + y % 2]) + be32(x), b"\x04" + be32(x) + be32(y)
        value = {
            "RAW_XY": whole[1:],
            "SEC1_UNCOMPRESSED": whole,
            "SEC1_COMPRESSED": compressed,
            "SPKI": spki(curve, whole if i % 2 else compressed),
            "IN_SIGNATURE": bytes(64) + whole[1:],
        }[encoding]
        made.append(value if i % 4 == 0 else mutated(value, generator))
    return made
