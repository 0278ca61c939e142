"""GCM: messages in one cell, and long ones by stripes, folds and a tag."""

from __future__ import annotations

import functools
import random

import pytest
from _answers import BuiltPlugin
from _cipher_references import REFERENCES, gcm
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from verifier.model import Code

SEED = 80
KEY_BYTES = {"AES": (16, 24, 32), "ARIA": (16, 24, 32), "KUZNYECHIK": (32,), "SM4": (16,)}
ALGORITHMS = sorted(KEY_BYTES)


@functools.cache
def plugin(algorithm: str) -> BuiltPlugin:
    return BuiltPlugin(algorithm.lower())


def sealed(algorithm: str, key: bytes, iv: bytes, data: bytes, aad: bytes) -> tuple[bytes, bytes]:
    """Ciphertext and tag, by a library where one has the cipher."""
    if algorithm == "AES":
        both = AESGCM(key).encrypt(iv, data, aad)
        return both[:-16], both[-16:]
    if algorithm == "SM4":
        encryptor = Cipher(algorithms.SM4(key), modes.GCM(iv)).encryptor()
        encryptor.authenticate_additional_data(aad)
        return encryptor.update(data) + encryptor.finalize(), encryptor.tag
    return gcm(REFERENCES[algorithm][1](key), iv, data, aad)


def by_stripes(
    algorithm: str, operation: str, key: bytes, iv: bytes, data: bytes, aad: bytes, folds: int
) -> tuple[bytes, bytes]:
    """A message of any length through the bulk operations: the other text, and the tag."""
    built = plugin(algorithm)
    count = -(-len(data) // 512)
    padded = data.ljust(512 * count, b"\xa5")  # what lies behind the message must not matter
    hashes, out = b"", b""
    if count:
        sizes = [min(512, len(data) - 512 * i) for i in range(count)]
        inputs = {
            "data": [padded[512 * i : 512 * i + 512] for i in range(count)],
            "counter": [iv + (2 + 32 * i).to_bytes(4, "big") for i in range(count)],
            "bytes": [size.to_bytes(4, "little") for size in sizes],
        }
        result = built.run(operation, algorithm, inputs, key)
        assert (result.codes == Code.VALID).all()
        out, hashes = result.outputs[0].tobytes()[: len(data)], result.outputs[1].tobytes()
    whole = len(data) // 512
    last = hashes[16 * whole :] or bytes(16)
    folded = hashes[: 16 * whole]
    for fold in range(1, folds + 1):
        folded = bytes(-len(folded) % 512) + folded
        groups = [folded[i : i + 512] for i in range(0, len(folded), 512)]
        if groups:
            result = built.run("gcm_fold", algorithm, {"data": groups}, key, folds=fold)
            assert (result.codes == Code.VALID).all()
            folded = result.outputs[0].tobytes()
    inputs = {
        "folded": [folded],
        "last": [last],
        "length": [len(data).to_bytes(8, "little")],
        "iv": [iv],
        "aad": [aad],
    }
    result = built.run("gcm_tag", algorithm, inputs, key, folds=folds)
    assert list(result.codes) == [Code.VALID]
    return out, result.outputs[0].tobytes()


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_messages_in_a_cell(algorithm):
    generator = random.Random(SEED)
    sizes = [0, 1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 511, 512]
    rows = [
        (
            generator.randbytes(size),
            generator.randbytes(KEY_BYTES[algorithm][i % len(KEY_BYTES[algorithm])]),
            generator.randbytes(12),
            generator.randbytes(generator.randrange(50)),
        )
        for i, size in enumerate(sizes)
    ]
    names = ("data", "key", "iv", "aad")
    inputs = {name: [row[i] for row in rows] for i, name in enumerate(names)}
    result = plugin(algorithm).run("gcm_encrypt_each", algorithm, inputs)
    assert (result.codes == Code.VALID).all()
    wanted = [sealed(algorithm, key, iv, data, aad) for data, key, iv, aad in rows]
    assert [cell.tobytes() for cell in result.outputs[0]] == [text.ljust(512, b"\0") for text, _ in wanted]
    assert [tag.tobytes() for tag in result.outputs[1]] == [tag for _, tag in wanted]

    inputs |= {"data": [text for text, _ in wanted], "tag": [tag for _, tag in wanted]}
    result = plugin(algorithm).run("gcm_decrypt_each", algorithm, inputs)
    assert (result.codes == Code.VALID).all()
    assert [cell.tobytes() for cell in result.outputs[0]] == [data.ljust(512, b"\0") for data, _, _, _ in rows]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_nothing_is_given_out_under_a_wrong_tag(algorithm):
    """A flipped bit anywhere: data, key, iv, aad, tag. Its neighbours are decrypted."""
    generator = random.Random(SEED)
    key, iv, data, aad = generator.randbytes(KEY_BYTES[algorithm][0]), *map(generator.randbytes, (12, 40, 20))
    text, tag = sealed(algorithm, key, iv, data, aad)
    good = {"data": text, "key": key, "iv": iv, "aad": aad, "tag": tag}
    rows = [good]
    for field, value in good.items():
        at = generator.randrange(8 * len(value))
        flipped = bytearray(value)
        flipped[at // 8] ^= 1 << at % 8
        rows += [{**good, field: bytes(flipped)}, good]
    result = plugin(algorithm).run(
        "gcm_decrypt_each", algorithm, {name: [row[name] for row in rows] for name in good}
    )
    assert list(result.codes) == [Code.VALID if i % 2 == 0 else Code.INVALID for i in range(len(rows))], SEED
    for i, cell in enumerate(result.outputs[0]):
        assert cell.tobytes() == (data.ljust(512, b"\0") if i % 2 == 0 else bytes(512))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_long_messages(algorithm):
    generator = random.Random(SEED)
    for folds, size in enumerate((0, 1, 496, 512, 513, 1024, 33 * 512, 70 * 512 + 100)):
        folds %= 3
        key, iv = generator.randbytes(KEY_BYTES[algorithm][-1]), generator.randbytes(12)
        data, aad = generator.randbytes(size), generator.randbytes(size % 37)
        text, tag = sealed(algorithm, key, iv, data, aad)
        assert by_stripes(algorithm, "gcm_encrypt", key, iv, data, aad, folds) == (text, tag), (SEED, size)
        assert by_stripes(algorithm, "gcm_decrypt", key, iv, text, aad, folds) == (data, tag), (SEED, size)


def test_bad_lengths_are_refused():
    key, iv = bytes(16), bytes(12)
    good = {"data": b"abc", "key": key, "iv": iv, "aad": b"", "tag": bytes(16)}
    for field, value, code in (
        ("data", bytes(513), Code.INPUT_LENGTH),
        ("key", bytes(17), Code.KEY_LENGTH),
        ("iv", bytes(11), Code.INPUT_LENGTH),
        ("iv", bytes(16), Code.INPUT_LENGTH),
        ("tag", bytes(15), Code.INPUT_LENGTH),
    ):
        row = {**good, field: value}
        result = plugin("AES").run("gcm_decrypt_each", "AES", {name: [value] for name, value in row.items()})
        assert list(result.codes) == [code], field
        assert not result.outputs[0].any()
    stripe = {"data": [bytes(512)], "counter": [bytes(16)], "bytes": [bytes(3)]}
    assert list(plugin("AES").run("gcm_encrypt", "AES", stripe, key).codes) == [Code.INPUT_LENGTH]
    stripe["bytes"] = [bytes(4)]
    assert list(plugin("AES").run("gcm_encrypt", "AES", stripe, key[1:]).codes) == [Code.KEY_LENGTH]
    assert list(plugin("AES").run("gcm_fold", "AES", {"data": [bytes(511)]}, key, folds=1).codes) == [
        Code.INPUT_LENGTH
    ]
    tag = {"folded": [bytes(15)], "last": [bytes(16)], "length": [bytes(8)], "iv": [iv], "aad": [b""]}
    assert list(plugin("AES").run("gcm_tag", "AES", tag, key, folds=0).codes) == [Code.INPUT_LENGTH]
