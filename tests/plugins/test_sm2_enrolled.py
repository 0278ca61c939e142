"""SM2 with enrolled keys: the same verdicts from the keys' own tables, on the CPU's field and on the GPU's."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from _answers import EMULATED
from _build import PLUGINS, Plugin, build
from _lanes import LANES
from _reference import SM2
from _sm2_cases import Item, be32, chosen, edges, public

from verifier.model import Code

STATE = ["sm2_table_bases", "sm2_table_entries", "sm2_empty_slots"]
STAGES = ["sm2_prepare_enrolled", "sm2_verify_enrolled", "sm2_finish_enrolled"]
DIGEST, RAW_RS, RAW_XY, INDEX, ACCEPT_ANY = 2, 1, 1, 6, 1
SLOTS = 8
WINDOW = 4
ROWS = range(256 // WINDOW)
EVERY_ROW = 2**32 - 1
FLAGS = {"host": ("-Og",), "lanes": LANES, "emulated": EMULATED}


@pytest.fixture(scope="module", params=FLAGS)
def plugin(request: pytest.FixtureRequest) -> Plugin:
    defines = {"KEY_SLOTS": SLOTS, "WINDOW_KEY_CPU": WINDOW, "ITEM_LANES": 8}
    return Plugin(build(PLUGINS / "sm2" / "sm2.cu", flags=FLAGS[request.param], defines=defines), STATE)


def le32(*numbers: int) -> bytes:
    return b"".join(number.to_bytes(4, "little") for number in numbers)


class Enrolment:
    """Rising generations: a plugin is shared by tests."""

    last = 0

    @classmethod
    def next(cls) -> int:
        cls.last += 1
        return cls.last


def tabulate(plugin: Plugin, names: Sequence[tuple[int, int, int]], keys: Sequence[bytes]) -> list[int]:
    return plugin.run(["sm2_tabulate"], [[le32(*name) for name in names], keys], parameters=[RAW_XY]).codes.tolist()


def serve(plugin: Plugin, names: Sequence[tuple[int, int]], keys: Sequence[bytes]) -> list[int]:
    return plugin.run(["sm2_enroll"], [[le32(*name) for name in names], keys], parameters=[RAW_XY]).codes.tolist()


def enroll(plugin: Plugin, keys: dict[int, bytes]) -> int:
    """Enrols keys by slot; every key must be one. The generation."""
    generation = Enrolment.next()
    names = [(slot, generation, row) for row in ROWS for slot in keys]
    assert set(tabulate(plugin, names, [key for _ in ROWS for key in keys.values()])) == {Code.VALID}
    assert set(serve(plugin, [(slot, generation) for slot in keys], list(keys.values()))) == {Code.VALID}
    return generation


def verify(plugin: Plugin, items: list[Item], slots: list[bytes], stages: list[str] = STAGES) -> list[int]:
    columns = [[item.digest for item in items], [item.signature for item in items], slots]
    return plugin.run(stages, columns, parameters=(DIGEST, RAW_RS, INDEX, ACCEPT_ANY)).codes.tolist()


def key_bytes(d: int) -> bytes:
    x, y = public(d)
    return be32(x) + be32(y)


def test_edges(plugin):
    """Every boundary value of r, s and e under an enrolled key; then under another one, where all are invalid."""
    generation = enroll(plugin, {0: key_bytes(0xD1CE), 7: key_bytes(0xD1CF)})
    items = [item for item in edges() if item.key == public(0xD1CE)]
    expected = [item.code for item in items]
    assert expected.count(Code.VALID) > 5
    assert verify(plugin, items, [le32(0, generation)] * len(items)) == expected
    others = [Code.INVALID if code == Code.VALID else code for code in expected]
    assert verify(plugin, items, [le32(7, generation)] * len(items)) == others


def test_exceptions(plugin):
    """Keys that are small multiples of G, whose table is G's own: equal, opposite and infinite sums."""
    for d in (1, 2, 3, -1):
        generation = enroll(plugin, {1: key_bytes(d)})
        pairs = [(s, t) for s in (1, 2, 15, 16, 255, 256) for t in (1, 3, s + 1, -s, 2 * s + 1)]
        items = [chosen(f"Q is {d} G, s {s}, t {t}", d, s, t % SM2.n) for s, t in pairs if s != t]
        assert verify(plugin, items, [le32(1, generation)] * len(items)) == [item.code for item in items]


def test_open_items_are_left_to_the_finishing_stage(plugin):
    generation = enroll(plugin, {2: key_bytes(5)})
    items = [chosen("infinity", 5, -5 * 9 % SM2.n, 9), chosen("plain", 5, 77, 78)]
    for item, code in zip(items, (Code.RETRY, Code.VALID), strict=True):  # each alone: lanes see infinity themselves
        assert verify(plugin, [item], [le32(2, generation)], STAGES[:2]) == [code]
    assert verify(plugin, items, [le32(2, generation)] * 2) == [Code.INVALID, Code.VALID]


def test_slots_without_a_key(plugin):
    item = chosen("plain", 5, 77, 78)
    slots = [le32(3, 1), le32(3, 0), le32(SLOTS, 1), le32(2**32 - 1, 2**32 - 1)]
    assert verify(plugin, [item] * 4, slots) == [Code.KEY_INDEX] * 4
    assert verify(plugin, [item], [b"\0\0\0\0"]) == [Code.KEY_LENGTH]


def test_what_is_no_key_is_not_enrolled(plugin):
    good, generation = key_bytes(5), Enrolment.next()
    bad = {4: bytes(64), 5: b"\xff" * 64, 6: good, SLOTS: good}
    expected = [Code.KEY_NOT_ON_CURVE, Code.KEY_RANGE, Code.VALID, Code.KEY_INDEX]
    assert tabulate(plugin, [(slot, generation, EVERY_ROW) for slot in bad], list(bad.values())) == expected
    assert serve(plugin, [(slot, generation) for slot in bad], list(bad.values())) == expected
    item = chosen("plain", 5, 77, 78)
    slots = [le32(slot, generation) for slot in (4, 5, 6)]
    assert verify(plugin, [item] * 3, slots) == [Code.KEY_INDEX, Code.KEY_INDEX, Code.VALID]
    names = [(6, generation, len(ROWS)), (6, 0, 0)]
    assert tabulate(plugin, names, [good] * 2) == [Code.KEY_INDEX] * 2
    assert serve(plugin, [(6, 0)], [good]) == [Code.KEY_INDEX]
    assert tabulate(plugin, [(6, generation, 0)], [good[1:]]) == [Code.KEY_LENGTH]


def test_a_slot_serves_only_a_whole_table_of_its_generation(plugin):
    """Rows that are missing, or of another enrolment, as after a lost process."""
    key, item = key_bytes(5), chosen("plain", 5, 77, 78)
    before = enroll(plugin, {3: key_bytes(6)})
    now = Enrolment.next()
    assert serve(plugin, [(3, now)], [key]) == [Code.UNDECIDED]
    names = [(3, now, row) for row in ROWS]
    assert set(tabulate(plugin, names[1:], [key] * len(names[1:]))) == {Code.VALID}
    assert serve(plugin, [(3, now)], [key]) == [Code.UNDECIDED]
    assert verify(plugin, [item] * 2, [le32(3, now), le32(3, before)]) == [Code.KEY_INDEX] * 2
    assert tabulate(plugin, names[:1], [key]) == [Code.VALID]
    assert serve(plugin, [(3, now)], [key]) == [Code.VALID]
    assert verify(plugin, [item] * 2, [le32(3, now), le32(3, before)]) == [Code.VALID, Code.KEY_INDEX]


def test_what_serves_is_not_written_again(plugin):
    generation = enroll(plugin, {3: key_bytes(5)})
    assert tabulate(plugin, [(3, generation, EVERY_ROW)], [key_bytes(6)]) == [Code.VALID]
    assert serve(plugin, [(3, generation)] * 2, [key_bytes(6), key_bytes(5)]) == [Code.UNDECIDED, Code.VALID]
    assert verify(plugin, [chosen("plain", 5, 77, 78)], [le32(3, generation)]) == [Code.VALID]
