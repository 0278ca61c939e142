"""The parsers of signatures and keys: rules case by case, and against straight Python."""

from __future__ import annotations

import random

import pytest
from _probe import EncodingProbe, expected_key, expected_signature
from _reference import CURVES, P256, SECP256K1, SM2, spki
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from verifier.model import Code


@pytest.fixture(scope="module")
def probe() -> EncodingProbe:
    return EncodingProbe()


def sequence(body: bytes) -> bytes:
    return bytes([0x30, len(body)]) + body


def integer(content: bytes) -> bytes:
    return bytes([0x02, len(content)]) + content


TOP = b"\x00" + b"\xff" * 32  # 2^256 - 1
WELL_FORMED = {
    "one and two": (sequence(integer(b"\x01") + integer(b"\x02")), (1, 2, 0)),
    "zero": (sequence(integer(b"\x00") + integer(b"\x00")), (0, 0, 0)),
    "sign byte": (sequence(integer(b"\x00\x80") + integer(b"\x7f")), (128, 127, 0)),
    "256 bits": (sequence(integer(TOP) + integer(TOP)), (2**256 - 1, 2**256 - 1, 0)),
}
TOO_BIG = {
    "r of 257 bits": sequence(integer(b"\x01" + bytes(32)) + integer(b"\x01")),
    "s of 257 bits": sequence(integer(b"\x01") + integer(b"\x01" + bytes(32))),
    "s of 264 bits": sequence(integer(b"\x01") + integer(b"\x00\xff" + bytes(32))),
    "r of 130 bytes": b"\x30\x81\x88" + b"\x02\x81\x82" + b"\x11" * 130 + integer(b"\x01"),
    "r of 300 bytes": b"\x30\x82\x01\x33" + b"\x02\x82\x01\x2c" + b"\x11" * 300 + integer(b"\x01"),
}
ONE = integer(b"\x01")
NOT_DER = {
    "empty": b"",
    "tag only": b"\x30",
    "sequence of nothing": b"\x30\x00",
    "one integer": sequence(ONE),
    "three integers": sequence(ONE + ONE + ONE),
    "wrong outer tag": b"\x31" + sequence(ONE + ONE)[1:],
    "wrong inner tag": sequence(ONE + b"\x03\x01\x01"),
    "trailing byte": sequence(ONE + ONE) + b"\x00",
    "length too long": b"\x30\x07" + ONE + ONE,
    "length too short": b"\x30\x05" + ONE + ONE,
    "indefinite length": b"\x30\x80" + ONE + ONE + b"\x00\x00",
    "long form of a short length": b"\x30\x81\x06" + ONE + ONE,
    "long form with a zero": b"\x30\x82\x00\x06" + ONE + ONE,
    "long integer length": sequence(b"\x02\x81\x01\x01" + ONE),
    "length octets missing": b"\x30\x84\x00\x00",
    "length of 2^32 - 1": b"\x30\x84\xff\xff\xff\xff" + ONE + ONE,
    "length of nine octets": b"\x30\x89" + bytes(9) + ONE + ONE,
    "reserved length": b"\x30\xff" + ONE + ONE,
    "empty integer": sequence(b"\x02\x00" + ONE),
    "negative r": sequence(integer(b"\x80") + ONE),
    "negative s": sequence(ONE + integer(b"\xff\x01")),
    "padded r": sequence(integer(b"\x00\x01") + ONE),
    "padded s": sequence(ONE + integer(b"\x00\x7f")),
    "integer past the end": b"\x30\x06\x02\x01\x01\x02\x02\x01",
    "raw r and s": bytes(range(1, 65)),
}


def test_strict_der_well_formed(probe):
    values = [value for value, _ in WELL_FORMED.values()]
    assert probe.signatures("DER_STRICT", values) == [expected for _, expected in WELL_FORMED.values()]


def test_strict_der_beyond_256_bits_is_out_of_range(probe):
    answers = dict(zip(TOO_BIG, probe.signatures("DER_STRICT", list(TOO_BIG.values())), strict=True))
    assert answers == dict.fromkeys(TOO_BIG, Code.OUT_OF_RANGE)


def test_strict_der_refuses(probe):
    answers = dict(zip(NOT_DER, probe.signatures("DER_STRICT", list(NOT_DER.values())), strict=True))
    assert answers == dict.fromkeys(NOT_DER, Code.SIGNATURE_DER)


LAX = {
    "strict": (sequence(ONE + ONE), (1, 1, 0)),
    "negative is unsigned": (sequence(integer(b"\x80") + ONE), (128, 1, 0)),
    "padded": (sequence(integer(bytes(40) + b"\x05") + ONE), (5, 1, 0)),
    "sequence length ignored": (b"\x30\x00" + ONE + ONE, (1, 1, 0)),
    "sequence length in nine octets": (b"\x30\x89" + bytes(9) + ONE + ONE, (1, 1, 0)),
    "trailing bytes": (sequence(ONE + ONE) + b"junk", (1, 1, 0)),
    "integer length with zeros": (sequence(b"\x02\x86\x00\x00\x00\x00\x00\x01\x09" + ONE), (9, 1, 0)),
    "empty integer is zero": (sequence(b"\x02\x00" + ONE), (0, 1, 0)),
    "indefinite sequence": (b"\x30\x80" + ONE + ONE, (1, 1, 0)),
    "integer of length 80 is empty": (b"\x30\x06\x02\x80" + ONE, (0, 1, 0)),
    "257 bits": (sequence(integer(b"\x01" + bytes(32)) + ONE), Code.OUT_OF_RANGE),
    "length of four octets": (sequence(b"\x02\x84\x01\x00\x00\x00" + ONE), Code.SIGNATURE_DER),
    "truncated integer": (b"\x30\x06" + ONE + b"\x02\x02\x01", Code.SIGNATURE_DER),
    "no second integer": (b"\x30\x03" + ONE, Code.SIGNATURE_DER),
    "length octets past the end": (b"\x30\xff" + ONE + ONE, Code.SIGNATURE_DER),
    "integer length octets past the end": (b"\x30\x03\x02\xff\x01", Code.SIGNATURE_DER),
    "wrong tag": (b"\x31" + sequence(ONE + ONE)[1:], Code.SIGNATURE_DER),
    "empty": (b"", Code.SIGNATURE_DER),
}


def test_lax_der(probe):
    answers = dict(zip(LAX, probe.signatures("DER_LAX", [value for value, _ in LAX.values()]), strict=True))
    assert answers == {name: expected for name, (_, expected) in LAX.items()}
    for name, (value, expected) in LAX.items():
        assert expected_signature("DER_LAX", value) == expected, name  # the reference says the same


@pytest.mark.parametrize(("encoding", "size"), [("RAW_RS", 64), ("RAW_RSV", 65), ("RAW_RS_KEY", 128)])
def test_raw_signatures_have_one_length(probe, encoding, size):
    values = [bytes(n) for n in (0, 1, 63, 64, 65, 66, 127, 128, 129)]
    refused = [
        value for value, got in zip(values, probe.signatures(encoding, values), strict=True) if got != (0, 0, 0)
    ]
    assert refused == [value for value in values if len(value) != size]
    assert set(probe.signatures(encoding, refused)) == {Code.SIGNATURE_LENGTH}


def test_recovery_ids(probe):
    answers = probe.signatures("RAW_RSV", [bytes(64) + bytes([v]) for v in range(256)])
    accepted = {v: answer[2] for v, answer in enumerate(answers) if answer is not Code.RECOVERY_ID}
    assert accepted == {0: 0, 1: 1, 2: 2, 3: 3, 27: 0, 28: 1, 29: 2, 30: 3}


def test_strict_der_reads_what_openssl_writes(probe):
    generator = random.Random(7)
    pairs = [(generator.getrandbits(bits), generator.getrandbits(256)) for bits in range(1, 257)]
    answers = probe.signatures("DER_STRICT", [encode_dss_signature(r, s) for r, s in pairs])
    assert answers == [(r, s, 0) for r, s in pairs]
    assert probe.signatures("DER_LAX", [encode_dss_signature(r, s) for r, s in pairs]) == answers


@pytest.mark.parametrize("curve", CURVES.values(), ids=CURVES)
def test_keys(probe, curve):
    x, y = curve.g
    xy = x.to_bytes(32, "big") + y.to_bytes(32, "big")
    whole, short = b"\x04" + xy, bytes([2 + y % 2]) + xy[:32]
    full, half = (x, y, y % 2), (x, 0, 2 + y % 2)
    assert probe.keys(curve, "RAW_XY", [xy, xy[1:], whole, b""]) == [full] + 3 * [Code.KEY_LENGTH]
    assert probe.keys(curve, "SEC1_UNCOMPRESSED", [whole, xy, short]) == [full] + 2 * [Code.KEY_LENGTH]
    assert probe.keys(curve, "SEC1_COMPRESSED", [short, whole, b""]) == [half] + 2 * [Code.KEY_LENGTH]
    assert probe.keys(curve, "IN_SIGNATURE", [bytes(64) + xy, xy]) == [full, Code.KEY_LENGTH]
    prefixes = [bytes([b]) for b in range(256)]
    assert probe.keys(curve, "SEC1_UNCOMPRESSED", [b + xy for b in prefixes]).count(Code.KEY_PREFIX) == 255
    assert probe.keys(curve, "SEC1_COMPRESSED", [b + xy[:32] for b in prefixes]).count(Code.KEY_PREFIX) == 254
    assert probe.keys(curve, "SPKI", [spki(curve, whole), spki(curve, short)]) == [full, half]


@pytest.mark.parametrize("curve", CURVES.values(), ids=CURVES)
def test_spki_is_exact(probe, curve):
    x, y = curve.g
    point = b"\x04" + x.to_bytes(32, "big") + y.to_bytes(32, "big")
    good = spki(curve, point)
    header = len(good) - 64
    wrong = [good[:i] + bytes([good[i] ^ bit]) + good[i + 1 :] for i in range(header) for bit in (1, 2, 4, 0x80)]
    wrong += [spki(other, point) for other in CURVES.values() if other is not curve]
    wrong += [good + b"\0", good[:-1], b"", b"\x30", spki(curve, b"\x06" + point[1:]), spki(curve, b"\x00")]
    wrong += [spki(curve, b"\x04" + point[1:33]), spki(curve, b"\x02" + point[1:])]
    assert set(probe.keys(curve, "SPKI", wrong)) == {Code.KEY_SPKI}


@pytest.mark.parametrize(("curve", "named"), [(P256, ec.SECP256R1()), (SECP256K1, ec.SECP256K1())])
def test_spki_as_openssl_writes_it(probe, curve, named):
    key = ec.derive_private_key(12345, named).public_key()
    encoded = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    numbers = key.public_numbers()
    assert probe.keys(curve, "SPKI", [encoded]) == [(numbers.x, numbers.y, numbers.y % 2)]


def test_spki_in_an_sm2_certificate(probe):
    """The header that GB/T 35276 and OpenSSL give an SM2 key, spelled out."""
    header = bytes.fromhex("3059301306072a8648ce3d020106082a811ccf5501822d03420004")
    x, y = SM2.g
    assert probe.keys(SM2, "SPKI", [header + x.to_bytes(32, "big") + y.to_bytes(32, "big")]) == [(x, y, y % 2)]


def test_integers_at_every_address(probe):
    """Offsets put each value at another address modulo 16; each byte counts."""
    generator = random.Random(3)
    values = [generator.randbytes(64) for _ in range(40)]
    spread = [part for value in values for part in (value, bytes(generator.randrange(17)))]
    answers = probe.signatures("RAW_RS", spread)
    assert answers == [expected_signature("RAW_RS", value) for value in spread]
    keys = [b"\x04" + value for value in values] + [b"\x04"]
    assert probe.keys(P256, "SEC1_UNCOMPRESSED", keys) == [
        expected_key(P256, "SEC1_UNCOMPRESSED", value) for value in keys
    ]
