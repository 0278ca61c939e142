"""Block ciphers straight from their specifications, for comparison: slow, one block at a time.

AES and SM4 are `cryptography`'s. Bytes are in the order of the published test vectors.
"""

from __future__ import annotations

from collections.abc import Callable

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

__all__ = ["REFERENCES", "Encrypt", "aria", "cbc", "ctr", "ecb", "gcm", "hight", "kuznyechik", "skinny"]

Encrypt = Callable[[bytes], bytes]


def _rotate8(x: int, n: int) -> int:
    return (x << n | x >> (8 - n)) & 0xFF


def _skinny_sboxes() -> tuple[list[int], list[int]]:
    four, eight = [], []
    for x in range(16):
        for step in range(4):
            x ^= 1 ^ ((x >> 3 | x >> 2) & 1)
            if step < 3:
                x = (x << 1 | x >> 3) & 15
        four.append(x)
    for value in range(256):
        b = [value >> i & 1 for i in range(8)]
        for step in range(4):
            b[4] ^= 1 ^ (b[7] | b[6])
            b[0] ^= 1 ^ (b[3] | b[2])
            b = [b[5], b[3], b[0], b[4], b[6], b[7], b[1], b[2]] if step < 3 else [b[0], b[2], b[1], *b[3:]]
        eight.append(sum(bit << i for i, bit in enumerate(b)))
    return four, eight


_SKINNY4, _SKINNY8 = _skinny_sboxes()
_SKINNY_PT = (9, 15, 8, 13, 10, 14, 12, 11, 0, 1, 2, 3, 4, 5, 6, 7)


def skinny(block_bytes: int, key: bytes) -> Encrypt:
    """SKINNY (ePrint 2016/660)."""
    bits = block_bytes // 2
    parts = len(key) // block_bytes

    def cells(data: bytes) -> list[int]:
        return list(data) if bits == 8 else [n for byte in data for n in (byte >> 4, byte & 15)]

    def step(x: int, which: int) -> int:
        if bits == 8:
            if which == 1:
                return (x << 1 & 0xFE) | ((x >> 7 ^ x >> 5) & 1)
            return x >> 1 | ((x ^ x >> 6) & 1) << 7
        if which == 1:
            return (x << 1 & 14) | ((x >> 3 ^ x >> 2) & 1)
        return x >> 1 | ((x ^ x >> 3) & 1) << 3

    def encrypt(block: bytes) -> bytes:
        s = cells(block)
        tweakey = [cells(key[i * block_bytes : (i + 1) * block_bytes]) for i in range(parts)]
        constant = 0
        for _ in range(28 + 4 * parts if bits == 4 else 32 + 8 * parts):
            s = [(_SKINNY4 if bits == 4 else _SKINNY8)[x] for x in s]
            constant = (constant << 1 & 63) | (constant >> 5 ^ constant >> 4 ^ 1) & 1
            s[0] ^= constant & 15
            s[4] ^= constant >> 4
            s[8] ^= 2
            for i in range(8):
                for part in tweakey:
                    s[i] ^= part[i]
            for z, part in enumerate(tweakey):
                part[:] = [part[i] for i in _SKINNY_PT]
                if z:
                    part[:8] = [step(x, z) for x in part[:8]]
            rows = [[s[4 * r + (c - r) % 4] for c in range(4)] for r in range(4)]
            a, b, c, d = rows
            s = [x ^ y ^ z for x, y, z in zip(a, c, d, strict=True)] + a
            s += [x ^ y for x, y in zip(b, c, strict=True)] + [x ^ y for x, y in zip(a, c, strict=True)]
        if bits == 8:
            return bytes(s)
        return bytes(s[i] << 4 | s[i + 1] for i in range(0, 16, 2))

    return encrypt


def hight(key: bytes, reverse: bool = False) -> Encrypt:
    """HIGHT (TTAK.KO-12.0040). `reverse`: the highest byte first, as the standards print it."""
    mk = list(reversed(key)) if reverse else list(key)
    whitening = mk[12:16] + mk[:4]
    bits = [0, 1, 0, 1, 1, 0, 1]  # s_0 on: delta_0 = 0x5a
    for i in range(127):
        bits.append(bits[i + 3] ^ bits[i])
    delta = [sum(bits[i + j] << j for j in range(7)) for i in range(128)]
    sub = [0] * 128
    for i in range(8):
        for j in range(8):
            sub[16 * i + j] = (mk[(j - i) % 8] + delta[16 * i + j]) & 0xFF
            sub[16 * i + j + 8] = (mk[(j - i) % 8 + 8] + delta[16 * i + j + 8]) & 0xFF

    def f0(x: int) -> int:
        return _rotate8(x, 1) ^ _rotate8(x, 2) ^ _rotate8(x, 7)

    def f1(x: int) -> int:
        return _rotate8(x, 3) ^ _rotate8(x, 4) ^ _rotate8(x, 6)

    def whiten(x: list[int], w: list[int]) -> None:
        x[0] = (x[0] + w[0]) & 0xFF
        x[2] ^= w[1]
        x[4] = (x[4] + w[2]) & 0xFF
        x[6] ^= w[3]

    def encrypt(block: bytes) -> bytes:
        x = list(reversed(block)) if reverse else list(block)
        whiten(x, whitening[:4])
        for i in range(32):
            x = [
                x[7] ^ (f0(x[6]) + sub[4 * i + 3] & 0xFF),
                x[0],
                (x[1] + (f1(x[0]) ^ sub[4 * i])) & 0xFF,
                x[2],
                x[3] ^ (f0(x[2]) + sub[4 * i + 1] & 0xFF),
                x[4],
                (x[5] + (f1(x[4]) ^ sub[4 * i + 2])) & 0xFF,
                x[6],
            ]
        x = x[1:] + x[:1]
        whiten(x, whitening[4:])
        return bytes(reversed(x)) if reverse else bytes(x)

    return encrypt


def _multiply(a: int, b: int, polynomial: int) -> int:
    product = 0
    while b:
        if b & 1:
            product ^= a
        a <<= 1
        if a & 0x100:
            a ^= polynomial
        b >>= 1
    return product


_PI = bytes.fromhex(
    "fceedd11cf6e3116fbc4fada23c5044de977f0db932e99ba1736f1bb14cd5fc1f918655ae25cef21811c3c428b018e4f"
    "058402aee36a8fa0060bed987fd4d31feb342c51eac848abf22a68a2fd3aceccb5700e56080c7612bf7213479cb75d87"
    "15a19629107b9ac7f391786f9d9eb2b13275193dff358a7e6d54c680c3bd0d57dff524a93ea843c9d779d6f67c22b903"
    "e00fecde7a94b0bcdce828504e330a4aa79760731e0062441ab83882649f2641ad454692275e552f8ca3a57d69d5953b"
    "0758b34086ac1df730376be488d9e789e11b83494c3ff8fe8d53aa90cad88561207167a42d2b095bcb9b25d0bee56c52"
    "59a674d2e6f4b4c0d166afc2394b63b6"
)
_KUZNYECHIK_L = (148, 32, 133, 16, 194, 192, 1, 251, 1, 192, 194, 16, 133, 32, 148, 1)


def kuznyechik(key: bytes) -> Encrypt:
    """Kuznyechik (RFC 7801)."""
    product = [[_multiply(x, c, 0x1C3) for x in range(256)] for c in _KUZNYECHIK_L]

    def linear(block: bytes) -> bytes:
        s = list(block)
        for _ in range(16):
            new = 0
            for i in range(16):
                new ^= product[i][s[i]]
            s = [new, *s[:15]]
        return bytes(s)

    def layer(block: bytes, round_key: bytes) -> bytes:
        return linear(bytes(_PI[x ^ k] for x, k in zip(block, round_key, strict=True)))

    keys = [key[:16], key[16:]]
    left, right = keys
    for i in range(1, 33):
        mixed = layer(left, linear(i.to_bytes(16, "big")))
        left, right = bytes(x ^ y for x, y in zip(mixed, right, strict=True)), left
        if i % 8 == 0:
            keys += [left, right]

    def encrypt(block: bytes) -> bytes:
        for round_key in keys[:9]:
            block = layer(block, round_key)
        return bytes(x ^ y for x, y in zip(block, keys[9], strict=True))

    return encrypt


def _power(x: int, n: int) -> int:
    result = 1
    for _ in range(n):
        result = _multiply(result, x, 0x11B)
    return result


def _affine(x: int, columns: bytes, constant: int) -> int:
    for i in range(8):
        if x >> i & 1:
            constant ^= columns[i]
    return constant


_ARIA_S1 = [_affine(_power(x, 254), bytes.fromhex("1f3e7cf8f1e3c78f"), 0x63) for x in range(256)]
_ARIA_S2 = [_affine(_power(x, 247), bytes.fromhex("acc512cf5b5f85ee"), 0xE2) for x in range(256)]
_ARIA_X1 = [_ARIA_S1.index(x) for x in range(256)]
_ARIA_X2 = [_ARIA_S2.index(x) for x in range(256)]
_ARIA_A = (  # y_i is the sum of these x_j (RFC 5794, 2.4.3)
    (3, 4, 6, 8, 9, 13, 14),
    (2, 5, 7, 8, 9, 12, 15),
    (1, 4, 6, 10, 11, 12, 15),
    (0, 5, 7, 10, 11, 13, 14),
    (0, 2, 5, 8, 11, 14, 15),
    (1, 3, 4, 9, 10, 14, 15),
    (0, 2, 7, 9, 10, 12, 13),
    (1, 3, 6, 8, 11, 12, 13),
    (0, 1, 4, 7, 10, 13, 15),
    (0, 1, 5, 6, 11, 12, 14),
    (2, 3, 5, 6, 8, 13, 15),
    (2, 3, 4, 7, 9, 12, 14),
    (1, 2, 6, 7, 9, 11, 12),
    (0, 3, 6, 7, 8, 10, 13),
    (0, 3, 4, 5, 9, 11, 14),
    (1, 2, 4, 5, 8, 10, 15),
)
_ARIA_C = (0x517CC1B727220A94FE13ABE8FA9A6EE0, 0x6DB14ACC9E21C820FF28B1D5EF5DE2B0, 0xDB92371D2126E9700324977504E8C90E)


def aria(key: bytes) -> Encrypt:
    """ARIA (RFC 5794)."""

    def mix(x: list[int]) -> list[int]:
        out = []
        for row in _ARIA_A:
            value = 0
            for j in row:
                value ^= x[j]
            out.append(value)
        return out

    def odd(x: list[int], k: list[int]) -> list[int]:
        boxes = (_ARIA_S1, _ARIA_S2, _ARIA_X1, _ARIA_X2)
        return [boxes[i % 4][a ^ b] for i, (a, b) in enumerate(zip(x, k, strict=True))]

    def even(x: list[int], k: list[int]) -> list[int]:
        boxes = (_ARIA_X1, _ARIA_X2, _ARIA_S1, _ARIA_S2)
        return [boxes[i % 4][a ^ b] for i, (a, b) in enumerate(zip(x, k, strict=True))]

    def add(x: list[int], y: list[int]) -> list[int]:
        return [a ^ b for a, b in zip(x, y, strict=True)]

    which = {16: 0, 24: 1, 32: 2}[len(key)]
    constants = [list(_ARIA_C[(which + i) % 3].to_bytes(16, "big")) for i in range(3)]
    padded = list(key.ljust(32, b"\0"))
    w = [padded[:16]]
    w.append(add(mix(odd(w[0], constants[0])), padded[16:]))
    w.append(add(mix(even(w[1], constants[1])), w[0]))
    w.append(add(mix(odd(w[2], constants[2])), w[1]))

    def turn(x: list[int], right: int) -> list[int]:
        n = int.from_bytes(bytes(x), "big")
        return list(((n >> right | n << (128 - right)) & (1 << 128) - 1).to_bytes(16, "big"))

    keys = []
    for right in (19, 31, 128 - 61, 128 - 31, 128 - 19):
        keys += [add(w[i], turn(w[(i + 1) % 4], right)) for i in range(4)]
    rounds = 12 + 2 * which

    def encrypt(block: bytes) -> bytes:
        x = list(block)
        for i in range(rounds - 1):
            x = mix((even if i % 2 else odd)(x, keys[i]))
        return bytes(add(even(x, keys[rounds - 1]), keys[rounds]))

    return encrypt


def _library(algorithm: type[algorithms.AES] | type[algorithms.SM4]) -> Callable[[bytes], Encrypt]:
    return lambda key: Cipher(algorithm(key), modes.ECB()).encryptor().update


# Algorithm of the manifests: bytes of a block, and the function of one block under a key.
REFERENCES: dict[str, tuple[int, Callable[[bytes], Encrypt]]] = {
    "AES": (16, _library(algorithms.AES)),
    "ARIA": (16, aria),
    "HIGHT": (8, hight),
    "KUZNYECHIK": (16, kuznyechik),
    "SKINNY_64": (8, lambda key: skinny(8, key)),
    "SKINNY_128": (16, lambda key: skinny(16, key)),
    "SM4": (16, _library(algorithms.SM4)),
}


def ctr(encrypt: Encrypt, counter: bytes, data: bytes) -> bytes:
    """Counter mode; the counter is one big-endian number that wraps."""
    size, first = len(counter), int.from_bytes(counter, "big")
    blocks = range(-(-len(data) // size))
    stream = b"".join(encrypt(((first + i) % (1 << 8 * size)).to_bytes(size, "big")) for i in blocks)
    return bytes(a ^ b for a, b in zip(data, stream, strict=False))


def ecb(encrypt: Encrypt, size: int, data: bytes) -> bytes:
    """Every block of `size` bytes alone."""
    return b"".join(encrypt(data[i : i + size]) for i in range(0, len(data), size))


def cbc(encrypt: Encrypt, iv: bytes, data: bytes) -> bytes:
    """Cipher block chaining of whole blocks."""
    out, size = [iv], len(iv)
    for i in range(0, len(data), size):
        out.append(encrypt(bytes(a ^ b for a, b in zip(data[i : i + size], out[-1], strict=True))))
    return b"".join(out[1:])


def gcm(encrypt: Encrypt, iv: bytes, data: bytes, aad: bytes) -> tuple[bytes, bytes]:
    """GCM (NIST SP 800-38D) with an iv of 12 bytes: ciphertext and tag of 16 bytes."""
    h = int.from_bytes(encrypt(bytes(16)), "big")

    def times(x: int) -> int:
        z, v = 0, h
        for i in range(127, -1, -1):
            if x >> i & 1:
                z ^= v
            v = v >> 1 ^ (0xE1 << 120 if v & 1 else 0)
        return z

    out = ctr(encrypt, iv + (2).to_bytes(4, "big"), data)
    y = 0
    for part in (aad, out):
        for i in range(0, len(part), 16):
            y = times(y ^ int.from_bytes(part[i : i + 16].ljust(16, b"\0"), "big"))
    y = times(y ^ (8 * len(aad) << 64 | 8 * len(out)))
    first = encrypt(iv + (1).to_bytes(4, "big"))
    return out, (y ^ int.from_bytes(first, "big")).to_bytes(16, "big")
