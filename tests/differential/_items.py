"""Random, malformed and edge items in every encoding of a scheme, with what each must come out as.

What an item must be follows from how it was made; the encodings are written here, apart from the product's parsers.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from verifier.bench.signatures import CURVES, FAULTS, make_signatures, multiply
from verifier.model import Code, Column

USER_ID = b"1234567812345678"


@dataclass
class Items:
    """A batch as the rig takes it, and its codes."""

    columns: dict[str, Column]
    parameters: dict[str, str]
    constant: bytes
    codes: np.ndarray


def packed(name: str, values: list[bytes]) -> Column:
    offsets = np.zeros(len(values) + 1, np.uint32)
    np.cumsum([len(value) for value in values], out=offsets[1:])
    return Column.variable(name, b"".join(values), offsets, len(values))


def integer_der(value: int) -> bytes:
    data = value.to_bytes(value.bit_length() // 8 + 1, "big")
    return b"\x02" + bytes([len(data)]) + data


def signature_der(raw: bytes) -> bytes:
    body = integer_der(int.from_bytes(raw[:32], "big")) + integer_der(int.from_bytes(raw[32:], "big"))
    return b"\x30" + bytes([len(body)]) + body


DER_FAULTS: dict[str, Callable[[bytes], bytes]] = {
    "trailing byte": lambda der: der + b"\0",
    "cut short": lambda der: der[:-1],
    "wrong outer tag": lambda der: b"\x31" + der[1:],
    "wrong inner tag": lambda der: der[:2] + b"\x03" + der[3:],
    "outer length too long": lambda der: der[:1] + bytes([der[1] + 1]) + der[2:],
    "long form length": lambda der: b"\x30\x81" + der[1:],
    "padded r": lambda der: b"\x30" + bytes([der[1] + 1]) + b"\x02" + bytes([der[3] + 1]) + b"\0" + der[4:],
    "negative r": lambda der: der[:4] + bytes([der[4] | 0x80]) + der[5:] if der[3] == 32 else b"",
    "empty": lambda der: b"",
}


def raw(algorithm: str, items: int, seed: int, spoilt: float = 0.01) -> Items:
    """DIGEST, RAW_RS, RAW_XY with every fault of `FAULTS`."""
    made = make_signatures(algorithm, items, seed=seed, fault_share=spoilt)
    columns = {
        "input": Column.fixed("input", made.digests.ravel(), 32, items),
        "signature": Column.fixed("signature", made.signatures.ravel(), 64, items),
        "key": Column.fixed("key", made.keys.ravel(), 64, items),
    }
    parameters = {"input_kind": "DIGEST", "signature_encoding": "RAW_RS", "key_encoding": "RAW_XY"}
    return Items(columns, parameters, USER_ID if algorithm == "SM2" else b"", made.codes.copy())


def encoded(algorithm: str, items: int, seed: int, spoilt: float = 0.01) -> Items:
    """DIGEST, DER_STRICT, compressed keys; DER broken in every way of `DER_FAULTS`, prefixes and lengths too."""
    rng = random.Random(seed)
    curve = CURVES[algorithm]
    # Faults of y do not survive compression, and a negated key is simply another key.
    faults = [name for name in FAULTS if name not in ("key off the curve", "negated key")]
    made = make_signatures(algorithm, items, seed=seed, fault_share=spoilt, faults=faults)
    codes = made.codes.copy()
    signatures, keys = [], []
    for i in range(items):
        der = signature_der(made.signatures[i].tobytes())
        key = bytes([2 + (made.keys[i, 63] & 1)]) + made.keys[i, :32].tobytes()
        if codes[i] == Code.VALID and rng.random() < 2 * spoilt:
            match rng.randrange(5):
                case 0 | 1:
                    broken = DER_FAULTS[rng.choice(list(DER_FAULTS))](der)
                    der, codes[i] = broken, Code.SIGNATURE_DER
                case 2:
                    key, codes[i] = bytes([rng.choice([0, 1, 4, 5, 255])]) + key[1:], Code.KEY_PREFIX
                case 3:
                    key, codes[i] = rng.choice([key + b"\0", key[:-1], b""]), Code.KEY_LENGTH
                case 4:
                    x = rng.randrange(curve.p)
                    while is_square(curve.p, (x**3 + curve.a * x + curve.b) % curve.p):
                        x = (x + 1) % curve.p
                    key, codes[i] = key[:1] + x.to_bytes(32, "big"), Code.KEY_NOT_ON_CURVE
        signatures.append(der)
        keys.append(key)
    columns = {
        "input": Column.fixed("input", made.digests.ravel(), 32, items),
        "signature": packed("signature", signatures),
        "key": packed("key", keys),
    }
    parameters = {"input_kind": "DIGEST", "signature_encoding": "DER_STRICT", "key_encoding": "SEC1_COMPRESSED"}
    return Items(columns, parameters, USER_ID if algorithm == "SM2" else b"", codes)


def is_square(p: int, value: int) -> bool:
    return value == 0 or pow(value, (p - 1) // 2, p) == 1


def sm2_za(user_id: bytes, key: bytes) -> bytes:
    """GB/T 32918.2, 5.5."""
    curve = CURVES["SM2"]
    fixed = b"".join(value.to_bytes(32, "big") for value in (curve.a, curve.b, curve.x, curve.y))
    return hashlib.new("sm3", (8 * len(user_id)).to_bytes(2, "big") + user_id + fixed + key).digest()


def sm2_messages(items: int, seed: int, spoilt: float = 0.01) -> Items:
    """MESSAGE of 0 to 300 bytes, RAW_RS, SEC1_UNCOMPRESSED; some under another user id or for another message."""
    rng = random.Random(seed)
    curve = CURVES["SM2"]
    n = curve.n
    messages, signatures, keys, codes = [], [], [], np.full(items, Code.VALID, np.uint8)
    scalars = [rng.randrange(1, n) for _ in range(8)]
    signers = [(pow(1 + d, -1, n), multiply(curve, d)) for d in scalars]
    nonces = [(k, multiply(curve, k)) for k in (rng.randrange(1, n) for _ in range(64))]
    za = {
        (user, inverse): sm2_za(user, x.to_bytes(32, "big") + y.to_bytes(32, "big"))
        for inverse, (x, y) in signers
        for user in (USER_ID, b"", b"ALICE123@YAHOO.COM")
    }
    for i in range(items):
        message = rng.randbytes(rng.randrange(301))
        inverse, (x, y) = rng.choice(signers)
        user, signed = USER_ID, message
        if rng.random() < spoilt:
            codes[i] = Code.INVALID
            match rng.randrange(3):
                case 0:
                    user = b""
                case 1:
                    user = b"ALICE123@YAHOO.COM"
                case 2:
                    signed = message + b"!"
        e = int.from_bytes(hashlib.new("sm3", za[user, inverse] + signed).digest(), "big")
        k, (x1, _) = rng.choice(nonces)
        r = (e + x1) % n
        s = (inverse * (k + r) - r) % n
        messages.append(message)
        signatures.append(r.to_bytes(32, "big") + s.to_bytes(32, "big"))
        keys.append(b"\4" + x.to_bytes(32, "big") + y.to_bytes(32, "big"))
    columns = {
        "input": packed("input", messages),
        "signature": Column.fixed("signature", b"".join(signatures), 64, items),
        "key": Column.fixed("key", b"".join(keys), 65, items),
    }
    parameters = {"input_kind": "MESSAGE", "signature_encoding": "RAW_RS", "key_encoding": "SEC1_UNCOMPRESSED"}
    return Items(columns, parameters, USER_ID, codes)
