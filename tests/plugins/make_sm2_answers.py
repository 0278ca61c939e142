"""Writes the known answers of the sm2 plugin to standard output.

From the repository: PYTHONPATH=. python tests/plugins/make_sm2_answers.py > plugins/sm2/vectors.json

Published and earlier generated cases come from shared/vectors/sm2.json, all others are built by _sm2_cases.py; every
expected code is straight Python's. test_sm2_answers.py checks that the file is what this gives.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from typing import Any

from _enrolled_cases import enrolled, enrolling
from _reference import SM2, spki
from _shared import shared_json
from _sm2_cases import Item, be32, chosen, edges, exceptional, identity_hash, public, sign, sm3, verify_code, wrapped

from verifier.model import Code
from verifier.schemes import DEFAULT_SM2_USER_ID

Cases = list[dict[str, Any]]


def der(r: int, s: int) -> bytes:
    body = b""
    for number in (r, s):
        content = number.to_bytes(number.bit_length() // 8 + 1, "big")
        body += bytes([2, len(content)]) + content
    return bytes([0x30, len(body)]) + body


def compressed(key: tuple[int, int]) -> bytes:
    return bytes([2 + key[1] % 2]) + be32(key[0])


def uncompressed(key: tuple[int, int]) -> bytes:
    return b"\x04" + be32(key[0]) + be32(key[1])


def group(
    cases: Iterable[tuple[str, bytes, bytes, bytes]],
    *,
    source: str = "made by tests/plugins/_sm2_cases.py",
    identity: bytes | None = None,
    **parameters: str,
) -> dict[str, Any]:
    """A group of (name, input, signature, key), with the codes that Python gives."""
    made: Cases = []
    for name, data, signature, key in cases:
        code = verify_code(
            data, signature, key, identity=DEFAULT_SM2_USER_ID if identity is None else identity, **parameters
        )
        inputs = {"input": data.hex(), "signature": signature.hex(), "key": key.hex()}
        made.append({"id": name, "source": source, "inputs": inputs, "code": code.name})
    constant = {} if identity is None else {"constant": identity.hex()}
    return {"operation": "verify", "algorithm": "SM2", "parameters": parameters, **constant, "cases": made}


def raw(items: Iterable[Item]) -> list[tuple[str, bytes, bytes, bytes]]:
    return [(item.name, item.digest, item.signature, item.key_bytes) for item in items]


def shared_groups() -> list[dict[str, Any]]:
    """The cases of shared/vectors on the recommended curve: messages by user id, and digests."""
    by_identity: dict[bytes | None, list[tuple[str, bytes, bytes, bytes]]] = {}
    expected: dict[str, bool] = {}
    for case in shared_json("sm2.json")["cases"]:
        if case["curve"] != "sm2p256v1":
            continue
        message = case["message"]
        identity = case["id_ascii"].encode() if message is not None else None
        data = bytes.fromhex(case["digest_e"] if message is None else message)
        item = (
            case["id"],
            data,
            bytes.fromhex(case["r"] + case["s"]),
            bytes.fromhex(case["public_x"] + case["public_y"]),
        )
        by_identity.setdefault(identity, []).append(item)
        expected[case["id"]] = case["valid"]
    groups = [
        group(cases, source="shared/vectors/sm2.json", identity=identity,
              input_kind="DIGEST" if identity is None else "MESSAGE")
        for identity, cases in by_identity.items()
    ]  # fmt: skip
    for made in groups:
        for case in made["cases"]:
            assert (case["code"] == "VALID") == expected[case["id"]], case["id"]
    return groups


def encoding_groups() -> list[dict[str, Any]]:
    """Every encoding, with what breaks it."""
    good = chosen("plain", 0xD1CE, 3, 5)
    digest, signature, key = good.digest, good.signature, good.key_bytes
    r, s, point = good.r, good.s, good.key
    high, other = chosen("high s", 0xD1CE, SM2.n - 3, 7), public(0xD1CF)
    off = next(x for x in range(1, 100) if SM2.lift(x, False) is None)
    strict, body = der(r, s), der(r, s)[2:]
    return [
        group(
            [
                ("good", digest, strict, key),
                ("s changed", digest, der(r, s ^ 2), key),
                ("r is 0", digest, der(0, s), key),
                ("r is n", digest, der(SM2.n, s), key),
                ("r has 257 bits", digest, der(2**256, s), key),
                ("empty", digest, b"", key),
                ("one byte follows", digest, strict + b"\0", key),
                ("cut", digest, strict[:-1], key),
                ("long form of a short length", digest, bytes([0x30, 0x81, len(body)]) + body, key),
                ("r is padded", digest, b"\x30" + bytes([len(body) + 1, 2, body[1] + 1, 0]) + body[2:], key),
                ("raw", digest, signature, key),
            ],
            signature_encoding="DER_STRICT",
        ),
        group(
            [
                ("good", digest, signature + key, b""),
                ("another key", digest, signature + be32(other[0]) + be32(other[1]), b""),
                ("no key", digest, signature, b""),
                ("key off the curve", digest, signature + be32(1) + be32(1), b""),
            ],
            signature_encoding="RAW_RS_KEY",
            key_encoding="IN_SIGNATURE",
        ),
        group(
            [
                ("good", digest, signature, uncompressed(point)),
                ("prefix 02", digest, signature, b"\x02" + key),
                ("no prefix", digest, signature, key),
            ],
            key_encoding="SEC1_UNCOMPRESSED",
        ),
        group(
            [
                ("good", digest, signature, compressed(point)),
                ("other parity", digest, signature, compressed((point[0], point[1] ^ 1))),
                ("no point has this x", digest, signature, compressed((off, 0))),
                ("x is p", digest, signature, compressed((SM2.p, 0))),
                ("prefix 04", digest, signature, b"\x04" + key[:32]),
                ("uncompressed", digest, signature, uncompressed(point)),
            ],
            key_encoding="SEC1_COMPRESSED",
        ),
        group(
            [
                ("good", digest, signature, spki(SM2, uncompressed(point))),
                ("compressed point", digest, signature, spki(SM2, compressed(point))),
                ("point without its prefix", digest, signature, spki(SM2, key)),
                ("one byte follows", digest, signature, spki(SM2, uncompressed(point)) + b"\0"),
                (
                    "another curve",
                    digest,
                    signature,
                    spki(SM2, uncompressed(point)).replace(b"\x82\x2d", b"\x82\x2e"),
                ),
            ],
            key_encoding="SPKI",
        ),
        group(
            [
                ("input of 31 bytes", digest[1:], signature, key),
                ("no input", b"", signature, key),
                ("signature of 63 bytes", digest, signature[1:], key),
                ("signature of 65 bytes", digest, signature + b"\0", key),
                ("key of 63 bytes", digest, signature, key[1:]),
                ("key of 65 bytes", digest, signature, uncompressed(point)),
                ("good", digest, signature, key),
            ]
        ),
        group([("low s", digest, signature, key), *raw([high])], low_s="REQUIRE"),
        group(raw([high]), low_s="ACCEPT_ANY"),
    ]


def kind_groups() -> list[dict[str, Any]]:
    """One signature over a message, over a hash as the message, and over e: each is right in its own kind only."""
    generator = random.Random(17)
    d = 0xD1CE
    key = public(d)
    key_bytes = be32(key[0]) + be32(key[1])
    data = bytes(range(32))
    groups = []
    over_digest = sign(d, int.from_bytes(data, "big"), generator)
    for identity in (DEFAULT_SM2_USER_ID, b"", b"ALICE123@YAHOO.COM", bytes(range(256))):
        e = int.from_bytes(sm3(identity_hash(identity, key) + data), "big")
        over_message = sign(d, e, generator)
        cases = [
            (name, data, be32(r) + be32(s), key_bytes)
            for name, (r, s) in (("over the message", over_message), ("over e", over_digest))
        ]
        for kind in ("MESSAGE", "HASH_AS_MESSAGE", "DIGEST"):
            groups.append(group(cases, identity=identity, input_kind=kind))
    lengths = [0, 1, 22, 23, 24, 31, 55, 56, 63, 64, 65, 1000]
    messages = []
    for length in lengths:
        message = bytes(i % 251 for i in range(length))
        e = int.from_bytes(sm3(identity_hash(DEFAULT_SM2_USER_ID, key) + message), "big")
        r, s = sign(d, e, generator)
        messages.append((f"{length} bytes", message, be32(r) + be32(s), key_bytes))
        messages.append((f"{length} bytes and one more", message + b"\0", be32(r) + be32(s), key_bytes))
    groups.append(group(messages, identity=DEFAULT_SM2_USER_ID, input_kind="MESSAGE"))
    short = [("a hash of 31 bytes", data[1:], messages[0][2], key_bytes)]
    return [*groups, group(short, identity=DEFAULT_SM2_USER_ID, input_kind="HASH_AS_MESSAGE")]


def enrolled_groups() -> list[dict[str, Any]]:
    """What the other groups hold of a few keys, verified by slot; each encoding and kind once."""
    data, key = bytes(range(32)), public(0xD1CE)
    items = [*edges(), *exceptional()]
    distinct = list(
        dict.fromkeys(item.key_bytes for item in items if SM2.contains(*item.key) and max(item.key) < SM2.p)
    )[:4]
    other = public(0xD1D0)
    groups = enrolling("SM2", distinct, {"SEC1_COMPRESSED": compressed(other), "SPKI": spki(SM2, uncompressed(key))})
    cases = [(item.name, item.digest, item.signature, item.key_bytes, item.code) for item in items]
    groups.append(enrolled("SM2", distinct, cases))
    r, s = sign(0xD1D0, int.from_bytes(data, "big"), random.Random(18))
    by_encoding = [b""] * 4 + [be32(other[0]) + be32(other[1]), be32(key[0]) + be32(key[1])]
    groups.append(enrolled("SM2", by_encoding, [("key 4", data, be32(r) + be32(s), by_encoding[4], Code.VALID)]))
    for made in (*encoding_groups(), *kind_groups()):
        parameters = {name: value for name, value in made["parameters"].items() if name != "key_encoding"}
        if "key_encoding" in made["parameters"] or set(parameters) <= {"low_s"}:
            continue
        rows = [
            (case["id"], *(bytes.fromhex(case["inputs"][name]) for name in ("input", "signature", "key")),
             Code[case["code"]])
            for case in made["cases"]
        ]  # fmt: skip
        if any(row[4] is Code.VALID and row[3] in distinct for row in rows):
            constant = bytes.fromhex(made["constant"]) if "constant" in made else None
            groups.append(enrolled("SM2", distinct, rows, constant, **parameters))
    low = next(made for made in encoding_groups() if made["parameters"] == {"low_s": "REQUIRE"})["cases"]
    rows = [(c["id"], *(bytes.fromhex(v) for v in c["inputs"].values()), Code[c["code"]]) for c in low]
    groups.append(enrolled("SM2", distinct, rows, low_s="REQUIRE"))
    return groups


def text() -> str:
    """The file."""
    few = [*exceptional()[:50], wrapped(4321, 8765)]
    groups = [*shared_groups(), group(raw(edges())), group(raw(few)), *encoding_groups(), *kind_groups()]
    groups += enrolled_groups()
    assert {case["code"] for made in groups for case in made["cases"]} >= {Code.VALID.name, Code.HIGH_S.name}
    answers = {"source": "GB/T 32918.2-2016, GB/T 32918.5-2017, OpenSSL, and straight Python", "groups": groups}
    return json.dumps(answers, indent=1) + "\n"


if __name__ == "__main__":
    print(text(), end="")
