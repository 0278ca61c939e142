"""Writes the known answers of the ecdsa plugin to standard output.

From the repository: PYTHONPATH=. python tests/plugins/make_ecdsa_answers.py > plugins/ecdsa/vectors.json

Published cases are quoted, all others are built by _ecdsa_cases.py; every expected code is straight Python's
(_reference.py). test_ecdsa_answers.py checks that the file is what this gives.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from _ecdsa_cases import Item, be32, der, edges, public, sign
from _enrolled_cases import enrolled, enrolling
from _hashes import HASHES
from _reference import P256, SECP256K1, Curve, recover, spki, verify_code

from verifier.model import Code

# RFC 6979 A.2.5, message "sample": hash, r, s; the key is U = xG there.
RFC6979_KEY = 0xC9AFA9D845BA75166B5C215767B1D6934E50C3DB36E89B127B8A622B120F6721
RFC6979 = {
    "sha1": (
        "61340c88c3aaebeb4f6d667f672ca9759a6ccaa9fa8811313039ee4a35471d32",
        "6d7f147dac089441bb2e2fe8f7a3fa264b9c475098fdcf6e00d7c996e1b8b7eb",
    ),
    "sha224": (
        "53b2fff5d1752b2c689df257c04c40a587fababb3f6fc2702f1343af7ca9aa3f",
        "b9afb64fdc03dc1a131c7d2386d11e349f070aa432a4acc918bea988bf75c74c",
    ),
    "sha256": (
        "efd48b2aacb6a8fd1140dd9cd45e81d69d2c877b56aaf991c34d0ea84eaf3716",
        "f7cb1c942d657c41d436c7a1b6e29f65f3e900dbb9aff4064dc4ab2f843acda8",
    ),
    "sha384": (
        "0eafea039b20e9b42309fb1d89e213057cbf973dc0cfc8f129edddc800ef7719",
        "4861f0491e6998b9455193e34e7b0d284ddd7149a74b95b9261f13abde940954",
    ),
    "sha512": (
        "8496a60b5e9b47c825488827e0495b0e3fa109ec4568fd3f8d1097678eb97f00",
        "2362ab1adbe2b8adf9cb9edab740ea6049c028114f2460f96554f61fae3302fe",
    ),
}


def case(name: str, code: Code, outputs: dict[str, str] | None = None, source: str = "", **inputs: bytes) -> Any:
    made: dict[str, Any] = {"id": name, "inputs": {key: value.hex() for key, value in inputs.items()}}
    if source:
        made["source"] = source
    made["code"] = code.name
    if outputs is not None:
        made["outputs"] = outputs
    return made


def group(operation: str, curve: Curve, cases: list[Any], **parameters: str | int) -> dict[str, Any]:
    return {"operation": operation, "algorithm": curve.name, "parameters": parameters, "cases": cases}


def verify_groups(curve: Curve) -> list[dict[str, Any]]:
    groups = []
    raw = []
    for item in edges(curve):
        code = verify_code(curve, item.digest, item.signature, item.key_bytes)
        raw.append(case(item.name, code, input=item.digest, signature=item.signature, key=item.key_bytes))
    groups.append(group("verify", curve, raw))
    good = edges(curve)[0]
    lengths = [(good.digest[1:], good.signature, good.key_bytes), (good.digest, b"", good.key_bytes)]
    lengths += [(good.digest, good.signature[1:], good.key_bytes), (good.digest, good.signature, good.key_bytes[1:])]
    codes = [Code.INPUT_LENGTH, Code.SIGNATURE_LENGTH, Code.SIGNATURE_LENGTH, Code.KEY_LENGTH]
    groups.append(
        group(
            "verify",
            curve,
            [
                case(f"{code.name.lower()} {i}", code, input=row[0], signature=row[1], key=row[2])
                for i, (row, code) in enumerate(zip(lengths, codes, strict=True))
            ],
        )
    )
    groups += [digest_sizes(curve)] if curve is P256 else []
    groups += [published_digest(name) for name in RFC6979 if name not in ("sha256",)] if curve is P256 else []
    groups += [messages(curve, name) for name in HASHES]
    groups += [encoded(curve, "DER_STRICT", key) for key in ("SEC1_UNCOMPRESSED", "SEC1_COMPRESSED", "SPKI")]
    groups.append(encoded(curve, "DER_LAX", "SEC1_COMPRESSED"))
    groups.append(low_s(curve))
    return groups


def published_digest(name: str) -> dict[str, Any]:
    digest = hashlib.new(name, b"sample").digest()
    x, y = public(P256, RFC6979_KEY)
    r, s = (bytes.fromhex(number) for number in RFC6979[name])
    rows = [(f"rfc6979 {name}", digest, Code.VALID), (f"rfc6979 {name}, changed", digest[::-1], Code.INVALID)]
    cases = [
        case(label, code, source="RFC 6979 A.2.5", input=value, signature=r + s, key=be32(x) + be32(y))
        for label, value, code in rows
    ]
    return group("verify", P256, cases, digest_bytes=len(digest))


def digest_sizes(curve: Curve) -> dict[str, Any]:
    x, y = public(curve, RFC6979_KEY)
    r, s = (bytes.fromhex(number) for number in RFC6979["sha256"])
    key = be32(x) + be32(y)
    published = case("rfc6979 sha256", Code.VALID, source="RFC 6979 A.2.5", input=b"sample", signature=r + s, key=key)
    return group("verify", curve, [published], input_kind="MESSAGE", hash="SHA256")


def messages(curve: Curve, name: str) -> dict[str, Any]:
    cases = []
    for d, length in enumerate((0, 3, 55, 64, 136, 200), 2):
        message = bytes(i * d % 256 for i in range(length))
        r, s, _ = sign(curve, d, HASHES[name](message), 100 + d)
        x, y = public(curve, d)
        row = {"signature": be32(r) + be32(s), "key": be32(x) + be32(y)}
        cases.append(case(f"{length} bytes", Code.VALID, input=message, **row))
        cases.append(case(f"{length} bytes and one more", Code.INVALID, input=message + b"\0", **row))
    return group("verify", curve, cases, input_kind="MESSAGE", hash=name)


def encoded(curve: Curve, signature_encoding: str, key_encoding: str) -> dict[str, Any]:
    digest, d = be32(0xD16E57), 77
    r, s, _ = sign(curve, d, digest, 88)
    x, y = public(curve, d)
    compressed, whole = bytes([2 + y % 2]) + be32(x), b"\x04" + be32(x) + be32(y)
    key = {"SEC1_UNCOMPRESSED": whole, "SEC1_COMPRESSED": compressed, "SPKI": spki(curve, whole)}[key_encoding]
    good = der(r, s)
    no_point = next(x for x in range(1, 99) if curve.lift(x, False) is None)
    signatures = {
        "good": good,
        "trailing byte": good + b"\0",
        "padded r": der_padded(r, s),
        "long form length": b"\x30\x81" + good[1:],
        "truncated": good[:-1],
        "empty": b"",
        "negative": b"\x30\x06\x02\x01\x80\x02\x01\x01",
        "s is 0": der(r, 0),
        "r is n": der(curve.n, s),
        "r of 264 bits": der(2**263, s),
        "raw": be32(r) + be32(s),
    }
    keys = {
        "key with a wrong first byte": b"\x05" + key[1:],
        "key cut": key[:-1],
        "key empty": b"",
        "key negated": {
            "SEC1_UNCOMPRESSED": b"\x04" + be32(x) + be32(curve.p - y),
            "SEC1_COMPRESSED": bytes([3 - y % 2]) + be32(x),
            "SPKI": spki(curve, bytes([3 - y % 2]) + be32(x)),
        }[key_encoding],
        "key without a point": {
            "SEC1_UNCOMPRESSED": b"\x04" + be32(x) + be32(y ^ 1),
            "SEC1_COMPRESSED": b"\x02" + be32(no_point),
            "SPKI": spki(curve, b"\x03" + be32(no_point)),
        }[key_encoding],
        "key of another curve": {
            "SEC1_UNCOMPRESSED": b"\x04" + be32(curve.p) + be32(y),
            "SEC1_COMPRESSED": b"\x02" + be32(curve.p),
            "SPKI": spki(P256 if curve is SECP256K1 else SECP256K1, whole),
        }[key_encoding],
    }
    if key_encoding == "SPKI":
        keys["key compressed"] = spki(curve, compressed)
    rows = [(name, value, key) for name, value in signatures.items()]
    rows += [(name, good, value) for name, value in keys.items()]
    cases = []
    for name, signature, key_value in rows:
        code = verify_code(
            curve, digest, signature, key_value, signature_encoding=signature_encoding, key_encoding=key_encoding
        )
        cases.append(case(name, code, input=digest, signature=signature, key=key_value))
    return group("verify", curve, cases, signature_encoding=signature_encoding, key_encoding=key_encoding)


def der_padded(r: int, s: int) -> bytes:
    """r with one zero byte too many."""
    good = der(r, s)
    size = good[3]
    body = bytes([2, size + 1, 0]) + good[4:]
    return bytes([0x30, len(body)]) + body


def low_s(curve: Curve) -> dict[str, Any]:
    half, r = curve.n // 2, sign(curve, 5, be32(1), 77)[0]
    cases = []
    for name, s in (("s is n / 2", half), ("s is n / 2 + 1", half + 1), ("s is 1", 1), ("s is n - 1", curve.n - 1)):
        d = (s * 77 - 1) * pow(r, -1, curve.n) % curve.n
        x, y = public(curve, d)
        row = {"input": be32(1), "signature": be32(r) + be32(s), "key": be32(x) + be32(y)}
        code = verify_code(curve, row["input"], row["signature"], row["key"], require_low_s=True)
        cases.append(case(name, code, **row))
    return group("verify", curve, cases, low_s="REQUIRE")


def recover_case(curve: Curve, name: str, digest: bytes, signature: bytes, address_hash: str) -> Any:
    code, key = recover(curve, digest, signature)
    encoded_key = be32(key[0]) + be32(key[1]) if key else bytes(64)
    address = HASHES[address_hash](encoded_key)[12:] if key and address_hash != "UNSPECIFIED" else bytes(20)
    outputs = {"key": encoded_key.hex(), "address": address.hex()}
    return case(name, code, outputs, input=digest, signature=signature)


def recover_groups(curve: Curve) -> list[dict[str, Any]]:
    groups = []
    for address_hash in ("UNSPECIFIED", "KECCAK256", "SM3"):
        cases = []
        for d in range(2, 6):
            digest = HASHES["KECCAK256"](bytes([d]))
            r, s, recovery = sign(curve, d, digest, 99 + d)
            for v in (recovery, recovery + 27, recovery ^ 1, 2 + recovery % 2, 4, 26, 31):
                signature = be32(r) + be32(s) + bytes([v])
                cases.append(recover_case(curve, f"key {d}, v {v}", digest, signature, address_hash))
        groups.append(group("recover", curve, cases, address_hash=address_hash))
    cases = []
    items = [item for item in edges(curve) if not item.name.startswith("key")]
    for item in items:
        for v in (0, 3):
            cases.append(
                recover_case(curve, f"{item.name}, v {v}", item.digest, item.signature + bytes([v]), "KECCAK256")
            )
    k = 4321
    x, y = public(curve, k)
    at_infinity = Item("the key is at infinity", be32(99 * k % curve.n), x % curve.n, 99, (x, y), Code.INVALID)
    signature = at_infinity.signature + bytes([y % 2])
    cases.append(recover_case(curve, at_infinity.name, at_infinity.digest, signature, "KECCAK256"))
    groups.append(group("recover", curve, cases, address_hash="KECCAK256"))
    return groups


def enrolled_groups(curve: Curve) -> list[dict[str, Any]]:
    """What the groups of `verify` hold of a few keys, verified by slot; every hash and signature encoding once."""
    items = edges(curve)
    keys = list(
        dict.fromkeys(item.key_bytes for item in items if curve.contains(*item.key) and max(item.key) < curve.p)
    )[:4]
    x, y = public(curve, 77)  # the key of `encoded`
    messages_key = public(curve, 2)
    keys = [*keys[:4], be32(x) + be32(y)]
    if be32(messages_key[0]) + be32(messages_key[1]) not in keys:
        keys[3] = be32(messages_key[0]) + be32(messages_key[1])
    compressed = bytes([2 + y % 2]) + be32(x)
    groups = enrolling(curve.name, keys, {"SEC1_COMPRESSED": compressed})
    groups.append(enrolled(curve.name, keys, [(i.name, i.digest, i.signature, i.key_bytes, i.code) for i in items]))
    der_good = sign(curve, 77, be32(0xD16E57), 88)[:2]
    for made in verify_groups(curve):
        parameters = {name: value for name, value in made["parameters"].items() if name != "key_encoding"}
        if made["parameters"].get("key_encoding", "RAW_XY") == "SEC1_COMPRESSED" and parameters:
            rows = [
                (c["id"], bytes.fromhex(c["inputs"]["input"]), bytes.fromhex(c["inputs"]["signature"]), keys[4],
                 Code[c["code"]])
                for c in made["cases"]
                if c["inputs"]["key"] == compressed.hex()
            ]  # fmt: skip
        elif "key_encoding" not in made["parameters"]:
            rows = [
                (c["id"], *(bytes.fromhex(v) for v in c["inputs"].values()), Code[c["code"]]) for c in made["cases"]
            ]
        else:
            continue
        if parameters and any(row[4] is Code.VALID and row[3] in keys for row in rows):
            groups.append(enrolled(curve.name, keys, rows, **parameters))
    last = [*keys, keys[4]]
    row = ("key 5", be32(0xD16E57), be32(der_good[0]) + be32(der_good[1]), keys[4], Code.VALID)
    groups.append(enrolled(curve.name, [b""] * 5 + last[5:], [row]))
    return groups


def answers() -> dict[str, Any]:
    groups = [
        made
        for curve in (P256, SECP256K1)
        for made in verify_groups(curve) + recover_groups(curve) + enrolled_groups(curve)
    ]
    return {"source": "RFC 6979 A.2.5; the others made by tests/plugins/make_ecdsa_answers.py", "groups": groups}


def text() -> str:
    """The file, one case a line, so that changes are readable."""
    made = answers()
    parts = []
    for one in made["groups"]:
        head = json.dumps({key: value for key, value in one.items() if key != "cases"})[:-1]
        parts.append(f'  {head}, "cases": [\n' + ",\n".join(f"    {json.dumps(c)}" for c in one["cases"]) + "]}")
    return f'{{"source": {json.dumps(made["source"])},\n "groups": [\n' + ",\n".join(parts) + "\n]}\n"


if __name__ == "__main__":
    print(text(), end="")
