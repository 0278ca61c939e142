"""Which curve a public key's algorithm parameters mean: a name, or the curve written out (X9.62, ECParameters)."""

from __future__ import annotations

from node_adapter.client import Algorithm
from node_adapter.formats._der import INTEGER, OBJECT_IDENTIFIER, OCTET_STRING, SEQUENCE, Element

__all__ = ["curve_of", "named_curve"]

_NAMES = {
    bytes.fromhex("2a811ccf5501822d"): Algorithm.SM2,  # 1.2.156.10197.1.301
    bytes.fromhex("2a8648ce3d030107"): Algorithm.ECDSA_P256,  # 1.2.840.10045.3.1.7
    bytes.fromhex("2b8104000a"): Algorithm.ECDSA_SECP256K1,  # 1.3.132.0.10
}
_PRIME_FIELD = bytes.fromhex("2a8648ce3d0101")  # 1.2.840.10045.1.1

# Prime, a, b, generator (x, y) and order. A curve is known only if all are: another generator makes other signatures.
_CURVES = {
    (
        0xFFFFFFFEFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF00000000FFFFFFFFFFFFFFFF,
        0xFFFFFFFEFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF00000000FFFFFFFFFFFFFFFC,
        0x28E9FA9E9D9F5E344D5A9E4BCF6509A7F39789F515AB8F92DDBCBD414D940E93,
        0x32C4AE2C1F1981195F9904466A39C9948FE30BBFF2660BE1715A4589334C74C7,
        0xBC3736A2F4F6779C59BDCEE36B692153D0A9877CC62A474002DF32E52139F0A0,
        0xFFFFFFFEFFFFFFFFFFFFFFFFFFFFFFFF7203DF6B21C6052B53BBF40939D54123,
    ): Algorithm.SM2,
    (
        0xFFFFFFFF00000001000000000000000000000000FFFFFFFFFFFFFFFFFFFFFFFF,
        0xFFFFFFFF00000001000000000000000000000000FFFFFFFFFFFFFFFFFFFFFFFC,
        0x5AC635D8AA3A93E7B3EBBD55769886BC651D06B0CC53B0F63BCE3C3E27D2604B,
        0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
        0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5,
        0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551,
    ): Algorithm.ECDSA_P256,
    (
        0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEFFFFFC2F,
        0,
        7,
        0x79BE667EF9DCBBAC55A06295CE870B07029BFCDB2DCE28D959F2815B16F81798,
        0x483ADA7726A3C4655DA4FBFC0E1108A8FD17B448A68554199C47D08FFB10D4B8,
        0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141,
    ): Algorithm.ECDSA_SECP256K1,
}


def named_curve(identifier: bytes) -> Algorithm | None:
    """The curve with this object identifier, None where no plugin knows it."""
    return _NAMES.get(identifier)


def curve_of(parameters: Element) -> Algorithm | None:
    """The curve that an EC key's parameters mean, None where no plugin knows it. Raises FormatError."""
    if parameters.tag == OBJECT_IDENTIFIER:
        return named_curve(parameters.content)
    if parameters.tag != SEQUENCE:
        return None
    parts = parameters.children()
    if [part.tag for part in parts[:5]] != [INTEGER, SEQUENCE, SEQUENCE, OCTET_STRING, INTEGER]:
        return None
    field, curve, generator, order = parts[1].children(), parts[2].children(), parts[3].content, parts[4]
    if len(field) != 2 or field[0].content != _PRIME_FIELD or len(curve) < 2:
        return None
    told = (_number(field[1]), _number(curve[0]), _number(curve[1]))
    for known, algorithm in _CURVES.items():
        if known[:3] == told and known[5] == _number(order) and generator in _points(*known[3:5]):
            return algorithm
    return None


def _number(element: Element) -> int:
    return int.from_bytes(element.content, "big")


def _points(x: int, y: int) -> tuple[bytes, bytes, bytes]:
    """A point compressed, whole, and in both ways at once (SEC 1, X9.62)."""
    short, rest, parity = x.to_bytes(32, "big"), y.to_bytes(32, "big"), y & 1
    return bytes([2 | parity]) + short, b"\4" + short + rest, bytes([6 | parity]) + short + rest
