"""ECDSA verification: known answers, edges, encodings, policies, and other libraries on random items."""

from __future__ import annotations

import hashlib
import itertools
import random
from collections.abc import Iterator

import coincurve
import numpy as np
import pytest
from _answers import PLACES, BuiltPlugin, opened
from _ecdsa_cases import Item, be32, chosen, edges, public, sign
from _hashes import HASHES
from _reference import CURVES, P256, SECP256K1, Curve, spki, verify_code
from _shared import shared_json
from Cryptodome.Hash import keccak
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import Prehashed, encode_dss_signature

from verifier.model import Code

BOTH = pytest.mark.parametrize("curve", [P256, SECP256K1], ids=lambda curve: curve.name)
NAMED = {"ECDSA_P256": ec.SECP256R1(), "ECDSA_SECP256K1": ec.SECP256K1()}
LAMBDA = 0x5363AD4CC05C30E0A5261C028812645A122E22EA20816678DF02967C1B23BD72


@pytest.fixture(scope="module", params=PLACES)
def ecdsa(request: pytest.FixtureRequest) -> Iterator[BuiltPlugin]:
    yield from opened("ecdsa", request.param)


def codes(ecdsa: BuiltPlugin, curve: Curve, items: list[Item], **parameters: str | int) -> list[Code]:
    columns = {
        "input": [item.digest for item in items],
        "signature": [item.signature for item in items],
        "key": [item.key_bytes for item in items],
    }
    result = ecdsa.run("verify", curve.name, columns, **parameters)
    decided = np.unpackbits(result.decided, bitorder="little")[: len(items)]
    assert decided.all(), [item.name for item, bit in zip(items, decided, strict=True) if not bit]
    return [Code(code) for code in result.codes]


def test_known_answers(ecdsa):
    assert ecdsa.check_known_answers() > 200


@BOTH
def test_edges(ecdsa, curve):
    items = edges(curve)
    answers = dict(zip([item.name for item in items], codes(ecdsa, curve, items), strict=True))
    assert answers == {item.name: item.code for item in items}


@BOTH
def test_chosen_scalars(ecdsa, curve):
    """Scalars at the ends of every window and of the endomorphism's split, in all pairs."""
    n = curve.n
    special = [1, 2, 3, 31, 32, 33, 2**128 - 1, 2**128, 2**255 % n, (n - 1) // 2, (n + 1) // 2, n - 2, n - 1]
    special += [LAMBDA % n, LAMBDA * LAMBDA % n, n - LAMBDA % n, (1 << 255) - 19, int("10" * 64, 16) % n]
    items = [chosen(curve, f"u1 {u1:x} u2 {u2:x}", 7, u1, u2) for u1, u2 in itertools.product([0, *special], special)]
    answers = codes(ecdsa, curve, items)
    for item, code in zip(items, answers, strict=True):
        assert code is item.code, item.name


@BOTH
def test_small_keys(ecdsa, curve):
    """Keys d G with small d meet the table of G and each other in every addition."""
    small = [*range(1, 20), *(curve.n - d for d in range(1, 20))]
    items = [
        chosen(curve, f"d {d} u1 {u1} u2 {u2}", d, u1, u2) for d in small for u1, u2 in ((1, 1), (2, 1), (3, 16))
    ]
    for item, code in zip(items, codes(ecdsa, curve, items), strict=True):
        assert code is item.code, item.name


@BOTH
def test_low_s(ecdsa, curve):
    half = curve.n // 2
    r = sign(curve, 5, be32(1), 77)[0]
    items = [Item(str(s), be32(1), r, s, public(curve, 5), Code.INVALID) for s in (half, half + 1, 1, curve.n - 1)]
    # s chosen first: with r known for k = 77, the key that makes it valid is d = (s k - e) / r.
    for s in (half, half + 1):
        d = (s * 77 - 1) * pow(r, -1, curve.n) % curve.n
        items.append(Item(f"valid {s}", be32(1), r, s, public(curve, d), Code.VALID))
    required = codes(ecdsa, curve, items, low_s="REQUIRE")
    assert required == [Code.INVALID, Code.HIGH_S, Code.INVALID, Code.HIGH_S, Code.VALID, Code.HIGH_S]
    assert codes(ecdsa, curve, items, low_s="ACCEPT_ANY") == [item.code for item in items]


@BOTH
@pytest.mark.parametrize("signature_encoding", ["RAW_RS", "DER_STRICT", "DER_LAX"])
@pytest.mark.parametrize("key_encoding", ["RAW_XY", "SEC1_UNCOMPRESSED", "SEC1_COMPRESSED", "SPKI"])
def test_encodings(ecdsa, curve, signature_encoding, key_encoding):
    """Every pair of encodings, good and bad items side by side."""
    rows = []
    for d in range(2, 12):
        digest = hashlib.sha256(bytes([d])).digest()
        r, s, _ = sign(curve, d, digest, 1000 + d)
        x, y = public(curve, d)
        signature = be32(r) + be32(s) if signature_encoding == "RAW_RS" else encode_dss_signature(r, s)
        compressed = bytes([2 + y % 2]) + be32(x)
        key = {
            "RAW_XY": be32(x) + be32(y),
            "SEC1_UNCOMPRESSED": b"\x04" + be32(x) + be32(y),
            "SEC1_COMPRESSED": compressed,
            "SPKI": spki(curve, compressed if d % 2 else b"\x04" + be32(x) + be32(y)),
        }[key_encoding]
        rows += [(digest, signature, key), (digest, signature[:-1], key), (digest, signature, key[:-1])]
        flipped = bytes([key[-1] ^ 1])
        rows += [(digest, signature, key[:-1] + flipped), (digest[::-1], signature, key), (digest, b"", b"")]
        rows.append((digest, signature, b"\x07" + key[1:]))
    result = ecdsa.run(
        "verify",
        curve.name,
        {name: [row[i] for row in rows] for i, name in enumerate(("input", "signature", "key"))},
        signature_encoding=signature_encoding,
        key_encoding=key_encoding,
    )
    for i, row in enumerate(rows):
        wanted = verify_code(curve, *row, signature_encoding=signature_encoding, key_encoding=key_encoding)
        assert Code(result.codes[i]) is wanted, (i, wanted)
    assert sum(result.codes == Code.VALID) == 10


def test_compressed_key_without_a_point(ecdsa):
    for curve in (P256, SECP256K1):
        x = next(x for x in range(1, 100) if curve.lift(x, False) is None)
        digest, signature = be32(1), be32(1) + be32(1)
        keys = [b"\x02" + be32(x), b"\x03" + be32(curve.p), b"\x03" + be32(2**256 - 1)]
        columns = {"input": [digest] * 3, "signature": [signature] * 3, "key": keys}
        result = ecdsa.run("verify", curve.name, columns, key_encoding="SEC1_COMPRESSED")
        assert list(result.codes) == [Code.KEY_NOT_ON_CURVE, Code.KEY_RANGE, Code.KEY_RANGE]


@BOTH
@pytest.mark.parametrize("name", sorted(HASHES))
def test_messages(ecdsa, curve, name):
    generator = random.Random(11)
    messages = [generator.randbytes(length) for length in (0, 1, 31, 55, 64, 135, 136, 300)]
    rows = []
    for d, message in enumerate(messages, 2):
        r, s, _ = sign(curve, d, HASHES[name](message), 31 * d)
        x, y = public(curve, d)
        rows.append((message, be32(r) + be32(s), be32(x) + be32(y)))
        rows.append((message + b"!", be32(r) + be32(s), be32(x) + be32(y)))
    columns = {key: [row[i] for row in rows] for i, key in enumerate(("input", "signature", "key"))}
    result = ecdsa.run("verify", curve.name, columns, input_kind="MESSAGE", hash=name)
    assert list(result.codes) == [Code.VALID, Code.INVALID] * len(messages)
    for other in HASHES:
        if other != name:
            result = ecdsa.run("verify", curve.name, columns, input_kind="MESSAGE", hash=other)
            assert (result.codes == Code.INVALID).all(), other


@BOTH
@pytest.mark.parametrize(("algorithm", "size"), [("sha1", 20), ("sha224", 28), ("sha384", 48), ("sha512", 64)])
def test_digest_sizes(ecdsa, curve, algorithm, size):
    """Longer digests count by their leftmost 256 bits, shorter ones as they are."""
    digest = hashlib.new(algorithm, b"sample").digest()
    key = ec.derive_private_key(99, NAMED[curve.name])
    kind = {"sha1": hashes.SHA1(), "sha224": hashes.SHA224(), "sha384": hashes.SHA384(), "sha512": hashes.SHA512()}
    signature = key.sign(digest, ec.ECDSA(Prehashed(kind[algorithm])))
    x, y = public(curve, 99)
    inputs = [digest, digest[:-1], digest + b"\0", digest[::-1]]
    columns = {"input": inputs, "signature": [signature] * 4, "key": [be32(x) + be32(y)] * 4}
    result = ecdsa.run("verify", curve.name, columns, digest_bytes=size, signature_encoding="DER_STRICT")
    assert list(result.codes) == [Code.VALID, Code.INPUT_LENGTH, Code.INPUT_LENGTH, Code.INVALID]


def test_shared_vectors(ecdsa):
    cases = shared_json("ecdsa.json")["cases"]
    for curve_name, curve in (("secp256r1", P256), ("secp256k1", SECP256K1)):
        for size in (20, 28, 32, 48, 64):
            chosen_cases = [c for c in cases if c["curve"] == curve_name and len(c["digest"]) == 2 * size]
            if not chosen_cases:
                continue
            columns = {
                "input": [bytes.fromhex(c["digest"]) for c in chosen_cases],
                "signature": [bytes.fromhex(c["r"]) + bytes.fromhex(c["s"]) for c in chosen_cases],
                "key": [bytes.fromhex(c["public_x"]) + bytes.fromhex(c["public_y"]) for c in chosen_cases],
            }
            result = ecdsa.run("verify", curve.name, columns, digest_bytes=size)
            for case, code in zip(chosen_cases, result.codes, strict=True):
                assert (Code(code) is Code.VALID) == case["valid"], (case["id"], Code(code).name)
            columns["signature"] = [bytes.fromhex(c["signature_der"]) for c in chosen_cases]
            result = ecdsa.run("verify", curve.name, columns, digest_bytes=size, signature_encoding="DER_STRICT")
            for case, code in zip(chosen_cases, result.codes, strict=True):
                assert (Code(code) is Code.VALID) == case["valid"], (case["id"], Code(code).name)


@BOTH
def test_openssl_agrees(ecdsa, curve):
    """Random keys and messages, a third of the signatures or keys disturbed, decided by `cryptography` as well."""
    seed = 5
    generator = random.Random(seed)
    messages, signatures, keys, verdicts = [], [], [], []
    for _ in range(200):
        private = ec.derive_private_key(generator.randrange(1, curve.n), NAMED[curve.name])
        message = generator.randbytes(generator.randrange(200))
        signature = bytearray(private.sign(message, ec.ECDSA(hashes.SHA256())))
        if generator.random() < 0.3:
            signature[generator.randrange(len(signature))] ^= 1 << generator.randrange(8)
        if generator.random() < 0.1:
            message = message[1:] + b"x"
        try:
            private.public_key().verify(bytes(signature), message, ec.ECDSA(hashes.SHA256()))
            verdicts.append(True)
        except InvalidSignature:
            verdicts.append(False)
        numbers = private.public_key().public_numbers()
        messages.append(message)
        signatures.append(bytes(signature))
        keys.append(be32(numbers.x) + be32(numbers.y))
    columns = {"input": messages, "signature": signatures, "key": keys}
    result = ecdsa.run(
        "verify", curve.name, columns, input_kind="MESSAGE", hash="SHA256", signature_encoding="DER_STRICT"
    )
    assert [bool(code == Code.VALID) for code in result.codes] == verdicts, f"seed {seed}"
    assert 20 < sum(verdicts) < 180


def test_libsecp256k1_agrees(ecdsa):
    """Ethereum's form: Keccak-256, low s, compressed keys."""
    seed = 6
    generator = random.Random(seed)
    digests, signatures, keys, verdicts = [], [], [], []
    for _ in range(200):
        private = coincurve.PrivateKey(be32(generator.randrange(1, SECP256K1.n)))
        digest = keccak.new(digest_bits=256, data=generator.randbytes(40)).digest()
        signature = private.sign(digest, hasher=None)
        if generator.random() < 0.3:
            digest = generator.randbytes(32)
        verdicts.append(private.public_key.verify(signature, digest, hasher=None))
        digests.append(digest)
        signatures.append(signature)
        keys.append(private.public_key.format(compressed=True))
    result = ecdsa.run(
        "verify",
        "ECDSA_SECP256K1",
        {"input": digests, "signature": signatures, "key": keys},
        signature_encoding="DER_STRICT",
        key_encoding="SEC1_COMPRESSED",
        low_s="REQUIRE",
    )
    assert [bool(code == Code.VALID) for code in result.codes] == verdicts, f"seed {seed}"


@BOTH
@pytest.mark.parametrize("size", [1, 31, 32, 33, 100])
def test_neighbours_are_decided(ecdsa, curve, size):
    """Whatever stands beside them, good items are valid: also in one inversion with s = 0, n and broken DER."""
    good = chosen(curve, "", 21, 3, 5)
    der = encode_dss_signature(good.r, good.s)
    bad = [
        (good.digest, encode_dss_signature(good.r, 0), good.key_bytes),
        (good.digest, encode_dss_signature(good.r, curve.n), good.key_bytes),
        (good.digest, b"", good.key_bytes),
        (good.digest, good.signature, good.key_bytes),
        (good.digest, der, bytes(64)),
        (good.digest, der, b""),
        (b"", der, good.key_bytes),
    ]
    for place in range(0, size, max(1, size // 7)):
        rows = [bad[(i * 5 + place) % len(bad)] for i in range(size)]
        rows[place] = (good.digest, der, good.key_bytes)
        columns = {key: [row[i] for row in rows] for i, key in enumerate(("input", "signature", "key"))}
        result = ecdsa.run("verify", curve.name, columns, signature_encoding="DER_STRICT")
        assert [i for i, code in enumerate(result.codes) if code == Code.VALID] == [place]
        assert (result.codes != Code.UNDECIDED).all()


def test_curves_are_not_mixed(ecdsa):
    """A valid item of one curve is no point of the other."""
    item = chosen(P256, "", 21, 3, 5)
    assert codes(ecdsa, P256, [item]) == [Code.VALID]
    assert codes(ecdsa, SECP256K1, [item]) == [Code.KEY_NOT_ON_CURVE]
    assert set(CURVES) == {"ECDSA_P256", "ECDSA_SECP256K1", "SM2"}
