"""Encodings and ECDSA in straight Python integers: slow, obvious, and written apart from the kernels."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from verifier.model import Code

Point = tuple[int, int] | None  # None is the point at infinity


class RefusedError(Exception):
    """The value is decided already; carries its code."""

    def __init__(self, code: Code) -> None:
        super().__init__(code.name)
        self.code = code


@dataclass(frozen=True)
class Curve:
    """y^2 = x^3 + ax + b modulo p, a base point of prime order n, and the curve's object identifier in DER."""

    name: str
    p: int
    a: int
    b: int
    g: tuple[int, int]
    n: int
    oid: bytes

    def contains(self, x: int, y: int) -> bool:
        return (y * y - (x**3 + self.a * x + self.b)) % self.p == 0

    def lift(self, x: int, odd: bool) -> tuple[int, int] | None:
        """The point with this x and parity; None where there is none. p = 3 mod 4."""
        square = (x**3 + self.a * x + self.b) % self.p
        y = pow(square, (self.p + 1) // 4, self.p)
        if y * y % self.p != square:
            return None
        return x, y if y % 2 == odd else self.p - y

    def add(self, left: Point, right: Point) -> Point:
        if left is None or right is None:
            return right if left is None else left
        (x1, y1), (x2, y2) = left, right
        if x1 == x2 and (y1 + y2) % self.p == 0:
            return None
        if left == right:
            slope = (3 * x1 * x1 + self.a) * pow(2 * y1, -1, self.p)
        else:
            slope = (y2 - y1) * pow(x2 - x1, -1, self.p)
        x3 = (slope * slope - x1 - x2) % self.p
        return x3, (slope * (x1 - x3) - y1) % self.p

    @functools.lru_cache(maxsize=50_000)  # noqa: B019  (three curves, which live as long as the process)
    def multiply(self, scalar: int, point: Point) -> Point:
        result: Point = None
        for bit in bin(scalar)[2:]:
            result = self.add(result, result)
            if bit == "1":
                result = self.add(result, point)
        return result


SECP256K1 = Curve(
    "ECDSA_SECP256K1",
    2**256 - 2**32 - 977,
    0,
    7,
    (
        0x79BE667EF9DCBBAC55A06295CE870B07029BFCDB2DCE28D959F2815B16F81798,
        0x483ADA7726A3C4655DA4FBFC0E1108A8FD17B448A68554199C47D08FFB10D4B8,
    ),
    0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141,
    bytes.fromhex("06052b8104000a"),
)
P256 = Curve(
    "ECDSA_P256",
    2**256 - 2**224 + 2**192 + 2**96 - 1,
    -3,
    0x5AC635D8AA3A93E7B3EBBD55769886BC651D06B0CC53B0F63BCE3C3E27D2604B,
    (
        0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
        0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5,
    ),
    0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551,
    bytes.fromhex("06082a8648ce3d030107"),
)
SM2 = Curve(
    "SM2",
    2**256 - 2**224 - 2**96 + 2**64 - 1,
    -3,
    0x28E9FA9E9D9F5E344D5A9E4BCF6509A7F39789F515AB8F92DDBCBD414D940E93,
    (
        0x32C4AE2C1F1981195F9904466A39C9948FE30BBFF2660BE1715A4589334C74C7,
        0xBC3736A2F4F6779C59BDCEE36B692153D0A9877CC62A474002DF32E52139F0A0,
    ),
    0xFFFFFFFEFFFFFFFFFFFFFFFFFFFFFFFF7203DF6B21C6052B53BBF40939D54123,
    bytes.fromhex("06082a811ccf5501822d"),
)
CURVES = {curve.name: curve for curve in (SECP256K1, P256, SM2)}


# ---- signatures ----


def der_element(data: bytes, tag: int) -> tuple[bytes, bytes]:
    """One element of that tag at the front, and what follows it. Raises ValueError."""
    if len(data) < 2 or data[0] != tag:
        raise ValueError("tag")
    length, rest = data[1], data[2:]
    if length >= 0x80:
        octets = length - 0x80
        if not 1 <= octets <= 4 or len(rest) < octets:
            raise ValueError("length octets")
        length, rest = int.from_bytes(rest[:octets], "big"), rest[octets:]
        if octets != max(1, (length.bit_length() + 7) // 8) or length < 0x80:
            raise ValueError("not the shortest length")
    if length > len(rest):
        raise ValueError("truncated")
    return rest[:length], rest[length:]


def der_unsigned(content: bytes) -> int:
    """An INTEGER's content, shortest form, not negative. Raises ValueError."""
    number = int.from_bytes(content, "big", signed=True)
    if not content or number < 0 or content != number.to_bytes(number.bit_length() // 8 + 1, "big"):
        raise ValueError("integer")
    return number


def strict_signature(data: bytes) -> tuple[int, int]:
    """DER of SEQUENCE { INTEGER r, INTEGER s }. Raises RefusedError."""
    try:
        inside, after = der_element(data, 0x30)
        r, inside = der_element(inside, 0x02)
        s, inside = der_element(inside, 0x02)
        if after or inside:
            raise ValueError("trailing bytes")
        return der_unsigned(r), der_unsigned(s)
    except ValueError:
        raise RefusedError(Code.SIGNATURE_DER) from None


def lax_signature(data: bytes) -> tuple[int, int]:
    """What OpenSSL took before 2015, by the rules in Bitcoin's lax parser. Raises RefusedError."""

    def integer(rest: bytes) -> tuple[int, bytes]:
        if rest[:1] != b"\x02" or len(rest) < 2:
            raise ValueError("integer")
        length, rest = rest[1], rest[2:]
        if length >= 0x80:
            octets = rest[: length - 0x80]
            if len(octets) < length - 0x80 or len(octets.lstrip(b"\0")) > 3:
                raise ValueError("length octets")
            length, rest = int.from_bytes(octets, "big"), rest[len(octets) :]
        if length > len(rest):
            raise ValueError("truncated")
        return int.from_bytes(rest[:length], "big"), rest[length:]

    try:
        if data[:1] != b"\x30" or len(data) < 2:
            raise ValueError("sequence")
        skip = max(0, data[1] - 0x80)
        if skip > len(data) - 2:
            raise ValueError("length octets")
        r, rest = integer(data[2 + skip :])
        s, _ = integer(rest)
        return r, s
    except ValueError:
        raise RefusedError(Code.SIGNATURE_DER) from None


RAW_SIZE = {"RAW_RS": 64, "RAW_RSV": 65, "RAW_RS_KEY": 128}


def parse_signature(encoding: str, data: bytes) -> tuple[int, int, int]:
    """(r, s, recovery id), integers below 2^256. Raises RefusedError."""
    recovery = 0
    if encoding in RAW_SIZE:
        if len(data) != RAW_SIZE[encoding]:
            raise RefusedError(Code.SIGNATURE_LENGTH)
        r, s = int.from_bytes(data[:32], "big"), int.from_bytes(data[32:64], "big")
        if encoding == "RAW_RSV":
            if data[64] not in (0, 1, 2, 3, 27, 28, 29, 30):
                raise RefusedError(Code.RECOVERY_ID)
            recovery = data[64] % 27
    else:
        r, s = strict_signature(data) if encoding == "DER_STRICT" else lax_signature(data)
        if max(r, s) >= 2**256:
            raise RefusedError(Code.OUT_OF_RANGE)
    return r, s, recovery


# ---- keys ----


def spki(curve: Curve, point: bytes) -> bytes:
    """SubjectPublicKeyInfo of a SEC 1 point, RFC 5480."""
    algorithm = bytes.fromhex("06072a8648ce3d0201") + curve.oid
    body = bytes([0x30, len(algorithm)]) + algorithm + bytes([0x03, len(point) + 1, 0]) + point
    return bytes([0x30, len(body)]) + body


def parse_key(curve: Curve, encoding: str, data: bytes) -> tuple[int, int | None, bool]:
    """(x, y, y is odd), y None where compressed; neither is checked against the curve. Raises RefusedError."""

    def point(sec1: bytes) -> tuple[int, int | None, bool]:
        x = int.from_bytes(sec1[1:33], "big")
        if len(sec1) == 33:
            return x, None, sec1[0] == 3
        y = int.from_bytes(sec1[33:], "big")
        return x, y, y % 2 == 1

    if encoding == "SPKI":
        for size, prefixes in ((65, (4,)), (33, (2, 3))):
            if data[-size : -size + 1] in [bytes([p]) for p in prefixes] and data == spki(curve, data[-size:]):
                return point(data[-size:])
        raise RefusedError(Code.KEY_SPKI)
    size = {"RAW_XY": 64, "SEC1_UNCOMPRESSED": 65, "SEC1_COMPRESSED": 33, "IN_SIGNATURE": 128}[encoding]
    if len(data) != size:
        raise RefusedError(Code.KEY_LENGTH)
    if encoding == "RAW_XY":
        return point(b"\x04" + data)
    if encoding == "IN_SIGNATURE":
        return point(b"\x04" + data[64:])
    if data[0] not in ((4,) if size == 65 else (2, 3)):
        raise RefusedError(Code.KEY_PREFIX)
    return point(data)


def public_key(curve: Curve, encoding: str, data: bytes) -> tuple[int, int]:
    """A point of the curve. Raises RefusedError."""
    x, y, odd = parse_key(curve, encoding, data)
    if x >= curve.p or (y is not None and y >= curve.p):
        raise RefusedError(Code.KEY_RANGE)
    found = curve.lift(x, odd) if y is None else (x, y) if curve.contains(x, y) else None
    if found is None:
        raise RefusedError(Code.KEY_NOT_ON_CURVE)
    return found


# ---- ECDSA ----


def integer_of_digest(digest: bytes) -> int:
    """FIPS 186-5 6.4: the leftmost 256 bits."""
    return int.from_bytes(digest[:32], "big")


def verify_code(
    curve: Curve,
    digest: bytes,
    signature: bytes,
    key: bytes,
    *,
    signature_encoding: str = "RAW_RS",
    key_encoding: str = "RAW_XY",
    require_low_s: bool = False,
) -> Code:
    """The code of one item: signature first, then key, then the equation."""
    try:
        r, s, _ = parse_signature(signature_encoding, signature)
        if not (0 < r < curve.n and 0 < s < curve.n):
            raise RefusedError(Code.OUT_OF_RANGE)
        if require_low_s and s > curve.n // 2:
            raise RefusedError(Code.HIGH_S)
        q = public_key(curve, key_encoding, signature if key_encoding == "IN_SIGNATURE" else key)
    except RefusedError as refused:
        return refused.code
    inverse = pow(s, -1, curve.n)
    u1, u2 = integer_of_digest(digest) * inverse % curve.n, r * inverse % curve.n
    point = curve.add(curve.multiply(u1, curve.g), curve.multiply(u2, q))
    return Code.VALID if point is not None and point[0] % curve.n == r else Code.INVALID


def recover(
    curve: Curve, digest: bytes, signature: bytes, *, require_low_s: bool = False
) -> tuple[Code, tuple[int, int] | None]:
    """SEC 1 4.1.6 for the one candidate that v names."""
    try:
        r, s, recovery = parse_signature("RAW_RSV", signature)
        if not (0 < r < curve.n and 0 < s < curve.n):
            raise RefusedError(Code.OUT_OF_RANGE)
        if require_low_s and s > curve.n // 2:
            raise RefusedError(Code.HIGH_S)
    except RefusedError as refused:
        return refused.code, None
    x = r + curve.n if recovery & 2 else r
    point = curve.lift(x, recovery % 2 == 1) if x < curve.p else None
    if point is None:
        return Code.INVALID, None
    inverse = pow(r, -1, curve.n)
    u1, u2 = -integer_of_digest(digest) * inverse % curve.n, s * inverse % curve.n
    q = curve.add(curve.multiply(u1, curve.g), curve.multiply(u2, point))
    return (Code.VALID, q) if q is not None else (Code.INVALID, None)
