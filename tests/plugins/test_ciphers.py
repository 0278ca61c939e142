"""Block ciphers: known answers, every shared vector, and random messages against independent implementations."""

from __future__ import annotations

import functools
import random
from collections.abc import Sequence

import pytest
from _answers import BuiltPlugin
from _cipher_references import REFERENCES, Encrypt, cbc, ctr, ecb, hight
from _shared import shared_json

from verifier.drivers._target import host_target, runs_on_host
from verifier.model import Code

SEED = 8
PLUGIN_OF = {"SKINNY_64": "skinny", "SKINNY_128": "skinny"}
KEY_BYTES = {
    "AES": (16, 24, 32),
    "ARIA": (16, 24, 32),
    "HIGHT": (16,),
    "KUZNYECHIK": (32,),
    "SKINNY_64": (8, 16, 24),
    "SKINNY_128": (16, 32, 48),
    "SM4": (16,),
}
ALGORITHMS = sorted(REFERENCES)
ECB, CTR, CBC = 1, 2, 3


@functools.cache
def plugin(name: str, *flags: str) -> BuiltPlugin:
    return BuiltPlugin(name, flags)


def plugin_of(algorithm: str) -> BuiltPlugin:
    return plugin(PLUGIN_OF.get(algorithm, algorithm.lower()))


def stripes(data: bytes, stripe: int) -> list[bytes]:
    padded = data.ljust(max(stripe, -(-len(data) // stripe) * stripe), b"\0")
    return [padded[i : i + stripe] for i in range(0, len(padded), stripe)]


def bulk(algorithm: str, operation: str, key: bytes, data: bytes, iv: bytes = b"", **parameters: int) -> bytes:
    """A message through a bulk operation."""
    block = REFERENCES[algorithm][0]
    parts = stripes(data, 32 * block)
    inputs: dict[str, Sequence[bytes]] = {"data": parts}
    if operation == "ctr":
        first = int.from_bytes(iv.ljust(block, b"\0"), "big")
        wrap = 1 << 8 * block
        inputs["counter"] = [((first + 32 * i) % wrap).to_bytes(block, "big") for i in range(len(parts))]
    elif operation == "cbc_decrypt":
        inputs["previous"] = [iv, *(part[-block:] for part in parts[:-1])]
    result = plugin_of(algorithm).run(operation, algorithm, inputs, key, **parameters)
    assert (result.codes == Code.VALID).all()
    return result.outputs[0].tobytes()[: len(data)]


def each(operation: str, algorithm: str, mode: int, items: Sequence[tuple[bytes, bytes, bytes]]) -> list[bytes]:
    """Messages (data, key, iv) in one batch."""
    inputs = {name: [item[i] for item in items] for i, name in enumerate(("data", "key", "iv"))}
    result = plugin_of(algorithm).run(operation, algorithm, inputs, mode=mode)
    assert (result.codes == Code.VALID).all()
    for cell, (data, _, _) in zip(result.outputs[0], items, strict=True):
        assert not cell[len(data) :].any(), "the rest of a cell must be zeros"
    return [cell[: len(item[0])].tobytes() for cell, item in zip(result.outputs[0], items, strict=True)]


@pytest.mark.parametrize("name", ["aes", "aria", "hight", "kuznyechik", "skinny", "sm4"])
def test_known_answers(name):
    assert plugin(name).check_known_answers() > 40


@pytest.mark.parametrize("name", ["aes", "aria", "kuznyechik", "sm4"])
def test_shared_vectors(name):
    algorithm, count = name.upper(), 0
    for case in shared_json(f"{name}.json")["cases"]:
        if case["mode"] not in ("ECB", "CTR") or "million" in case["id"]:
            continue
        key, plain, cipher = (bytes.fromhex(case[field]) for field in ("key", "plaintext", "ciphertext"))
        if case["mode"] == "ECB":
            assert bulk(algorithm, "ecb_encrypt", key, plain) == cipher, case["id"]
            assert bulk(algorithm, "ecb_decrypt", key, cipher) == plain, case["id"]
        else:
            assert bulk(algorithm, "ctr", key, plain, bytes.fromhex(case["iv"])) == cipher, case["id"]
        count += 1
    assert count >= 12


def test_shared_skinny_vectors():
    for case in shared_json("skinny.json")["cases"]:
        algorithm = f"SKINNY_{case['id'].split('-')[1]}"
        key, plain, cipher = (bytes.fromhex(case[field]) for field in ("key", "plaintext", "ciphertext"))
        if case["mode"] == "ECB":
            assert bulk(algorithm, "ecb_encrypt", key, plain) == cipher, case["id"]
            assert bulk(algorithm, "ecb_decrypt", key, cipher) == plain, case["id"]
        else:
            assert bulk(algorithm, "ctr", key, plain, bytes.fromhex(case["iv"])) == cipher, case["id"]


def test_shared_hight_vectors_in_both_byte_orders():
    orders = set()
    for case in shared_json("hight.json")["cases"]:
        order = int(case["byte_order"].startswith("msb"))
        key, plain, cipher = (bytes.fromhex(case[field]) for field in ("key", "plaintext", "ciphertext"))
        if case["mode"] == "ECB":
            assert bulk("HIGHT", "ecb_encrypt", key, plain, byte_order=order) == cipher, case["id"]
            assert bulk("HIGHT", "ecb_decrypt", key, cipher, byte_order=order) == plain, case["id"]
            assert bulk("HIGHT", "ecb_encrypt", key, plain, byte_order=1 - order) != cipher, case["id"]
        else:
            iv = bytes.fromhex(case["iv"])
            assert bulk("HIGHT", "ctr", key, plain, iv, byte_order=order) == cipher, case["id"]
        orders.add(order)
    assert orders == {0, 1}


@pytest.mark.long
def test_sm4_a_million_times():
    """CBC of zeros encrypts the initial vector over and over: 32 times an item."""
    case = next(case for case in shared_json("sm4.json")["cases"] if "million" in case["id"])
    key, state = bytes.fromhex(case["key"]), bytes.fromhex(case["plaintext"])
    for _ in range(1_000_000 // 32):
        state = each("encrypt_each", "SM4", CBC, [(bytes(512), key, state)])[0][-16:]
    assert state.hex() == case["ciphertext"]


def lengths(block: int) -> list[int]:
    """0 to 4 blocks, and a byte less and more."""
    return sorted({max(0, n * block + d) for n in range(5) for d in (-1, 0, 1)})


def messages(algorithm: str, count: int, generator: random.Random) -> list[tuple[bytes, bytes, bytes]]:
    block = REFERENCES[algorithm][0]
    sizes = lengths(block)
    return [
        (
            generator.randbytes(sizes[i % len(sizes)]),
            generator.randbytes(KEY_BYTES[algorithm][i % len(KEY_BYTES[algorithm])]),
            generator.randbytes(block),
        )
        for i in range(count)
    ]


def check_random(algorithm: str, count: int) -> None:
    generator = random.Random(SEED)
    block, make = REFERENCES[algorithm]
    items = messages(algorithm, count, generator)
    whole = [(data[: len(data) // block * block], key, iv) for data, key, iv in items]
    ciphers: list[Encrypt] = [make(key) for _, key, _ in items]
    wanted = [ctr(e, iv, data) for e, (data, _, iv) in zip(ciphers, items, strict=True)]
    assert each("encrypt_each", algorithm, CTR, items) == wanted
    for mode in (ECB, CBC):
        wanted = [
            ecb(e, block, data) if mode == ECB else cbc(e, iv, data)
            for e, (data, _, iv) in zip(ciphers, whole, strict=True)
        ]
        assert each("encrypt_each", algorithm, mode, whole) == wanted
        back = [(cipher, key, iv) for cipher, (_, key, iv) in zip(wanted, whole, strict=True)]
        assert each("decrypt_each", algorithm, mode, back) == [data for data, _, _ in whole]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_messages_with_their_own_keys(algorithm):
    check_random(algorithm, 90)


@pytest.mark.long
@pytest.mark.timeout(3600)  # straight Python references
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_ten_thousand_messages(algorithm):
    check_random(algorithm, 10_000)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_bulk_modes_of_every_length(algorithm):
    """Every key size; messages that end within a block, a stripe, a group of stripes."""
    generator = random.Random(SEED)
    block, make = REFERENCES[algorithm]
    for i, size in enumerate([*lengths(block), 32 * block - 1, 32 * block, 33 * block, 17 * 32 * block + 5]):
        key = generator.randbytes(KEY_BYTES[algorithm][i % len(KEY_BYTES[algorithm])])
        data, iv, encrypt = generator.randbytes(size), generator.randbytes(block), make(key)
        assert bulk(algorithm, "ctr", key, data, iv) == ctr(encrypt, iv, data), (SEED, size)
        whole = data[: size // block * block]
        cipher = ecb(encrypt, block, whole)
        assert bulk(algorithm, "ecb_encrypt", key, whole) == cipher, (SEED, size)
        assert bulk(algorithm, "ecb_decrypt", key, cipher) == whole, (SEED, size)
        assert bulk(algorithm, "cbc_decrypt", key, cbc(encrypt, iv, whole), iv) == whole, (SEED, size)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_counters_carry_through_the_block(algorithm):
    """Wraps in the last byte, word, half and block, early and late in a stripe, in one batch with other ranges."""
    block, make = REFERENCES[algorithm]
    wrap = 1 << 8 * block
    key = bytes(range(KEY_BYTES[algorithm][-1]))
    starts = [(1 << bits) - before for bits in (8, 32, 4 * block, 8 * block) for before in (1, 2, 31, 32)]
    starts += [0, wrap // 3, (5 << 32) - 7]
    counters = [(start % wrap).to_bytes(block, "big") for start in starts]
    data = [bytes([i]) * (32 * block) for i in range(len(counters))]
    result = plugin_of(algorithm).run("ctr", algorithm, {"data": data, "counter": counters}, key)
    encrypt = make(key)
    for row, counter, part in zip(result.outputs[0], counters, data, strict=True):
        assert row.tobytes() == ctr(encrypt, counter, part), counter.hex()
    got = each("encrypt_each", algorithm, CTR, [(part[:512], key, c) for part, c in zip(data, counters, strict=True)])
    assert got == [ctr(encrypt, counter, part[:512]) for part, counter in zip(data, counters, strict=True)]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_parts_of_long_chains(algorithm):
    """CBC encryption in parts of at most 8 KiB; every size of key."""
    generator = random.Random(SEED)
    block, make = REFERENCES[algorithm]
    sizes = (0, block, 512 + block, 8192)
    rows = [
        (generator.randbytes(size), generator.randbytes(keys), generator.randbytes(block))
        for size in sizes
        for keys in KEY_BYTES[algorithm][: 1 if size > 1024 else None]
    ]
    inputs = {name: [row[i] for row in rows] for i, name in enumerate(("data", "key", "iv"))}
    result = plugin_of(algorithm).run("cbc_encrypt", algorithm, inputs)
    assert (result.codes == Code.VALID).all()
    for cell, (data, key, iv) in zip(result.outputs[0], rows, strict=True):
        assert cell.tobytes() == cbc(make(key), iv, data).ljust(8192, b"\0"), (SEED, len(data))
    key, iv = bytes(KEY_BYTES[algorithm][0]), bytes(block)
    for data, key_of, iv_of, code in (
        (bytes(8192 + block), key, iv, Code.INPUT_LENGTH),
        (bytes(block + 1), key, iv, Code.INPUT_LENGTH),
        (bytes(block), key, iv[1:], Code.INPUT_LENGTH),
        (bytes(block), key[1:], iv, Code.KEY_LENGTH),
    ):
        result = plugin_of(algorithm).run("cbc_encrypt", algorithm, {"data": [data], "key": [key_of], "iv": [iv_of]})
        assert list(result.codes) == [code]
        assert not result.outputs[0].any()


def test_gost_counter_is_half_a_block():
    key, data, iv = bytes(range(32)), bytes(range(100)), bytes.fromhex("1234567890abcef0")
    encrypt = REFERENCES["KUZNYECHIK"][1](key)
    assert each("encrypt_each", "KUZNYECHIK", CTR, [(data, key, iv)]) == [ctr(encrypt, iv + bytes(8), data)]


def test_each_hight_in_the_other_byte_order():
    key, block = bytes(range(16)), bytes(range(8))
    inputs = {"data": [block], "key": [key], "iv": [b""]}
    result = plugin("hight").run("encrypt_each", "HIGHT", inputs, mode=ECB, byte_order=1)
    assert result.outputs[0][0, :8].tobytes() == hight(key, reverse=True)(block)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_key_of_another_length_is_refused(algorithm):
    block = REFERENCES[algorithm][0]
    for size in (0, KEY_BYTES[algorithm][0] - 1, KEY_BYTES[algorithm][-1] + 1, 64, 65):
        result = plugin_of(algorithm).run("ecb_encrypt", algorithm, {"data": [bytes(32 * block)] * 3}, bytes(size))
        assert (result.codes == Code.KEY_LENGTH).all(), size
        assert not result.outputs[0].any()
    good = bytes(KEY_BYTES[algorithm][0])
    inputs = {"data": [bytes(block)] * 3, "key": [good, good[1:], good], "iv": [b""] * 3}
    result = plugin_of(algorithm).run("encrypt_each", algorithm, inputs, mode=ECB)
    assert list(result.codes) == [Code.VALID, Code.KEY_LENGTH, Code.VALID]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_items_of_another_length_are_refused(algorithm):
    block = REFERENCES[algorithm][0]
    key = bytes(KEY_BYTES[algorithm][0])
    built = plugin_of(algorithm)
    for stripe in (32 * block - 1, 32 * block + 1, 31 * block):
        result = built.run("ecb_encrypt", algorithm, {"data": [bytes(stripe)] * 2}, key)
        assert (result.codes == Code.INPUT_LENGTH).all()
    result = built.run("ecb_encrypt", algorithm, {"data": [bytes(32 * block), bytes(block)]}, key)
    assert (result.codes == Code.INPUT_LENGTH).all(), "a column with offsets is no column of stripes"
    for name, operation in (("counter", "ctr"), ("previous", "cbc_decrypt")):
        inputs = {"data": [bytes(32 * block)], name: [bytes(block - 1)]}
        assert list(built.run(operation, algorithm, inputs, key).codes) == [Code.INPUT_LENGTH]
    cases = [
        (ECB, block - 1, 0), (ECB, 512 + block, 0), (CBC, block + 1, block), (CBC, block, block - 1),
        (CBC, block, block + 1), (CTR, 513, block), (CTR, 5, block + 1),
    ]  # fmt: skip
    for mode, size, iv in cases:
        inputs = {"data": [bytes(size)], "key": [key], "iv": [bytes(iv)]}
        result = built.run("encrypt_each", algorithm, inputs, mode=mode)
        assert list(result.codes) == [Code.INPUT_LENGTH], (mode, size, iv)
        assert not result.outputs[0].any()


VARIANTS = [
    ("aria", "tables"),
    ("hight", "bytes"),
    ("hight", "reference"),
    ("kuznyechik", "tables_global"),
    ("skinny", "tables_constant"),
    ("sm4", "tables"),
]


@pytest.mark.parametrize(("name", "variant"), VARIANTS)
def test_variants_give_the_same(name, variant):
    defines = plugin(name).manifest.variants[variant].defines
    flags = ["-Og", *(f"-U{key}" for key in defines)] + [f"-D{key}={value}" for key, value in defines.items()]
    assert plugin(name, *flags).check_known_answers() > 40


@pytest.mark.parametrize("level", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("name", ["aes", "aria", "hight", "kuznyechik", "skinny", "sm4"])
def test_other_widths_of_vectors_give_the_same(name, level):
    if level == host_target() or not runs_on_host(level):
        pytest.skip(f"{level} is what all tests have" if level == host_target() else f"this CPU is no {level}")
    assert plugin(name, "-Og", f"-march={level}").check_known_answers() > 40


def test_the_references_disagree_with_a_wrong_key():
    """Guards the comparison itself: another key must give another text."""
    block = bytes(16)
    for algorithm, (size, make) in REFERENCES.items():
        key = bytes(KEY_BYTES[algorithm][0])
        assert make(key)(block[:size]) != make(key[:-1] + b"\1")(block[:size]), algorithm
