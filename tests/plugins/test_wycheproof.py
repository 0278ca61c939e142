"""Every ECDSA file of Wycheproof that the shared folder has: any of our curves, any hash, DER and IEEE P1363."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from _answers import BuiltPlugin, opened
from _shared import SHARED, shared_json

from verifier.model import Code

FOLDER = SHARED / "vectors" / "wycheproof"
FILES = sorted(path.name for path in FOLDER.glob("ecdsa_*_test.json"))
CURVE_OF = {"secp256r1": "ECDSA_P256", "secp256k1": "ECDSA_SECP256K1"}
HASH_OF = {"SHA-256": "SHA256", "SHA3-256": "SHA3_256"}  # hashed by the kernel; the others come as digests
ENCODING_OF = {"EcdsaVerify": "DER_STRICT", "EcdsaP1363Verify": "RAW_RS"}

# What Wycheproof leaves to the implementation, decided by what the encoding is called: strict DER takes no BER and
# no missing sign byte, a raw signature has exactly 64 bytes. Every flag of an acceptable case must stand here.
ACCEPTABLE = {
    "BER": False,
    "BerEncodedSignature": False,
    "InvalidEncoding": False,
    "MissingZero": False,
    "SigSize": False,
    "SignatureSize": False,
}


@pytest.fixture(scope="module", params=["host", "provider", pytest.param("gpu", marks=pytest.mark.gpu)])
def ecdsa(request: pytest.FixtureRequest) -> Iterator[BuiltPlugin]:
    yield from opened("ecdsa", request.param)


def expected(test: dict[str, Any]) -> bool:
    if test["result"] != "acceptable":
        return bool(test["result"] == "valid")
    return all(ACCEPTABLE[flag] for flag in test["flags"])


def scheme(group: dict[str, Any], messages: list[bytes]) -> tuple[dict[str, Any], list[bytes]]:
    """Parameters and the input column."""
    if group["sha"] in HASH_OF:
        return {"input_kind": "MESSAGE", "hash": HASH_OF[group["sha"]]}, messages
    name = group["sha"].lower().replace("-", "").replace("sha3", "sha3_")
    digests = [hashlib.new(name, message).digest() for message in messages]
    return {"input_kind": "DIGEST", "digest_bytes": len(digests[0])}, digests


@pytest.mark.skipif(not FILES, reason="no Wycheproof files: set VERIFIER_SHARED to the folder that has vectors/")
def test_files_are_there():
    assert {Path(name).name.split("_")[1] for name in FILES} >= {"secp256r1", "secp256k1"}


@pytest.mark.parametrize("key_encoding", ["SEC1_UNCOMPRESSED", "SPKI"])
@pytest.mark.parametrize("file", FILES)
def test_wycheproof(ecdsa, file, key_encoding):
    count = 0
    for group in shared_json("wycheproof", file)["testGroups"]:
        tests = group["tests"]
        parameters, column = scheme(group, [bytes.fromhex(test["msg"]) for test in tests])
        key = group["publicKeyDer"] if key_encoding == "SPKI" else group["publicKey"]["uncompressed"]
        result = ecdsa.run(
            "verify",
            CURVE_OF[group["publicKey"]["curve"]],
            {
                "input": column,
                "signature": [bytes.fromhex(test["sig"]) for test in tests],
                "key": [bytes.fromhex(key)] * len(tests),
            },
            signature_encoding=ENCODING_OF[group["type"]],
            key_encoding=key_encoding,
            **parameters,
        )
        for test, number in zip(tests, result.codes, strict=True):
            code = Code(number)
            assert code not in (Code.UNDECIDED, Code.RETRY), (file, test["tcId"])
            assert (code is Code.VALID) == expected(test), (file, test["tcId"], test["comment"], code.name)
            if "InvalidEncoding" in test["flags"] or "BerEncodedSignature" in test["flags"]:
                assert code in (Code.SIGNATURE_DER, Code.SIGNATURE_LENGTH, Code.OUT_OF_RANGE), test["tcId"]
            count += 1
    assert count == shared_json("wycheproof", file)["numberOfTests"]
