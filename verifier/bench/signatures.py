"""Signatures by the million, made quickly, with the verdict that each must get.

Signing needs k·G for a fresh k every time, which costs milliseconds in Python. Here the nonces come from a table
of a few thousand points, so a signature costs a few multiplications of integers. Reusing nonces gives the private
keys away; they are made up for measurement and tests, and worth nothing.

SM2 (GB/T 32918.2, 6.1): r = e + x1, s = (k − r·d) / (1 + d) = (k + r) / (1 + d) − r.
ECDSA (SEC 1, 4.1.3): r = x1, s = (e + r·d) / k.
"""

from __future__ import annotations

import functools
import hashlib
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from verifier.model import Bytes, Code
from verifier.schemes import DEFAULT_SM2_USER_ID

__all__ = ["CURVES", "FAULTS", "Curve", "SignatureSet", "make_crafted", "make_signatures", "sm2_hash"]


class Curve(NamedTuple):
    """A short Weierstrass curve y² = x³ + a·x + b over the integers modulo p, with a base point of order n."""

    p: int
    a: int
    b: int
    x: int
    y: int
    n: int


Point = tuple[int, int]

CURVES = {
    "SM2": Curve(
        p=0xFFFFFFFE_FFFFFFFF_FFFFFFFF_FFFFFFFF_FFFFFFFF_00000000_FFFFFFFF_FFFFFFFF,
        a=0xFFFFFFFE_FFFFFFFF_FFFFFFFF_FFFFFFFF_FFFFFFFF_00000000_FFFFFFFF_FFFFFFFC,
        b=0x28E9FA9E_9D9F5E34_4D5A9E4B_CF6509A7_F39789F5_15AB8F92_DDBCBD41_4D940E93,
        x=0x32C4AE2C_1F198119_5F990446_6A39C994_8FE30BBF_F2660BE1_715A4589_334C74C7,
        y=0xBC3736A2_F4F6779C_59BDCEE3_6B692153_D0A9877C_C62A4740_02DF32E5_2139F0A0,
        n=0xFFFFFFFE_FFFFFFFF_FFFFFFFF_FFFFFFFF_7203DF6B_21C6052B_53BBF409_39D54123,
    ),
    "ECDSA_P256": Curve(
        p=0xFFFFFFFF_00000001_00000000_00000000_00000000_FFFFFFFF_FFFFFFFF_FFFFFFFF,
        a=0xFFFFFFFF_00000001_00000000_00000000_00000000_FFFFFFFF_FFFFFFFF_FFFFFFFC,
        b=0x5AC635D8_AA3A93E7_B3EBBD55_769886BC_651D06B0_CC53B0F6_3BCE3C3E_27D2604B,
        x=0x6B17D1F2_E12C4247_F8BCE6E5_63A440F2_77037D81_2DEB33A0_F4A13945_D898C296,
        y=0x4FE342E2_FE1A7F9B_8EE7EB4A_7C0F9E16_2BCE3357_6B315ECE_CBB64068_37BF51F5,
        n=0xFFFFFFFF_00000000_FFFFFFFF_FFFFFFFF_BCE6FAAD_A7179E84_F3B9CAC2_FC632551,
    ),
    "ECDSA_SECP256K1": Curve(
        p=0xFFFFFFFF_FFFFFFFF_FFFFFFFF_FFFFFFFF_FFFFFFFF_FFFFFFFF_FFFFFFFE_FFFFFC2F,
        a=0,
        b=7,
        x=0x79BE667E_F9DCBBAC_55A06295_CE870B07_029BFCDB_2DCE28D9_59F2815B_16F81798,
        y=0x483ADA77_26A3C465_5DA4FBFC_0E1108A8_FD17B448_A6855419_9C47D08F_FB10D4B8,
        n=0xFFFFFFFF_FFFFFFFF_FFFFFFFF_FFFFFFFE_BAAEDCE6_AF48A03B_BFD25E8C_D0364141,
    ),
}


def _add(curve: Curve, left: Point | None, right: Point | None) -> Point | None:
    """The group law in affine coordinates; None is the point at infinity."""
    if left is None or right is None:
        return left or right
    p = curve.p
    if left[0] == right[0]:
        if (left[1] + right[1]) % p == 0:
            return None
        slope = (3 * left[0] * left[0] + curve.a) * pow(2 * left[1], -1, p) % p
    else:
        slope = (right[1] - left[1]) * pow(right[0] - left[0], -1, p) % p
    x = (slope * slope - left[0] - right[0]) % p
    return x, (slope * (left[0] - x) - left[1]) % p


def multiply(curve: Curve, scalar: int, point: Point | None = None) -> Point | None:
    """scalar · point (default: the base point), by doubling and adding."""
    addend: Point | None = point or (curve.x, curve.y)
    total: Point | None = None
    while scalar:
        if scalar & 1:
            total = _add(curve, total, addend)
        addend = _add(curve, addend, addend)
        scalar >>= 1
    return total


def _walk(curve: Curve, rng: random.Random, count: int) -> list[tuple[int, Point]]:
    """`count` scalars in an arithmetic progression and their points: one addition each."""
    scalar, step = rng.randrange(1, curve.n), rng.randrange(1, curve.n)
    point, stride = multiply(curve, scalar), multiply(curve, step)
    pairs: list[tuple[int, Point]] = []
    while len(pairs) < count:
        if point is not None:
            pairs.append((scalar, point))
        scalar, point = (scalar + step) % curve.n, _add(curve, point, stride)
    return pairs


@dataclass(frozen=True, slots=True)
class SignatureSet:
    """Signatures over digests, as columns of unsigned big-endian bytes.

    digests (N, 32), signatures (N, 64) r ‖ s, keys (N, 64) x ‖ y, recovery (N,) ids 0 to 3, codes (N,): the Code
    that a right verifier gives. `faults` names the fault of every item, "" where there is none.
    """

    algorithm: str
    digests: Bytes
    signatures: Bytes
    keys: Bytes
    recovery: Bytes
    codes: Bytes
    faults: list[str]

    @property
    def items(self) -> int:
        """How many."""
        return len(self.codes)

    @property
    def valid(self) -> npt.NDArray[np.bool_]:
        """Which are valid."""
        return np.equal(self.codes, Code.VALID)

    def part(self, begin: int, end: int) -> SignatureSet:
        """Items [begin, end)."""
        return SignatureSet(
            self.algorithm,
            self.digests[begin:end],
            self.signatures[begin:end],
            self.keys[begin:end],
            self.recovery[begin:end],
            self.codes[begin:end],
            self.faults[begin:end],
        )

    def tiled(self, items: int) -> SignatureSet:
        """The same signatures over and over until there are `items`."""

        def tile(array: Bytes) -> Bytes:
            return np.resize(array, (items, *array.shape[1:]))

        faults = (self.faults * (items // self.items + 1))[:items]
        return SignatureSet(
            self.algorithm,
            tile(self.digests),
            tile(self.signatures),
            tile(self.keys),
            tile(self.recovery),
            tile(self.codes),
            faults,
        )


class _Item(NamedTuple):
    e: int
    r: int
    s: int
    x: int
    y: int


Fault = tuple[Callable[[Curve, random.Random, _Item], _Item], Code]


def _off_curve(curve: Curve, rng: random.Random, item: _Item) -> _Item:
    """A y that no point with this x has: neither y nor p - y."""
    y = rng.randrange(curve.p)
    return item._replace(y=(y + 1) % curve.p if y in (item.y, curve.p - item.y) else y)


# Name: how an item is spoilt, and what it then is.
FAULTS: dict[str, Fault] = {
    "wrong digest": (lambda _c, rng, i: i._replace(e=i.e ^ (1 << rng.randrange(256))), Code.INVALID),
    "wrong r": (lambda c, rng, i: i._replace(r=rng.randrange(1, c.n)), Code.INVALID),
    "wrong s": (lambda c, rng, i: i._replace(s=rng.randrange(1, c.n)), Code.INVALID),
    "r and s swapped": (lambda _c, _rng, i: i._replace(r=i.s, s=i.r), Code.INVALID),
    "negated key": (lambda c, _rng, i: i._replace(y=c.p - i.y), Code.INVALID),
    "r is zero": (lambda _c, _rng, i: i._replace(r=0), Code.OUT_OF_RANGE),
    "s is zero": (lambda _c, _rng, i: i._replace(s=0), Code.OUT_OF_RANGE),
    "r is n": (lambda c, _rng, i: i._replace(r=c.n), Code.OUT_OF_RANGE),
    "s is n": (lambda c, _rng, i: i._replace(s=c.n), Code.OUT_OF_RANGE),
    "s above n": (lambda c, rng, i: i._replace(s=rng.randrange(c.n, 1 << 256)), Code.OUT_OF_RANGE),
    "key off the curve": (_off_curve, Code.KEY_NOT_ON_CURVE),
    "x not below p": (lambda c, rng, i: i._replace(x=rng.randrange(c.p, 1 << 256)), Code.KEY_RANGE),
}


def _be32(number: int) -> bytes:
    return number.to_bytes(32, "big")


def sm2_hash(key: bytes, message: bytes) -> int:
    """What SM2 signs of a message by the usual user id: SM3(ZA || M) (GB/T 32918.2, 5.5 and 6.1)."""
    return int.from_bytes(hashlib.new("sm3", _identity_hash(key) + message).digest(), "big")


@functools.lru_cache(maxsize=4096)
def _identity_hash(key: bytes) -> bytes:
    curve, identity = CURVES["SM2"], DEFAULT_SM2_USER_ID
    numbers = (curve.a, curve.b, curve.x, curve.y)
    text = (8 * len(identity)).to_bytes(2, "big") + identity + b"".join(map(_be32, numbers)) + key
    return hashlib.new("sm3", text).digest()


def make_signatures(
    algorithm: str,
    items: int,
    *,
    seed: int = 1,
    keys: int = 1024,
    fault_share: float = 0.0,
    faults: Iterable[str] = tuple(FAULTS),
    hashed: Callable[[bytes, bytes], int] | None = None,
) -> SignatureSet:
    """`items` signatures of `algorithm` ("SM2", "ECDSA_P256", "ECDSA_SECP256K1") by `keys` signers.

    `fault_share` of them are spoilt, each in one of the ways named by `faults`, and then get another Code. With
    `hashed` the digests are messages of 32 bytes: it gives what is signed, from the key x || y and the message.
    """
    curve, rng, sm2 = CURVES[algorithm], random.Random(seed), algorithm == "SM2"
    n, names = curve.n, tuple(faults)
    signers = [(d, point, pow(1 + d, -1, n) if sm2 else 0) for d, point in _walk(curve, rng, keys)]
    nonces = [(k, point, 0 if sm2 else pow(k, -1, n)) for k, point in _walk(curve, rng, 4096)]
    digests, signatures, publics = bytearray(), bytearray(), bytearray()
    recovery, codes, named = bytearray(), bytearray(), []
    while len(codes) < items:
        e = rng.getrandbits(256)
        d, (x, y), inverse = signers[rng.randrange(keys)]
        k, (x1, y1), k_inverse = nonces[rng.randrange(4096)]
        signed = e if hashed is None else hashed(_be32(x) + _be32(y), _be32(e))
        if sm2:
            r = (signed + x1) % n
            s = ((k + r) * inverse - r) % n
            possible = r and s and (r + s) % n and (r + k) % n
        else:
            r = x1 % n
            s = (signed + r * d) * k_inverse % n
            possible = r and s
        if not possible:
            continue
        item, code, fault = _Item(e, r, s, x, y), Code.VALID, ""
        if fault_share and rng.random() < fault_share:
            fault = names[rng.randrange(len(names))]
            spoil, code = FAULTS[fault]
            item = spoil(curve, rng, item)
        digests += item.e.to_bytes(32, "big")
        signatures += item.r.to_bytes(32, "big") + item.s.to_bytes(32, "big")
        publics += item.x.to_bytes(32, "big") + item.y.to_bytes(32, "big")
        recovery.append((y1 & 1) | (x1 >= n) << 1)
        codes.append(code)
        named.append(fault)

    def column(data: bytearray, *shape: int) -> Bytes:
        return np.frombuffer(bytes(data), np.uint8).reshape(items, *shape)

    return SignatureSet(
        algorithm,
        column(digests, 32),
        column(signatures, 64),
        column(publics, 64),
        column(recovery),
        column(codes),
        named,
    )


def make_crafted(items: int, *, seed: int = 1, keys: int = 64) -> SignatureSet:
    """Valid SM2 signatures that the fast formulas cannot decide: with t = r + s = n - 6 two points of the key's
    ladder are equal or opposite. A signer gets there by the digest: r = t (1 + d) - k, s = t - r, e = r - x1."""
    curve, rng, t = CURVES["SM2"], random.Random(seed), CURVES["SM2"].n - 6
    signers, nonces = _walk(curve, rng, keys), _walk(curve, rng, 4096)
    rows = []
    for _ in range(items):
        d, (x, y) = signers[rng.randrange(keys)]
        k, (x1, _y1) = nonces[rng.randrange(4096)]
        r = (t * (1 + d) - k) % curve.n
        rows.append(b"".join(map(_be32, ((r - x1) % curve.n, r, (t - r) % curve.n, x, y))))
    table = np.frombuffer(b"".join(rows), np.uint8).reshape(items, 160)
    codes = np.full(items, Code.VALID, np.uint8)
    digests, signatures, publics = (part.copy() for part in np.split(table, (32, 96), axis=1))
    return SignatureSet("SM2", digests, signatures, publics, np.zeros(items, np.uint8), codes, [""] * items)
