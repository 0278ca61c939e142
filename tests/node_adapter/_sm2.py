"""SM2 verification with Python integers: what a daemon must answer, for the tests."""

from gmssl import func, sm3

from node_adapter.chain._keys import GENERATOR, A, B, N, P, user_hash
from node_adapter.client import InputKind, KeyEncoding, SignatureEncoding
from verifier.model import Code
from verifier.schemes import DEFAULT_SM2_USER_ID


def _double(point):
    x, y, z = point
    if not y or not z:
        return (1, 1, 0)
    s = 4 * x * y * y % P
    m = (3 * x * x + A * pow(z, 4, P)) % P
    x3 = (m * m - 2 * s) % P
    return x3, (m * (s - x3) - 8 * pow(y, 4, P)) % P, 2 * y * z % P


def _add(p, q):
    if not p[2]:
        return q
    if not q[2]:
        return p
    z1, z2 = p[2] * p[2] % P, q[2] * q[2] % P
    u1, u2 = p[0] * z2 % P, q[0] * z1 % P
    s1, s2 = p[1] * z2 * q[2] % P, q[1] * z1 * p[2] % P
    if u1 == u2:
        return _double(p) if s1 == s2 else (1, 1, 0)
    h, r = (u2 - u1) % P, (s2 - s1) % P
    v = u1 * h * h % P
    x3 = (r * r - h * h * h - 2 * v) % P
    return x3, (r * (v - x3) - s1 * h * h * h) % P, p[2] * q[2] * h % P


def _sum(a, p, b, q):
    """a p + b q, affine x; None at infinity."""
    both = _add(p, q)
    total = (1, 1, 0)
    for bit in range(255, -1, -1):
        total = _double(total)
        pick = (a >> bit & 1) + 2 * (b >> bit & 1)
        if pick:
            total = _add(total, (None, p, q, both)[pick])
    return total[0] * pow(total[2], -2, P) % P if total[2] else None


def _integer(data, at):
    if data[at : at + 1] != b"\2" or at + 2 > len(data):
        return None
    value = data[at + 2 : at + 2 + data[at + 1]]
    if len(value) != data[at + 1] or not 1 <= len(value) <= 33 or value[0] > 127:
        return None
    if len(value) > 1 and value[0] == 0 and value[1] < 128:
        return None
    return int.from_bytes(value, "big"), at + 2 + len(value)


def _der(data):
    if len(data) < 2 or data[0] != 0x30 or data[1] > 127 or data[1] != len(data) - 2:
        return None
    first = _integer(data, 2)
    second = first and _integer(data, first[1])
    return (first[0], second[0]) if second and second[1] == len(data) else None


def code(scheme, message, signature, key):
    """The code of one item."""
    if scheme.signature_encoding is SignatureEncoding.DER_STRICT:
        pair = _der(signature)
        if pair is None:
            return Code.SIGNATURE_DER
    elif len(signature) != 64:
        return Code.SIGNATURE_LENGTH
    else:
        pair = int.from_bytes(signature[:32], "big"), int.from_bytes(signature[32:], "big")
    if scheme.key_encoding is KeyEncoding.SEC1_UNCOMPRESSED:
        if len(key) != 65:
            return Code.KEY_LENGTH
        if key[0] != 4:
            return Code.KEY_PREFIX
        key = key[1:]
    elif scheme.key_encoding is not KeyEncoding.RAW_XY:
        raise NotImplementedError(scheme.key_encoding)
    x, y = int.from_bytes(key[:32], "big"), int.from_bytes(key[32:], "big")
    if len(key) != 64:
        return Code.KEY_LENGTH
    if x >= P or y >= P:
        return Code.KEY_RANGE
    if (x * x * x + A * x + B - y * y) % P:
        return Code.KEY_NOT_ON_CURVE
    r, s = pair
    if not 0 < r < N or not 0 < s < N:
        return Code.OUT_OF_RANGE
    if scheme.input_kind is InputKind.DIGEST:
        digest = message
    else:
        user_id = DEFAULT_SM2_USER_ID if scheme.sm2_user_id is None else scheme.sm2_user_id
        digest = bytes.fromhex(sm3.sm3_hash(func.bytes_to_list(user_hash(key, user_id) + message)))
    t = (r + s) % N
    if not t:
        return Code.INVALID
    g = int.from_bytes(GENERATOR[:32], "big"), int.from_bytes(GENERATOR[32:], "big"), 1
    x1 = _sum(s, g, t, (x, y, 1))
    good = x1 is not None and (int.from_bytes(digest, "big") + x1) % N == r
    return Code.VALID if good else Code.INVALID


def verify(items):
    """The codes of a request, as MockVerifier wants them."""
    keys = items.keys or [b""] * len(items.inputs)
    return [code(items.scheme, *item) for item in zip(items.inputs, items.signatures, keys, strict=True)]
