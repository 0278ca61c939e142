"""The three curves and two toy ones in Python integers: what the kernels are compared with."""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass

Point = tuple[int, int] | None  # None is infinity


@dataclass(frozen=True)
class Curve:
    """y^2 = x^3 + a x + b over the integers mod p, with generator g of order n."""

    p: int
    a: int
    b: int
    g: tuple[int, int]
    n: int

    def contains(self, point: tuple[int, int]) -> bool:
        x, y = point
        return (y * y - x**3 - self.a * x - self.b) % self.p == 0

    def add(self, left: Point, right: Point) -> Point:
        if left is None:
            return right
        if right is None:
            return left
        (x1, y1), (x2, y2) = left, right
        if x1 == x2:
            if (y1 + y2) % self.p == 0:
                return None
            slope = (3 * x1 * x1 + self.a) * pow(2 * y1, -1, self.p)
        else:
            slope = (y2 - y1) * pow(x2 - x1, -1, self.p)
        x3 = (slope * slope - x1 - x2) % self.p
        return x3, (slope * (x1 - x3) - y1) % self.p

    def multiply(self, k: int, point: Point) -> Point:
        # Jacobian doublings and additions; one inversion at the end.
        result: Point = None
        k %= self.n
        if point is None or k == 0:
            return None
        x, y, z = point[0], point[1], 1
        p = self.p
        for bit in bin(k)[3:]:
            s, m = 4 * x * y * y % p, (3 * x * x + self.a * pow(z, 4, p)) % p
            x3 = (m * m - 2 * s) % p
            x, y, z = x3, (m * (s - x3) - 8 * pow(y, 4, p)) % p, 2 * y * z % p
            if bit == "1":
                if z == 0:
                    x, y, z = point[0], point[1], 1
                    continue
                u, w = point[0] * z * z % p, point[1] * z**3 % p
                h, r = (u - x) % p, (w - y) % p
                if h == 0 and r == 0:
                    s, m = 4 * x * y * y % p, (3 * x * x + self.a * pow(z, 4, p)) % p
                    x3 = (m * m - 2 * s) % p
                    x, y, z = x3, (m * (s - x3) - 8 * pow(y, 4, p)) % p, 2 * y * z % p
                    continue
                x3 = (r * r - h**3 - 2 * x * h * h) % p
                y = (r * (x * h * h - x3) - y * h**3) % p
                x, z = x3, z * h % p
        if z == 0:
            return result
        inverse = pow(z, -1, p)
        return x * inverse**2 % p, y * inverse**3 % p

    def lift(self, x: int) -> tuple[int, int] | None:
        """A point above x, or None."""
        square = (x**3 + self.a * x + self.b) % self.p
        y = pow(square, (self.p + 1) // 4, self.p)
        return (x, y) if y * y % self.p == square else None


SM2 = Curve(
    2**256 - 2**224 - 2**96 + 2**64 - 1,
    -3,
    0x28E9FA9E9D9F5E344D5A9E4BCF6509A7F39789F515AB8F92DDBCBD414D940E93,
    (
        0x32C4AE2C1F1981195F9904466A39C9948FE30BBFF2660BE1715A4589334C74C7,
        0xBC3736A2F4F6779C59BDCEE36B692153D0A9877CC62A474002DF32E52139F0A0,
    ),
    0xFFFFFFFEFFFFFFFFFFFFFFFFFFFFFFFF7203DF6B21C6052B53BBF40939D54123,
)
P256 = Curve(
    2**256 - 2**224 + 2**192 + 2**96 - 1,
    -3,
    0x5AC635D8AA3A93E7B3EBBD55769886BC651D06B0CC53B0F63BCE3C3E27D2604B,
    (
        0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
        0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5,
    ),
    0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551,
)
SECP256K1 = Curve(
    2**256 - 2**32 - 977,
    0,
    7,
    (
        0x79BE667EF9DCBBAC55A06295CE870B07029BFCDB2DCE28D959F2815B16F81798,
        0x483ADA7726A3C4655DA4FBFC0E1108A8FD17B448A68554199C47D08FFB10D4B8,
    ),
    0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141,
)


def combine(curve: Curve, u1: int, u2: int, q: Point) -> Point:
    """u1 G + u2 Q."""
    return curve.add(curve.multiply(u1, curve.g), curve.multiply(u2, q))


def b32(number: int) -> bytes:
    return number.to_bytes(32, "big")


# ---- SM2 (GB/T 32918.2), from the standard's text


def sm3(data: bytes) -> bytes:
    return hashlib.new("sm3", data).digest()


def sm2_identity(identity: bytes, key: tuple[int, int]) -> bytes:
    """ZA."""
    fields = [SM2.a % SM2.p, SM2.b, *SM2.g, *key]
    return sm3((8 * len(identity)).to_bytes(2, "big") + identity + b"".join(map(b32, fields)))


def sm2_sign(d: int, e: int, generator: random.Random) -> tuple[int, int]:
    while True:
        k = generator.randrange(1, SM2.n)
        point = SM2.multiply(k, SM2.g)
        assert point is not None
        r = (e + point[0]) % SM2.n
        s = pow(1 + d, -1, SM2.n) * (k - r * d) % SM2.n
        if r and r + k != SM2.n and s:
            return r, s


def sm2_verify(e: int, r: int, s: int, key: tuple[int, int]) -> bool:
    t = (r + s) % SM2.n
    if not (0 < r < SM2.n and 0 < s < SM2.n) or t == 0:
        return False
    point = combine(SM2, s, t, key)
    return point is not None and (e + point[0]) % SM2.n == r
