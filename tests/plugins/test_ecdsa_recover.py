"""Recovery of keys from (r, s, v), and their addresses."""

from __future__ import annotations

import random
from collections.abc import Iterator

import coincurve
import pytest
from _answers import PLACES, BuiltPlugin, opened
from _ecdsa_cases import be32, edges, public, sign
from _hashes import HASHES
from _reference import P256, SECP256K1, recover

from verifier.model import Code

BOTH = pytest.mark.parametrize("curve", [P256, SECP256K1], ids=lambda curve: curve.name)


@pytest.fixture(scope="module", params=PLACES)
def ecdsa(request: pytest.FixtureRequest) -> Iterator[BuiltPlugin]:
    yield from opened("ecdsa", request.param)


def check(ecdsa, curve, digests, signatures, **parameters):
    """Runs a batch, compares every code and key with straight Python, and returns the result."""
    columns = {"input": digests, "signature": signatures}
    result = ecdsa.run("recover", curve.name, columns, signature_encoding="RAW_RSV", **parameters)
    low = parameters.get("low_s") == "REQUIRE"
    for i, (digest, signature) in enumerate(zip(digests, signatures, strict=True)):
        code, key = recover(curve, digest, signature, require_low_s=low)
        assert Code(result.codes[i]) is code, (i, code)
        assert result.outputs[0][i].tobytes() == (be32(key[0]) + be32(key[1]) if key else bytes(64)), i
    return result


@BOTH
def test_every_recovery_id(ecdsa, curve):
    digests, signatures, keys = [], [], []
    for d in range(2, 22):
        digest = be32(d * 2**200 + 5)
        r, s, recovery = sign(curve, d, digest, d + 1000)
        for v in (*range(6), 26, 27, 28, 29, 30, 31, 255):
            digests.append(digest)
            signatures.append(be32(r) + be32(s) + bytes([v]))
            keys.append(public(curve, d) if v % 27 == recovery and v < 31 else None)
    result = check(ecdsa, curve, digests, signatures)
    for row, key in zip(result.outputs[0], keys, strict=True):
        if key:
            assert row.tobytes() == be32(key[0]) + be32(key[1])
    assert sum(key is not None for key in keys) == 40


@BOTH
def test_edges(ecdsa, curve):
    """The edges of verification with each recovery id: r >= p - n with r + n, no residue, infinity, zero."""
    digests, signatures = [], []
    for item in edges(curve):
        for v in range(4):
            digests.append(item.digest)
            signatures.append(item.signature + bytes([v]))
    result = check(ecdsa, curve, digests, signatures)
    assert {Code(code) for code in result.codes} >= {Code.VALID, Code.INVALID, Code.OUT_OF_RANGE}


@BOTH
def test_the_key_at_infinity_is_none(ecdsa, curve):
    """s R = e G: the recovered point is infinity."""
    k = 4321
    x, y = public(curve, k)
    r = x % curve.n
    s = 99
    digest = be32(s * k % curve.n)
    good = sign(curve, 3, digest, 17)
    signatures = [be32(r) + be32(s) + bytes([y % 2]), be32(good[0]) + be32(good[1]) + bytes([good[2]])] * 20
    result = check(ecdsa, curve, [digest] * 40, signatures)
    assert list(result.codes) == [Code.INVALID, Code.VALID] * 20


@BOTH
def test_x_of_r_plus_n(ecdsa, curve):
    """With v of 2 or 3 the point's x is r + n, which is below p for few r."""
    xs = range(curve.n + 1, curve.n + 60)
    digests = [be32(77)] * (2 * len(xs) + 2)
    signatures = [be32(x - curve.n) + be32(88) + bytes([v]) for x in xs for v in (2, 3)]
    signatures += [be32(curve.p - curve.n) + be32(88) + bytes([v]) for v in (2, 3)]
    result = check(ecdsa, curve, digests, signatures)
    assert {Code(code) for code in result.codes} == {Code.VALID, Code.INVALID}


@BOTH
def test_low_s(ecdsa, curve):
    half = curve.n // 2
    r = sign(curve, 9, be32(1), 5)[0]
    signatures = [be32(r) + be32(s) + b"\0" for s in (half, half + 1)]
    result = check(ecdsa, curve, [be32(1)] * 2, signatures, low_s="REQUIRE")
    assert list(result.codes) == [Code.VALID, Code.HIGH_S]
    result = check(ecdsa, curve, [be32(1)] * 2, signatures)
    assert list(result.codes) == [Code.VALID, Code.VALID]


@pytest.mark.parametrize("size", [1, 31, 33, 200])
def test_libsecp256k1_agrees(ecdsa, size):
    seed = 40 + size
    generator = random.Random(seed)
    digests, signatures, keys = [], [], []
    for _ in range(size):
        private = coincurve.PrivateKey(be32(generator.randrange(1, SECP256K1.n)))
        digests.append(generator.randbytes(32))
        signatures.append(private.sign_recoverable(digests[-1], hasher=None))
        keys.append(private.public_key.format(compressed=False)[1:])
    columns = {"input": digests, "signature": signatures}
    for address_hash, hasher in (("KECCAK256", HASHES["KECCAK256"]), ("SM3", HASHES["SM3"]), ("UNSPECIFIED", None)):
        result = ecdsa.run("recover", "ECDSA_SECP256K1", columns, address_hash=address_hash)
        assert (result.codes == Code.VALID).all(), f"seed {seed}"
        assert [row.tobytes() for row in result.outputs[0]] == keys
        addresses = [hasher(key)[12:] if hasher else bytes(20) for key in keys]
        assert [row.tobytes() for row in result.outputs[1]] == addresses


def test_messages_are_hashed(ecdsa):
    message = b"\x19Ethereum Signed Message:\n5hello"
    private = coincurve.PrivateKey(be32(0xABCDEF))
    signature = private.sign_recoverable(message, hasher=HASHES["KECCAK256"])
    columns = {"input": [message], "signature": [signature]}
    result = ecdsa.run("recover", "ECDSA_SECP256K1", columns, input_kind="MESSAGE", hash="KECCAK256")
    assert result.outputs[0][0].tobytes() == private.public_key.format(compressed=False)[1:]


@BOTH
def test_malformed_items_have_no_key(ecdsa, curve):
    digest = be32(3)
    r, s, recovery = sign(curve, 4, digest, 5)
    good = be32(r) + be32(s) + bytes([recovery])
    rows = [(digest, good), (digest, good[:-1]), (digest, b""), (digest[1:], good), (digest, good[:64] + b"\x04")]
    columns = {"input": [row[0] for row in rows], "signature": [row[1] for row in rows]}
    result = ecdsa.run("recover", curve.name, columns, address_hash="KECCAK256")
    assert [Code(code) for code in result.codes] == [
        Code.VALID,
        Code.SIGNATURE_LENGTH,
        Code.SIGNATURE_LENGTH,
        Code.INPUT_LENGTH,
        Code.RECOVERY_ID,
    ]
    assert not result.outputs[0][1:].any()
    assert not result.outputs[1][1:].any()
    assert result.outputs[1][0].any()
