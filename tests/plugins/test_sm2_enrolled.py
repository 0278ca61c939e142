"""SM2 with enrolled keys: the same verdicts from the keys' own tables, on the CPU's field and on the GPU's."""

from __future__ import annotations

import pytest
from _build import PLUGINS, Plugin, build
from _reference import SM2
from _sm2_cases import Item, be32, chosen, edges, public

from verifier.model import Code

STATE = ["sm2_table_bases", "sm2_table_entries", "sm2_empty_slots"]
STAGES = ["sm2_prepare_enrolled", "sm2_verify_enrolled", "sm2_finish_enrolled"]
DIGEST, RAW_RS, RAW_XY, INDEX, ACCEPT_ANY = 2, 1, 1, 6, 1
SLOTS = 8


@pytest.fixture(scope="module", params=["host", "emulated"])
def plugin(request: pytest.FixtureRequest) -> Plugin:
    defines = {"KEY_SLOTS": SLOTS, "WINDOW_KEY_CPU": 4}
    defines |= {"EMULATE_GPU_FIELD": 1} if request.param == "emulated" else {}
    return Plugin(build(PLUGINS / "sm2" / "sm2.cu", flags=["-O1"], defines=defines), STATE)


def le32(number: int) -> bytes:
    return number.to_bytes(4, "little")


def enroll(plugin: Plugin, keys: dict[int, bytes]) -> list[int]:
    columns = [[le32(slot) for slot in keys], list(keys.values())]
    return plugin.run(["sm2_enroll"], columns, parameters=[RAW_XY]).codes.tolist()


def verify(plugin: Plugin, items: list[Item], slots: list[bytes], stages: list[str] = STAGES) -> list[int]:
    columns = [[item.digest for item in items], [item.signature for item in items], slots]
    return plugin.run(stages, columns, parameters=(DIGEST, RAW_RS, INDEX, ACCEPT_ANY)).codes.tolist()


def key_bytes(d: int) -> bytes:
    x, y = public(d)
    return be32(x) + be32(y)


def test_edges(plugin):
    """Every boundary value of r, s and e under an enrolled key; then under another one, where all are invalid."""
    assert enroll(plugin, {0: key_bytes(0xD1CE), 7: key_bytes(0xD1CF)}) == [Code.VALID] * 2
    items = [item for item in edges() if item.key == public(0xD1CE)]
    expected = [item.code for item in items]
    assert expected.count(Code.VALID) > 5
    assert verify(plugin, items, [le32(0)] * len(items)) == expected
    others = [Code.INVALID if code == Code.VALID else code for code in expected]
    assert verify(plugin, items, [le32(7)] * len(items)) == others


def test_exceptions(plugin):
    """Keys that are small multiples of G, whose table is G's own: equal, opposite and infinite sums."""
    for d in (1, 2, 3, -1):
        assert enroll(plugin, {1: key_bytes(d)}) == [Code.VALID]
        pairs = [(s, t) for s in (1, 2, 15, 16, 255, 256) for t in (1, 3, s + 1, -s, 2 * s + 1)]
        items = [chosen(f"Q is {d} G, s {s}, t {t}", d, s, t % SM2.n) for s, t in pairs if s != t]
        assert verify(plugin, items, [le32(1)] * len(items)) == [item.code for item in items]


def test_open_items_are_left_to_the_finishing_stage(plugin):
    assert enroll(plugin, {2: key_bytes(5)}) == [Code.VALID]
    items = [chosen("infinity", 5, -5 * 9 % SM2.n, 9), chosen("plain", 5, 77, 78)]
    assert verify(plugin, items, [le32(2)] * 2, STAGES[:2]) == [Code.RETRY, Code.VALID]
    assert verify(plugin, items, [le32(2)] * 2) == [Code.INVALID, Code.VALID]


def test_slots_without_a_key(plugin):
    item = chosen("plain", 5, 77, 78)
    slots = [le32(3), le32(SLOTS), le32(2**32 - 1)]
    assert verify(plugin, [item] * 3, slots) == [Code.KEY_INDEX] * 3
    assert verify(plugin, [item], [b"\0\0\0"]) == [Code.KEY_LENGTH]


def test_what_is_no_key_is_not_enrolled(plugin):
    good = key_bytes(5)
    bad = {4: bytes(64), 5: b"\xff" * 64, 6: good, SLOTS: good}
    expected = [Code.KEY_NOT_ON_CURVE, Code.KEY_RANGE, Code.VALID, Code.KEY_INDEX]
    assert enroll(plugin, bad) == expected
    item = chosen("plain", 5, 77, 78)
    assert verify(plugin, [item] * 3, [le32(4), le32(5), le32(6)]) == [Code.KEY_INDEX, Code.KEY_INDEX, Code.VALID]
