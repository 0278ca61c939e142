"""Random keys and messages against libraries of others: OpenSSL, its GOST provider, libgcrypt, Crypto++.

SKINNY, which no library has, is compared with a reference of its own in test_ciphers.py.
"""

from __future__ import annotations

import functools
import random

import numpy as np
import pytest
from _answers import BuiltPlugin

from verifier.bench.cipher_peers import CipherPeer, cipher_peers

SEED = 19
ECB, CTR, CBC = 1, 2, 3
MODES = {"ECB": ECB, "CTR": CTR, "CBC": CBC}
BLOCK = {"AES": 16, "ARIA": 16, "HIGHT": 8, "KUZNYECHIK": 16, "SM4": 16}
KEYS = {"AES": (16, 24, 32), "ARIA": (16, 24, 32), "HIGHT": (16,), "KUZNYECHIK": (32,), "SM4": (16,)}
CASES = [(algorithm, mode) for algorithm in BLOCK for mode in MODES]


@functools.cache
def plugin(algorithm: str) -> BuiltPlugin:
    return BuiltPlugin(algorithm.lower())


def peers(algorithm: str, mode: str) -> dict[str, dict[int, CipherPeer]]:
    """Libraries by name, and their functions by bytes of the key."""
    found: dict[str, dict[int, CipherPeer]] = {}
    for size in KEYS[algorithm]:
        for name, peer in cipher_peers(algorithm, mode, size):
            found.setdefault(name, {})[size] = peer
    return found


def first(algorithm: str, mode: str, generator: random.Random) -> bytes:
    """An iv, or a first counter; GOST's is half a block."""
    block = BLOCK[algorithm]
    if algorithm == "KUZNYECHIK" and mode == "CTR":
        return generator.randbytes(8) + bytes(8)
    if mode == "CTR" and generator.randrange(4) == 0:  # one that wraps soon, somewhere
        kept = generator.randrange(block)
        return generator.randbytes(kept) + b"\xff" * (block - kept)
    return generator.randbytes(block)


def lengths(block: int, mode: str) -> list[int]:
    """0 to 4 blocks, and a byte less and more where the mode takes them; and the longest."""
    near = [n * block + d for n in range(5) for d in (-1, 0, 1)]
    return [n for n in [*near, 512] if n >= 0 and (mode == "CTR" or n % block == 0)]


def check(algorithm: str, mode: str, count: int) -> None:
    libraries = peers(algorithm, mode)
    if not libraries:
        pytest.skip(f"no library here has {algorithm} in {mode}")
    generator = random.Random(SEED)
    sizes, keys = lengths(BLOCK[algorithm], mode), KEYS[algorithm]
    items = [
        (
            generator.randbytes(sizes[i % len(sizes)]),
            generator.randbytes(keys[i % len(keys)]),
            first(algorithm, mode, generator),
        )
        for i in range(count)
    ]
    inputs = {name: [item[i] for item in items] for i, name in enumerate(("data", "key", "iv"))}
    result = plugin(algorithm).run("encrypt_each", algorithm, inputs, mode=MODES[mode])
    assert (result.codes == 1).all()
    for name, functions in libraries.items():
        for cell, (data, key, iv) in zip(result.outputs[0], items, strict=True):
            if len(key) not in functions or not data:
                continue
            out = np.empty(len(data), np.uint8)
            functions[len(key)](key, iv, np.frombuffer(data, np.uint8), out)
            assert cell[: len(data)].tobytes() == out.tobytes(), (name, SEED, key.hex(), iv.hex(), data.hex())
            assert not cell[len(data) :].any()


@pytest.mark.parametrize(("algorithm", "mode"), CASES)
def test_messages(algorithm, mode):
    check(algorithm, mode, 300)


@pytest.mark.long
@pytest.mark.parametrize(("algorithm", "mode"), CASES)
def test_ten_thousand_messages(algorithm, mode):
    check(algorithm, mode, 10_000)


@pytest.mark.parametrize("algorithm", sorted(BLOCK))
def test_a_long_message_in_stripes(algorithm):
    """Bulk counter mode over many stripes, through a word that wraps, equals the libraries' one call."""
    block, size = BLOCK[algorithm], KEYS[algorithm][0]
    libraries = dict(cipher_peers(algorithm, "CTR", size))
    if not libraries:
        pytest.skip(f"no library here has {algorithm} in CTR")
    generator = np.random.default_rng(SEED)
    stripes = 150
    data = generator.integers(0, 256, (stripes, 32 * block), np.uint8)
    start = 0 if algorithm == "KUZNYECHIK" else (7 << 32) - 2000
    head = bytes(range(8)) if algorithm == "KUZNYECHIK" else b""
    counters = [head + (start + 32 * i).to_bytes(block - len(head), "big") for i in range(stripes)]
    columns = {"data": [row.tobytes() for row in data], "counter": counters}
    key = generator.bytes(size)
    found = plugin(algorithm).run("ctr", algorithm, columns, key).outputs[0].reshape(-1)
    for name, peer in libraries.items():
        out = np.empty(data.size, np.uint8)
        peer(key, counters[0], data.reshape(-1), out)
        assert np.array_equal(found, out), name


def test_a_library_notices_another_key():
    """Guards the comparison itself."""
    libraries = dict(cipher_peers("AES", "CTR", 16))
    if not libraries:
        pytest.skip("no library here has AES")
    data = np.zeros(64, np.uint8)
    for peer in libraries.values():
        one, other = np.empty_like(data), np.empty_like(data)
        peer(bytes(16), bytes(16), data, one)
        peer(bytes(15) + b"\1", bytes(16), data, other)
        assert not np.array_equal(one, other)
