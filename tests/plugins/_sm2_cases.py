"""SM2 in straight Python integers, and items made to order.

A verification computes R = s G + t Q with t = r + s; both scalars can be chosen freely: r = t - s, e = r - x(R).
"""

from __future__ import annotations

import functools
import hashlib
import random
from dataclasses import dataclass

from _reference import SM2, Point, RefusedError, parse_signature, public_key

from verifier.model import Code
from verifier.schemes import DEFAULT_SM2_USER_ID

P, N = SM2.p, SM2.n


def be32(number: int) -> bytes:
    return number.to_bytes(32, "big")


def sm3(data: bytes) -> bytes:
    return hashlib.new("sm3", data).digest()


def identity_hash(identity: bytes, key: tuple[int, int]) -> bytes:
    """ZA of GB/T 32918.2, 5.5."""
    numbers = [SM2.a % P, SM2.b, *SM2.g, *key]
    return sm3((8 * len(identity)).to_bytes(2, "big") + identity + b"".join(be32(number) for number in numbers))


def verify_code(
    data: bytes,
    signature: bytes,
    key: bytes,
    *,
    input_kind: str = "DIGEST",
    signature_encoding: str = "RAW_RS",
    key_encoding: str = "RAW_XY",
    low_s: str = "ACCEPT_ANY",
    identity: bytes = DEFAULT_SM2_USER_ID,
) -> Code:
    """The code of one item: signature, then key, then input, then the equation (GB/T 32918.2, 7.1)."""
    try:
        r, s, _ = parse_signature(signature_encoding, signature)
        if not (0 < r < N and 0 < s < N):
            return Code.OUT_OF_RANGE
        if low_s == "REQUIRE" and s > N // 2:
            return Code.HIGH_S
        q = public_key(SM2, key_encoding, signature if key_encoding == "IN_SIGNATURE" else key)
    except RefusedError as refused:
        return refused.code
    if input_kind != "MESSAGE" and len(data) != 32:
        return Code.INPUT_LENGTH
    digest = data if input_kind == "DIGEST" else sm3(identity_hash(identity, q) + data)
    t = (r + s) % N
    point = SM2.add(SM2.multiply(s, SM2.g), SM2.multiply(t, q)) if t else None
    valid = point is not None and (int.from_bytes(digest, "big") + point[0]) % N == r
    return Code.VALID if valid else Code.INVALID


@dataclass
class Item:
    """One item with raw encodings: e, r || s, x || y."""

    name: str
    e: int
    r: int
    s: int
    key: tuple[int, int]

    @property
    def digest(self) -> bytes:
        return be32(self.e)

    @property
    def signature(self) -> bytes:
        return be32(self.r) + be32(self.s)

    @property
    def key_bytes(self) -> bytes:
        return be32(self.key[0]) + be32(self.key[1])

    @functools.cached_property
    def code(self) -> Code:
        return verify_code(self.digest, self.signature, self.key_bytes)


def finite(point: Point) -> tuple[int, int]:
    assert point is not None
    return point


def public(d: int) -> tuple[int, int]:
    return finite(SM2.multiply(d % N, SM2.g))


def sign(d: int, e: int, generator: random.Random) -> tuple[int, int]:
    """GB/T 32918.2, 6.1."""
    while True:
        k = generator.randrange(1, N)
        r = (e + public(k)[0]) % N
        s = pow(1 + d, -1, N) * (k - r * d) % N
        if r and s and r + k != N:
            return r, s


def chosen(name: str, d: int, s: int, t: int) -> Item:
    """A valid signature under the key d whose verification computes s G + t Q; at infinity e is r."""
    point = SM2.multiply((s + t * d) % N, SM2.g)
    r = (t - s) % N
    return Item(name, (r - (point[0] if point else 0)) % N, r, s, public(d))


def wrapped(s: int, t: int) -> Item:
    """A valid signature whose R has x >= n. The key follows from R."""
    r_point = next(point for x in range(N + 1, P) if (point := SM2.lift(x, False)))
    rest = SM2.add(r_point, SM2.multiply(N - s, SM2.g))
    key = finite(SM2.multiply(pow(t, -1, N), rest))
    return Item("x(R) is above n", ((t - s) - r_point[0]) % N, (t - s) % N, s, key)


@functools.cache
def exceptional() -> list[Item]:
    """Items that leave the fast formulas, or come close: equal and opposite points in every place of the ladder."""
    d = 0xD1CE
    items = [
        chosen("s G = t Q", d, 9 * d, 9),
        chosen("s G = -t Q", d, -9 * d % N, 9),
        chosen("R is G", d, (1 - 6 * d) % N, 6),
        chosen("R is -G", d, (-1 - 6 * d) % N, 6),
        chosen("s and t are n - 1, r is 0", d, N - 1, N - 1),
        wrapped(1234, 5678),
    ]
    # An addition meets its own point in the ladder of t Q where t = n - 6 (its last digit is then -3), and in the
    # comb of s = 1, whose first digit is 1 - 2^w.
    items += [chosen(f"t is n - {even}", d, 77, N - even) for even in (2, 4, 6, 8, 10, 30, 62)]
    for first in (255, 65535):
        items.append(chosen(f"t Q is {first} G, s is 1", first * pow(3, -1, N) % N, 1, 3))
        items.append(chosen(f"t Q is -{first} G, s is 1", -first * pow(3, -1, N) % N, 1, 3))
    items += [chosen(f"t is {t:x}", d, 78, t) for t in (1, 2, 3, 30, 31, 32, 33, 2**255, N // 2, N // 2 + 1, N - 1)]
    # Keys that are small multiples of G meet the table of G.
    for key in (1, 2, N - 1):
        for s in (1, 2, 16, 127, 128, 255, 256, 65535, N - 1):
            for t in (1, 2, N - 1, s, N - s):
                if t != s:  # r would be 0
                    items.append(chosen(f"Q is {key:x} G, s {s:x}, t {t:x}", key, s, t))
    return items


@functools.cache
def edges() -> list[Item]:
    """Boundary values of every field, and bad keys."""
    d = 0xD1CE
    good = chosen("plain", d, 3, 5)
    e, r, s, key = good.e, good.r, good.s, good.key
    x, y = key
    generator = random.Random(13)
    items = [good]
    items += [
        Item(f"e is {name}", value, *sign(d, value, generator), key)
        for name, value in (
            ("0", 0),
            ("1", 1),
            ("n - 1", N - 1),
            ("n", N),
            ("n + 1", N + 1),
            ("all ones", 2**256 - 1),
        )
    ]
    for name, new_r, new_s in (
        ("r is 0", 0, s),
        ("s is 0", r, 0),
        ("r is n", N, s),
        ("s is n", r, N),
        ("r is n + 1", N + 1, s),
        ("s is n + 1", r, N + 1),
        ("r is p", P, s),
        ("r and s are all ones", 2**256 - 1, 2**256 - 1),
        ("r is n - 1", N - 1, s),
        ("s is n - 1", r, N - 1),
        ("r is 1", 1, s),
        ("s is 1", r, 1),
        ("t is 0", r, N - r),
        ("r and s swapped", s, r),
        ("s negated", r, N - s),
        ("r changed", r ^ 1, s),
        ("s changed", r, s ^ 1 << 200),
    ):
        items.append(Item(name, e, new_r, new_s, key))
    items += [
        Item("e changed", e ^ 1, r, s, key),
        Item("e and n more", e + N if e + N < 2**256 else e, r, s, key),
        Item("key negated", e, r, s, (x, P - y)),
        Item("another key", e, r, s, public(d + 1)),
        Item("key off the curve", e, r, s, (x, y ^ 1)),
        Item("key is (0, 0)", e, r, s, (0, 0)),
        Item("key x is p", e, r, s, (P, y)),
        Item("key y is p", e, r, s, (x, P)),
        Item("key x is n", e, r, s, (N, y)),
        Item("key is all ones", e, r, s, (2**256 - 1, 2**256 - 1)),
    ]
    return items
