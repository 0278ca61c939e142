"""The host's map of slots: who gets one, who loses one, and when it may be given again."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from verifier.keys import RESERVED_SLOTS, KeySet
from verifier.keys._slots import Holds, Slots
from verifier.keys._tables import AlgorithmTables
from verifier.model import Column


def key_set(items: int, first: int = 0) -> KeySet:
    rows = np.repeat(np.arange(first, first + items, dtype=np.uint8)[:, None], 64, axis=1)
    return KeySet.of("SM2", "RAW_XY", items, Column(rows.reshape(-1), 64))


@pytest.fixture
def holds():
    return Holds()


@pytest.fixture
def slots(holds):
    made = Slots(RESERVED_SLOTS + 4, holds)
    assert made.generation[0] != Slots(RESERVED_SLOTS + 4, holds).generation[0]
    made.generation[:] = 0
    return made


def give(slots: Slots, keys: KeySet, *places: int, now: float = 0.0) -> int:
    return slots.assign(keys, slots.without_slot(keys, np.array(places)), now)


def serve(slots: Slots) -> None:
    """As if every device had built what is assigned."""
    slots.ready = slots.generation.copy()
    slots.publish()


def named(keys: KeySet) -> list[tuple[int, int]]:
    """(slot, generation) of each key, generation 0: none."""
    return [(int(name) & 0xFFFFFFFF, int(name) >> 32) for name in keys.view.names]


def test_known_answers_slots_are_never_given(slots):
    keys = key_set(9)
    assert give(slots, keys, *range(9)) == 4
    serve(slots)
    assert [name for name in named(keys) if name != (0, 0)] == [(RESERVED_SLOTS + i, 1) for i in range(4)]
    assert not keys.view.whole


def test_a_name_is_published_when_every_device_serves_it(slots):
    keys = key_set(2)
    give(slots, keys, 0, 1)
    slots.publish()
    assert named(keys) == [(0, 0)] * 2
    assert not keys.view.whole
    slots.ready[RESERVED_SLOTS] = 1
    slots.publish()
    assert named(keys) == [(RESERVED_SLOTS, 1), (0, 0)]
    serve(slots)
    assert keys.view.whole


def test_equal_keys_share_a_slot(slots):
    rows = np.zeros((3, 64), np.uint8)
    rows[1] = 7
    keys = KeySet.of("SM2", "RAW_XY", 3, Column(rows.reshape(-1), 64))
    assert give(slots, keys, 0, 1, 2) == 2
    serve(slots)
    assert named(keys) == [(RESERVED_SLOTS, 1), (RESERVED_SLOTS + 1, 1), (RESERVED_SLOTS, 1)]
    assert keys.view.whole


def test_what_is_no_key_gets_no_slot(slots):
    keys = key_set(2)
    keys.usable[0] = False
    assert give(slots, keys, 0, 1) == 1
    serve(slots)
    assert named(keys)[0] == (0, 0)
    assert keys.view.whole  # of those that are keys


def test_the_key_that_was_used_longest_ago_loses_its_slot(slots):
    keys, other = key_set(4), key_set(2, 100)
    give(slots, keys, 0, 1, 2, 3, now=1.0)
    serve(slots)
    slots.note_use(keys.view.names[[0, 3]], 5.0)
    assert slots.evict(2, unused_since=1.0) == 0  # all were used since
    assert slots.evict(1, unused_since=6.0) == 1
    assert [slot for slot, generation in named(keys) if not generation] == [0]
    assert named(keys)[1] == (0, 0)
    assert slots.evicted == 1
    assert give(slots, other, 0, now=7.0) == 1
    serve(slots)
    assert named(other)[0] == (RESERVED_SLOTS + 1, 2)  # the same slot, in another generation
    # What was given last is not what goes next.
    assert slots.evict(3, unused_since=6.0) == 3
    assert named(other)[0] == (RESERVED_SLOTS + 1, 2)


def test_a_slot_is_not_given_again_while_a_batch_from_before_holds(slots, holds):
    keys, other = key_set(4), key_set(1, 100)
    give(slots, keys, 0, 1, 2, 3)
    serve(slots)
    first, second = holds.enter(), holds.enter()
    slots.evict(1, unused_since=1.0)
    later = holds.enter()
    assert (slots.free, slots.leaving) == (0, 1)
    assert give(slots, other, 0) == 0
    holds.leave(second)
    assert slots.free == 0
    holds.leave(first)
    holds.leave(first)  # idempotent
    assert (slots.free, slots.leaving) == (1, 0)  # the later one never saw the old name
    assert give(slots, other, 0) == 1
    holds.leave(later)


def test_releasing_a_set_frees_all_of_its_slots(slots, holds):
    keys = key_set(3)
    give(slots, keys, 0, 1, 2)
    serve(slots)
    hold = holds.enter()
    slots.release(keys)
    assert named(keys) == [(0, 0)] * 3
    assert slots.free == 1
    holds.leave(hold)
    assert slots.free == 4
    assert not slots._sets  # nothing of it is kept
    slots.release(keys)  # a set without slots is no error
    assert slots.keys_of(slots.assigned) == []


def test_generations_skip_zero(slots):
    slots.generation[:] = 2**32 - 1
    keys = key_set(1)
    give(slots, keys, 0)
    serve(slots)
    assert named(keys) == [(RESERVED_SLOTS, 1)]


def test_keys_count_as_enrolled_when_batches_go_by_them(monkeypatch):
    """While many tables are built batches are told from time to time, and nobody is told otherwise."""
    monkeypatch.setattr("verifier.keys._tables._PUBLISH_S", 1e9)
    tables, keys = AlgorithmTables("SM2", RESERVED_SLOTS + 4, lambda: None), key_set(4)
    device = SimpleNamespace(
        built=np.zeros(RESERVED_SLOTS + 4, np.uint32),
        worker=SimpleNamespace(device=SimpleNamespace(id="cpu")),
        shape=SimpleNamespace(slot_bytes=1),
    )
    tables.devices = [device]
    tables.want(keys, np.arange(4))
    tables.assign(0.0)
    device.built[RESERVED_SLOTS : RESERVED_SLOTS + 2] = tables.slots.generation[RESERVED_SLOTS]
    tables.take_stock(at_once=True)
    assert (tables.stats.enrolled, tables.stats.waiting) == (2, 2)
    device.built[:] = tables.slots.generation
    tables.take_stock(at_once=False)
    assert np.count_nonzero(keys.view.names) == tables.stats.enrolled == 2
    assert tables.stats.waiting == 2
    tables.take_stock(at_once=True)
    assert np.count_nonzero(keys.view.names) == tables.stats.enrolled == 4
    tables.forget(keys)
    tables.take_stock(at_once=False)
    assert (tables.stats.enrolled, tables.stats.waiting) == (0, 0)
