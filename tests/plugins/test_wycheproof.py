"""Every ECDSA file of Wycheproof that the shared folder has: our curves, any hash, DER, Bitcoin's rules, IEEE P1363.

The files of the older schema are read too, and those of ECDH, whose public keys are keys or are not.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from _answers import PLACES, BuiltPlugin, opened
from _enrolled_cases import EVERY_ROW, le32
from _shared import SHARED, shared_json

from verifier.model import Code

FOLDER = SHARED / "vectors" / "wycheproof"
FILES = sorted(path.name for path in FOLDER.glob("ecdsa_*test.json"))
KEY_FILES = sorted(path.name for path in FOLDER.glob("ecdh_secp256*_test.json"))
CURVE_OF = {
    "secp256r1": "ECDSA_P256",
    "P-256": "ECDSA_P256",
    "secp256k1": "ECDSA_SECP256K1",
    "P-256K": "ECDSA_SECP256K1",
}
HASH_OF = {"SHA-256": "SHA256", "SHA3-256": "SHA3_256"}  # hashed by the kernel; the others come as digests
ENCODING_OF = {
    "EcdsaVerify": "DER_STRICT",
    "EcdsaBitcoinVerify": "DER_STRICT",  # and low s
    "EcdsaP1363Verify": "RAW_RS",
}
GENERATIONS = itertools.count(1)

# What Wycheproof leaves to the implementation, decided by what the encoding is called: strict DER takes no BER and
# no missing sign byte, a raw signature has exactly 64 bytes. Every flag of an acceptable case must stand here.
ACCEPTABLE = {
    "BER": False,
    "BerEncodedSignature": False,
    "InvalidEncoding": False,
    "MissingZero": False,
    "SigSize": False,
    "SignatureSize": False,
    "WeakHash": True,
}


@pytest.fixture(scope="module", params=PLACES)
def ecdsa(request: pytest.FixtureRequest) -> Iterator[BuiltPlugin]:
    yield from opened("ecdsa", request.param)


def expected(test: dict[str, Any]) -> bool:
    if test["result"] != "acceptable":
        return bool(test["result"] == "valid")
    return all(ACCEPTABLE[flag] for flag in test["flags"])


def scheme(group: dict[str, Any], messages: list[bytes]) -> tuple[dict[str, Any], list[bytes]]:
    """Parameters and the input column."""
    low_s = {"low_s": "REQUIRE"} if group["type"] == "EcdsaBitcoinVerify" else {}
    if group["sha"] in HASH_OF:
        return {"input_kind": "MESSAGE", "hash": HASH_OF[group["sha"]], **low_s}, messages
    if group["sha"] in ("SHAKE128", "SHAKE256"):  # of any length; the leftmost 256 bits count
        digests = [hashlib.new(f"shake_{group['sha'][5:]}", message).digest(32) for message in messages]
    else:
        name = group["sha"].lower().replace("sha3-", "sha3_").replace("-", "").replace("/", "_")
        digests = [hashlib.new(name, message).digest() for message in messages]
    return {"input_kind": "DIGEST", "digest_bytes": len(digests[0]), **low_s}, digests


def groups_of(file: str) -> Iterator[tuple[str, str, str, dict[str, Any]]]:
    """Curve, key in SEC 1 and in DER, and the group, of each group that has one of our curves."""
    for group in shared_json("wycheproof", file)["testGroups"]:
        key = group.get("publicKey") or group["key"]
        if key["curve"] in CURVE_OF:
            der = group.get("publicKeyDer") or group["keyDer"]
            yield CURVE_OF[key["curve"]], key["uncompressed"], der, group


def check(file: str, group: dict[str, Any], codes: list[Code]) -> None:
    for test, code in zip(group["tests"], codes, strict=True):
        assert code not in (Code.UNDECIDED, Code.RETRY), (file, test["tcId"])
        assert (code is Code.VALID) == expected(test), (file, test["tcId"], test["comment"], code.name)
        if "InvalidEncoding" in test["flags"] or "BerEncodedSignature" in test["flags"]:
            assert code in (Code.SIGNATURE_DER, Code.SIGNATURE_LENGTH, Code.OUT_OF_RANGE), test["tcId"]


@pytest.mark.skipif(not FILES, reason="no Wycheproof files: set VERIFIER_SHARED to the folder that has vectors/")
def test_files_are_there():
    assert {Path(name).name.split("_")[1] for name in FILES} >= {"secp256r1", "secp256k1"}


@pytest.mark.parametrize("key_encoding", ["SEC1_UNCOMPRESSED", "SEC1_COMPRESSED", "SPKI"])
@pytest.mark.parametrize("file", FILES)
def test_wycheproof(ecdsa, file, key_encoding):
    for curve, point, der, group in groups_of(file):
        tests = group["tests"]
        parameters, column = scheme(group, [bytes.fromhex(test["msg"]) for test in tests])
        key = bytes.fromhex(der if key_encoding == "SPKI" else point)
        if key_encoding == "SEC1_COMPRESSED":
            key = bytes([2 | key[-1] & 1]) + key[1:33]
        result = ecdsa.run(
            "verify",
            curve,
            {
                "input": column,
                "signature": [bytes.fromhex(test["sig"]) for test in tests],
                "key": [key] * len(tests),
            },
            signature_encoding=ENCODING_OF[group["type"]],
            key_encoding=key_encoding,
            **parameters,
        )
        check(file, group, [Code(number) for number in result.codes])


@pytest.mark.parametrize("file", FILES)
def test_enrolled_keys(ecdsa, file):
    """The same with a table of every group's key, all in a slot in turn."""
    for curve, point, _, group in groups_of(file):
        tests, name = group["tests"], le32(0, next(GENERATIONS))
        parameters, column = scheme(group, [bytes.fromhex(test["msg"]) for test in tests])
        key = [bytes.fromhex(point)]
        for operation, inputs in (("tabulate", {"row": [name + le32(EVERY_ROW)]}), ("enroll", {"slot": [name]})):
            done = ecdsa.run(operation, curve, inputs | {"key": key}, key_encoding="SEC1_UNCOMPRESSED")
            assert list(done.codes) == [Code.VALID], operation
        result = ecdsa.run(
            "verify_enrolled",
            curve,
            {
                "input": column,
                "signature": [bytes.fromhex(test["sig"]) for test in tests],
                "slot": [name] * len(tests),
            },
            signature_encoding=ENCODING_OF[group["type"]],
            **parameters,
        )
        check(file, group, [Code(number) for number in result.codes])


def public_key(group: dict[str, Any], test: dict[str, Any]) -> tuple[str, bytes] | None:
    """A key's encoding and bytes; None where it is not in one of ours, such as a JWK without a coordinate."""
    public = test["public"]
    if group["encoding"] == "asn":
        return "SPKI", bytes.fromhex(public)
    if group["encoding"] == "ecpoint":
        key = bytes.fromhex(public)
        return ("SEC1_COMPRESSED" if len(key) == 33 else "SEC1_UNCOMPRESSED"), key
    if group["encoding"] == "webcrypto" and public.get("crv") == group["curve"] and "y" in public:
        return "RAW_XY", b"".join(base64.urlsafe_b64decode(public[name] + "==") for name in ("x", "y"))
    return None


@pytest.mark.parametrize("file", KEY_FILES)
def test_public_keys(ecdsa, file):
    """A signature by nobody is invalid for a key, and what is no key is called so."""
    by_encoding: dict[tuple[str, str], list[tuple[bytes, dict[str, Any]]]] = {}
    for group in shared_json("wycheproof", file)["testGroups"]:
        for test in group["tests"]:
            if found := public_key(group, test):
                by_encoding.setdefault((CURVE_OF[group["curve"]], found[0]), []).append((found[1], test))
    for (curve, encoding), rows in by_encoding.items():
        inputs = {"input": [bytes(32)] * len(rows), "signature": [b"\1" * 64] * len(rows)}
        result = ecdsa.run("verify", curve, inputs | {"key": [key for key, _ in rows]}, key_encoding=encoding)
        for (_, test), number in zip(rows, result.codes, strict=True):
            code = Code(number)
            assert code is Code.INVALID or Code.KEY_LENGTH <= code < Code.KEY_INDEX, (file, test["tcId"])
            if test["result"] != "acceptable":
                assert (code is Code.INVALID) == (test["result"] == "valid"), (file, test["tcId"], code.name)
            elif "InvalidAsn" in test["flags"]:
                assert code is not Code.INVALID, (file, test["tcId"])
