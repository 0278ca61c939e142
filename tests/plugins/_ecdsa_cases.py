"""ECDSA items made to order: signatures with chosen u1 and u2, edge values, broken encodings.

`u1 G + u2 Q` of a verification can be chosen freely: with R = u1 G + u2 Q, r = x(R) mod n, s = r / u2 and e = u1 s.
"""

from __future__ import annotations

from dataclasses import dataclass

from _reference import Curve, Point

from verifier.model import Code


def be32(number: int) -> bytes:
    return number.to_bytes(32, "big")


def der(r: int, s: int) -> bytes:
    """SEQUENCE { INTEGER r, INTEGER s }, as long as it is short."""
    body = b""
    for number in (r, s):
        content = number.to_bytes(number.bit_length() // 8 + 1, "big")
        body += bytes([2, len(content)]) + content
    return bytes([0x30, len(body)]) + body


@dataclass(frozen=True)
class Item:
    """One item with raw encodings: a digest of 32 bytes, r || s, x || y."""

    name: str
    digest: bytes
    r: int
    s: int
    key: tuple[int, int]
    code: Code

    @property
    def signature(self) -> bytes:
        return be32(self.r) + be32(self.s)

    @property
    def key_bytes(self) -> bytes:
        return be32(self.key[0]) + be32(self.key[1])


def finite(point: Point) -> tuple[int, int]:
    assert point is not None
    return point


def public(curve: Curve, d: int) -> tuple[int, int]:
    return finite(curve.multiply(d % curve.n, curve.g))


def sign(curve: Curve, d: int, digest: bytes, k: int) -> tuple[int, int, int]:
    """(r, s, recovery id) with the nonce k."""
    x, y = public(curve, k)
    r = x % curve.n
    s = pow(k, -1, curve.n) * (int.from_bytes(digest[:32], "big") + r * d) % curve.n
    return r, s, y % 2 + 2 * (x >= curve.n)


def chosen(curve: Curve, name: str, d: int, u1: int, u2: int) -> Item:
    """A valid signature of key d whose verification computes u1 G + u2 Q; at infinity an invalid one."""
    n = curve.n
    point = curve.multiply((u1 + u2 * d) % n, curve.g)
    r = 12345 if point is None else point[0] % n
    s = r * pow(u2, -1, n) % n
    return Item(name, be32(u1 * s % n), r, s, public(curve, d), Code.INVALID if point is None else Code.VALID)


def wrapped(curve: Curve, u1: int, u2: int) -> Item:
    """A valid signature whose R has x >= n, so that r = x - n. The key follows from R."""
    n = curve.n
    x = next(x for x in range(n + 1, curve.p) if curve.lift(x, False))
    r = x - n
    s = r * pow(u2, -1, n) % n
    rest = curve.add(curve.lift(x, False), curve.multiply(-u1 % n, curve.g))
    key = finite(curve.multiply(pow(u2, -1, n), rest))
    return Item("r is x - n", be32(u1 * s % n), r, s, key, Code.VALID)


def edges(curve: Curve) -> list[Item]:
    """Boundary values, exceptional points and bad keys, with the codes that they must get."""
    n, p, d = curve.n, curve.p, 0xD1CE
    key = public(curve, d)
    x, y = key
    good = chosen(curve, "plain", d, 3, 5)
    items = [
        good,
        chosen(curve, "u1 is 0 (digest is 0)", d, 0, 7),
        chosen(curve, "u1 is 0 and Q is G", 1, 0, 1),
        chosen(curve, "u1 G = u2 Q", d, 9 * d, 9),
        chosen(curve, "u1 G = -u2 Q", d, -9 * d % n, 9),
        chosen(curve, "Q is G, u1 = u2", 1, 11, 11),
        chosen(curve, "Q is -G, u1 = u2", n - 1, 11, 11),
        chosen(curve, "Q is -G", n - 1, 12, 11),
        chosen(curve, "Q is 2 G", 2, 1, 1),
        chosen(curve, "u1 and u2 are n - 1", d, n - 1, n - 1),
        chosen(curve, "u2 is 1", d, 5, 1),
        chosen(curve, "R is G", d, (1 - 6 * d) % n, 6),
        chosen(curve, "R is -G", d, (-1 - 6 * d) % n, 6),
        chosen(curve, "R is Q", d, 0, 1),
        wrapped(curve, 1234, 5678),
    ]
    digest = good.digest
    for name, r, s in (
        ("r is 0", 0, good.s),
        ("s is 0", good.r, 0),
        ("r and s are 0", 0, 0),
        ("r is n", n, good.s),
        ("s is n", good.r, n),
        ("r is n + 1", n + 1, good.s),
        ("r and s are 2^256 - 1", 2**256 - 1, 2**256 - 1),
        ("s is p", good.r, p),
    ):
        items.append(Item(name, digest, r, s, key, Code.OUT_OF_RANGE))
    for name, r, s in (
        ("r is 1", 1, good.s),
        ("r is n - 1", n - 1, good.s),
        ("s is 1", good.r, 1),
        ("s is n - 1", good.r, n - 1),
        ("r and s swapped", good.s, good.r),
        ("r changed", good.r ^ 1, good.s),
        ("s changed", good.r, good.s ^ 1),
    ):
        items.append(Item(name, digest, r, s, key, Code.INVALID))
    items += [
        Item("s negated", digest, good.r, n - good.s, key, Code.VALID),
        Item("digest changed", be32(int.from_bytes(digest, "big") ^ 1), good.r, good.s, key, Code.INVALID),
        Item("key negated", digest, good.r, good.s, (x, p - y), Code.INVALID),
        Item("key of another", digest, good.r, good.s, public(curve, d + 1), Code.INVALID),
        Item("key off the curve", digest, good.r, good.s, (x, y ^ 1), Code.KEY_NOT_ON_CURVE),
        Item("key is (0, 0)", digest, good.r, good.s, (0, 0), Code.KEY_NOT_ON_CURVE),
        Item("key x is p", digest, good.r, good.s, (p, y), Code.KEY_RANGE),
        Item("key y is p", digest, good.r, good.s, (x, p), Code.KEY_RANGE),
        Item("key is all ones", digest, good.r, good.s, (2**256 - 1, 2**256 - 1), Code.KEY_RANGE),
    ]
    # Digests at and above n count modulo n.
    for value in (n - 1, n, n + 1, 2**256 - 1):
        r, s, _ = sign(curve, d, be32(value), 0xBEEF)
        items.append(Item(f"digest is n + {value - n}", be32(value), r, s, key, Code.VALID))
    r, s, _ = sign(curve, d, be32(5), 0xBEEF)
    items.append(Item("digest is n + 5 for 5", be32(n + 5), r, s, key, Code.VALID))
    return items
