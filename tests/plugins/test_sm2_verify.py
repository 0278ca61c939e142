"""SM2 verification on the CPU's field and on the GPU's: known answers, edges, exceptions and another library."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import pytest
from _answers import PLACES, BuiltPlugin, opened
from _reference import SM2
from _sm2_cases import Item, be32, chosen, edges, exceptional, identity_hash, public, sign, sm3, verify_code
from gmssl import sm2 as gmssl_sm2

from verifier.model import Code

GPU_FIELD = "-DEMULATE_GPU_FIELD"


@pytest.fixture(scope="module", params=PLACES)
def sm2(request: pytest.FixtureRequest) -> Iterator[BuiltPlugin]:
    yield from opened("sm2", request.param)


def columns(items: list[Item]) -> dict[str, list[bytes]]:
    return {
        "input": [item.digest for item in items],
        "signature": [item.signature for item in items],
        "key": [item.key_bytes for item in items],
    }


def check(sm2: BuiltPlugin, items: list[Item]) -> np.ndarray:
    """All items in one batch against Python; returns the codes."""
    result = sm2.run("verify", "SM2", columns(items))
    wrong = [
        (item.name, Code(code).name) for item, code in zip(items, result.codes, strict=True) if code != item.code
    ]
    assert not wrong
    assert np.unpackbits(result.decided, bitorder="little")[: len(items)].all()
    return result.codes


def test_known_answers(sm2):
    assert sm2.check_known_answers() > 150


def test_edges(sm2):
    codes = check(sm2, edges())
    assert {Code.VALID, Code.INVALID, Code.OUT_OF_RANGE, Code.KEY_RANGE, Code.KEY_NOT_ON_CURVE} <= set(codes.tolist())


def test_exceptional_points(sm2):
    items = exceptional()
    codes = check(sm2, items)
    assert (codes == Code.VALID).sum() > 100
    # The same items with a wrong e are all invalid, by the finishing stage too.
    check(sm2, [Item(item.name, item.e ^ 1, item.r, item.s, item.key) for item in items[::7]])


def after_verify(sm2) -> tuple[list[Code], int, int]:
    """Codes and bitmaps before the finishing stage, of one plain item among three that meet exceptions."""
    d = 0xD1CE
    items = [chosen("t Q", d, 77, SM2.n - 6), chosen("plain", d, 77, 78), chosen("infinity", d, -9 * d % SM2.n, 9)]
    items.append(chosen("comb", 255 * pow(3, -1, SM2.n) % SM2.n, 1, 3))
    data = columns(items)
    result = sm2.plugin.run(
        ["sm2_prepare", "sm2_verify"], [data["input"], data["signature"], data["key"]], parameters=(2, 1, 1, 1)
    )
    return [Code(code) for code in result.codes], int(result.decided[0]), int(result.valid[0])


@pytest.mark.parametrize("sm2", ["host", "emulated"], indirect=True)
def test_the_fast_stage_leaves_exceptions_to_the_finishing_stage(sm2):
    assert after_verify(sm2) == ([Code.RETRY, Code.VALID, Code.RETRY, Code.RETRY], 0b0010, 0b0010)


@pytest.mark.parametrize("sm2", ["lanes"], indirect=True)
def test_eight_items_together_leave_nothing_open(sm2):
    """The finishing stage goes item by item: what it has left is a lever for whoever makes such items."""
    assert after_verify(sm2) == ([Code.VALID, Code.VALID, Code.INVALID, Code.VALID], 0b1111, 0b1011)


def test_nothing_is_decided_without_the_stages(sm2):
    items = [chosen("plain", 5, 77, 78)]
    data = columns(items)
    for stages in ([], ["sm2_prepare"]):
        result = sm2.plugin.run(stages, [data["input"], data["signature"], data["key"]], parameters=(2, 1, 1, 1))
        assert result.decided[0] == 0
        assert result.valid[0] == 0


def test_random_items_by_another_library(sm2):
    """Signatures made by gmssl, some of them spoilt, checked by gmssl."""
    generator = random.Random(20)
    items, expected = [], []
    for i in range(24):
        d = generator.randrange(1, SM2.n - 1)
        key = public(d)
        library = gmssl_sm2.CryptSM2(private_key=f"{d:064x}", public_key=(be32(key[0]) + be32(key[1])).hex())
        e = generator.getrandbits(256)
        signature = bytearray.fromhex(library.sign(be32(e), f"{generator.randrange(1, SM2.n):064x}"))
        if i % 3 == 0:
            signature[generator.randrange(64)] ^= 1 << generator.randrange(8)
        expected.append(bool(library.verify(signature.hex(), be32(e))))
        r, s = int.from_bytes(signature[:32], "big"), int.from_bytes(signature[32:], "big")
        items.append(Item(str(i), e, r, s, key))
    assert (check(sm2, items) == Code.VALID).tolist() == expected
    assert 8 <= sum(expected) < 24


def test_a_bad_item_does_not_touch_its_neighbours(sm2):
    generator = random.Random(21)
    good = [chosen(str(i), generator.randrange(1, SM2.n), generator.randrange(1, 2**200), i + 1) for i in range(70)]
    data = columns(good)
    for i, (name, value) in enumerate(
        [("signature", b""), ("key", b"x" * 65), ("input", b""), ("signature", b"\xff" * 64), ("key", b"\0" * 64)]
    ):
        data[name][13 * i] = value
    codes = sm2.run("verify", "SM2", data).codes
    assert codes[::13][:5].tolist() == [
        *(Code.SIGNATURE_LENGTH, Code.KEY_LENGTH, Code.INPUT_LENGTH, Code.OUT_OF_RANGE, Code.KEY_NOT_ON_CURVE)
    ]
    rest = np.delete(codes, [0, 13, 26, 39, 52])
    assert (rest == Code.VALID).all()


@pytest.mark.parametrize("size", [1, 31, 32, 33, 100])
def test_sizes_of_batches(sm2, size):
    items = [chosen(str(i), 7 + i, 1000 + i, 2000 + i) for i in range(size)]
    items[-1] = Item("last", items[-1].e ^ 1, items[-1].r, items[-1].s, items[-1].key)
    check(sm2, items)


def test_the_longest_user_id(sm2):
    generator = random.Random(22)
    d, identity, message = 0xD1CE, bytes(8191), b"message"
    key = public(d)
    r, s = sign(d, int.from_bytes(sm3(identity_hash(identity, key) + message), "big"), generator)
    signature, key_bytes = be32(r) + be32(s), be32(key[0]) + be32(key[1])
    assert verify_code(message, signature, key_bytes, input_kind="MESSAGE", identity=identity) is Code.VALID
    result = sm2.run(
        "verify",
        "SM2",
        {"input": [message, message + b"!"], "signature": [signature] * 2, "key": [key_bytes] * 2},
        identity,
        input_kind="MESSAGE",
    )
    assert result.codes.tolist() == [Code.VALID, Code.INVALID]


def test_gmssl_hashes_as_the_reference_does():
    key = public(3)
    library = gmssl_sm2.CryptSM2(private_key=f"{3:064x}", public_key=(be32(key[0]) + be32(key[1])).hex())
    digest = library._sm3_z(b"abc")
    assert digest == sm3(identity_hash(b"1234567812345678", key) + b"abc").hex()
