"""The made-up signatures are what they claim to be, by independent implementations."""

from __future__ import annotations

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec, utils
from cryptography.hazmat.primitives.hashes import SHA256
from gmssl import sm2

from verifier.bench.signatures import CURVES, FAULTS, make_crafted, make_signatures, multiply
from verifier.model import Code

OPENSSL_CURVES = {"ECDSA_P256": ec.SECP256R1(), "ECDSA_SECP256K1": ec.SECP256K1()}


def gmssl_verifies(digest: bytes, signature: bytes, key: bytes) -> bool:
    oracle = sm2.CryptSM2(private_key="", public_key="")
    oracle.public_key = key.hex()  # the constructor strips leading zeros
    return bool(oracle.verify(signature.hex(), digest))


def openssl_verifies(algorithm: str, digest: bytes, signature: bytes, key: bytes) -> bool:
    try:
        public = ec.EllipticCurvePublicKey.from_encoded_point(OPENSSL_CURVES[algorithm], b"\4" + key)
        r, s = int.from_bytes(signature[:32], "big"), int.from_bytes(signature[32:], "big")
        public.verify(utils.encode_dss_signature(r, s), digest, ec.ECDSA(utils.Prehashed(SHA256())))
    except (InvalidSignature, ValueError):
        return False
    return True


@pytest.mark.parametrize("algorithm", ["ECDSA_P256", "ECDSA_SECP256K1"])
def test_ecdsa_against_openssl(algorithm):
    made = make_signatures(algorithm, 300, fault_share=0.5, keys=16)
    for i in range(made.items):
        expected = made.codes[i] == Code.VALID
        found = openssl_verifies(
            algorithm, made.digests[i].tobytes(), made.signatures[i].tobytes(), made.keys[i].tobytes()
        )
        assert found == expected, made.faults[i]


def test_sm2_against_gmssl():
    # gmssl checks neither ranges nor the key, so it can judge only what is well formed.
    well_formed = [name for name, (_, code) in FAULTS.items() if code == Code.INVALID]
    made = make_signatures("SM2", 40, fault_share=0.4, keys=4, faults=well_formed)
    assert set(made.faults) - {""}
    for i in range(made.items):
        expected = made.codes[i] == Code.VALID
        found = gmssl_verifies(made.digests[i].tobytes(), made.signatures[i].tobytes(), made.keys[i].tobytes())
        assert found == expected, made.faults[i]


@pytest.mark.parametrize("algorithm", CURVES)
def test_the_curve_is_a_group_of_order_n(algorithm):
    curve = CURVES[algorithm]
    assert (curve.y**2 - curve.x**3 - curve.a * curve.x - curve.b) % curve.p == 0
    assert multiply(curve, curve.n) is None
    assert multiply(curve, curve.n - 1) == (curve.x, curve.p - curve.y)


def test_crafted_signatures_are_valid_and_of_one_sum():
    made, n = make_crafted(5, keys=3), CURVES["SM2"].n
    for digest, signature, key in zip(made.digests, made.signatures, made.keys, strict=True):
        r, s = (int.from_bytes(signature[begin : begin + 32].tobytes(), "big") for begin in (0, 32))
        assert (r + s) % n == n - 6
        assert gmssl_verifies(digest.tobytes(), signature.tobytes(), key.tobytes())


def test_a_seed_repeats():
    first, again = (make_signatures("SM2", 50, seed=7, keys=4, fault_share=0.2) for _ in range(2))
    assert (first.signatures == again.signatures).all()
    assert first.faults == again.faults


def test_tiling_repeats_in_order():
    made = make_signatures("SM2", 5, keys=2)
    tiled = made.tiled(12)
    assert tiled.items == 12 == len(tiled.faults)
    assert (tiled.signatures[5:10] == made.signatures).all()
