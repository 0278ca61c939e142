"""Keys that nobody registered: counted, promoted, found again, and forgotten when others come."""

from __future__ import annotations

import numpy as np
import pytest
from _waiting import until

from verifier.bench.signatures import make_signatures
from verifier.keys import KeyScheduler, Promotion, key_table
from verifier.keys._promotion import _HALVE_AFTER, _Promoted, _Sketch
from verifier.model import Batch, Code, Column

from .conftest import WAIT_S, same


@pytest.fixture
def rng():
    return np.random.default_rng(7)


@pytest.fixture(autouse=True)
def hashed_alike(monkeypatch):
    """Hashes are the same in every run: by others a key now and then finds both of its buckets taken."""
    odd = np.random.default_rng(7)
    monkeypatch.setattr("verifier.keys._promotion._odd", lambda: odd.integers(0, 2**63, dtype=np.uint64) * 2 + 1)


def test_a_sketch_never_counts_too_little(rng):
    sketch = _Sketch()
    hashes = rng.integers(1, 2**64, 300, np.uint64)
    counts = rng.integers(1, 5, 300)
    for turn in range(4):
        seen = sketch.add(hashes[counts > turn], 3)
    final = sketch.add(hashes, 0)
    assert (final >= 3 * counts).all()
    assert np.count_nonzero(final == 3 * counts) > 280
    assert seen.size == np.count_nonzero(counts == 4)


def test_what_was_frequent_once_is_forgotten(rng):
    sketch = _Sketch()
    often, other = rng.integers(1, 2**64, (2, 1), np.uint64)
    sketch.add(often, 1000)
    sketch.add(other, _HALVE_AFTER)
    assert 500 <= sketch.add(often, 0)[0] < 1000


@pytest.mark.parametrize("stride", [33, 64, 65, 91])
def test_a_key_is_found_by_all_its_bytes(rng, stride):
    promoted = _Promoted("SM2", "RAW_XY", stride, 100)
    rows = rng.integers(0, 256, (40, stride), np.uint8)
    hashes = np.arange(40, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    places = promoted.add(rows, hashes)
    assert places.tolist() == list(range(40))
    np.testing.assert_array_equal(promoted.find(rows[::-1].copy(), hashes[::-1].copy()), places[::-1])
    changed = rows.copy()
    changed[:, 0] ^= 1  # the same hash, another key
    assert (promoted.find(changed, hashes) == -1).all()
    changed[::2] = rows[::2]
    assert promoted.find(changed, hashes).tolist() == [i if i % 2 == 0 else -1 for i in range(40)]


def test_keys_of_one_hash_have_two_places(rng):
    """More than that are not promoted; nobody is mistaken for another."""
    promoted = _Promoted("SM2", "RAW_XY", 64, 100)
    rows = rng.integers(0, 256, (5, 64), np.uint8)
    hashes = np.full(5, 12345, np.uint64)
    places = promoted.add(rows, hashes)
    assert places.size == 2
    found = promoted.find(rows, hashes)
    assert sorted(found[found >= 0].tolist()) == sorted(places.tolist())
    for _ in range(3):  # those without a place are not found, and come again with every batch
        assert promoted.add(rows[found < 0], hashes[found < 0]).size == 0
    assert promoted.keys.usable.sum() == promoted.count == 2


@pytest.fixture
def promoting(fresh):
    promotion = Promotion(fresh.tables, 20)
    return fresh, KeyScheduler(fresh.scheduler, fresh.registry, fresh.tables, promotion)


def test_frequent_keys_get_tables_and_verdicts_stay(promoting):
    stack, scheduler = promoting
    made = make_signatures("SM2", 400, seed=21, keys=8, fault_share=0.2)
    batch = stack.batch(made)
    for _ in range(3):
        result = scheduler.submit(batch).result(WAIT_S)
        np.testing.assert_array_equal(result.codes, made.codes)
    until(lambda: (stack.stats().enrolled, stack.stats().waiting) == (8, 0))

    hits = stack.stats().hits
    result = scheduler.submit(batch).result(WAIT_S)
    same(result, stack.scheduler.submit(batch).result(WAIT_S))
    np.testing.assert_array_equal(result.codes, made.codes)
    stats = stack.stats()
    assert stats.promoted == 8
    assert stats.hits - hits > 0.7 * made.items
    assert result.codes.tolist().count(Code.KEY_NOT_ON_CURVE) > 0  # keys that are none say what they are


def test_keys_that_come_as_a_table_with_every_batch(promoting):
    """As with several daemons, none of which knows what another was told."""
    stack, scheduler = promoting
    made = make_signatures("SM2", 200, seed=25, keys=4, fault_share=0.1, faults=("wrong s", "r is n"))
    rows, indices = np.unique(made.keys, axis=0, return_inverse=True)
    for _ in range(2):
        batch, _ = stack.named(key_table("SM2", rows.tobytes()), made.digests, made.signatures, indices.reshape(-1))
        np.testing.assert_array_equal(scheduler.submit(batch).result(WAIT_S).codes, made.codes)
        until(lambda: (stack.stats().enrolled, stack.stats().waiting) == (4, 0))
    assert stack.stats().hits == made.items


def test_what_is_no_key_gives_its_slot_back(promoting):
    stack, scheduler = promoting
    made = make_signatures("SM2", 100, seed=24, keys=1)
    keys = made.keys.copy()
    keys[::2, 0] ^= 1  # half of the items have one key that is off the curve
    batch = stack.batch(made)
    batch = Batch(batch.key, batch.items, (*batch.inputs[:2], Column(keys.reshape(-1), 64)))
    expected = [Code.KEY_NOT_ON_CURVE, Code.VALID] * 50
    for _ in range(3):
        assert scheduler.submit(batch).result(WAIT_S).codes.tolist() == expected
        until(lambda: (stack.stats().enrolled, stack.stats().waiting) == (1, 0))
    assert stack.stats().promoted == 2
    assert stack.stats().hits > 0


def test_seldom_ones_do_not(promoting):
    stack, scheduler = promoting
    made = make_signatures("SM2", 19, seed=22, keys=19)
    scheduler.submit(stack.batch(made)).result(WAIT_S)
    assert stack.stats().promoted == 0


def test_a_full_set_begins_anew(promoting, monkeypatch):
    stack, scheduler = promoting
    monkeypatch.setattr("verifier.keys._promotion._capacity", lambda _: 4)
    monkeypatch.setattr("verifier.keys._promotion._ANEW_S", 0.0)
    for seed in (31, 32, 33):
        made = make_signatures("SM2", 100, seed=seed, keys=4)
        for _ in range(2):
            np.testing.assert_array_equal(scheduler.submit(stack.batch(made)).result(WAIT_S).codes, made.codes)
    assert stack.stats().promoted == 12


def test_what_has_no_column_of_keys_is_left_alone(promoting):
    stack, scheduler = promoting
    made = make_signatures("SM2", 30, seed=23, keys=1)
    whole = np.hstack([made.signatures, made.keys])
    key = stack.registry.resolve("verify", "SM2").key(
        {"signature_encoding": 5, "key_encoding": 5}, stack.key().constant
    )
    columns = (Column(made.digests.reshape(-1), 32), Column(whole.reshape(-1), 128), Column.absent())
    result = scheduler.submit(Batch(key, 30, columns)).result(WAIT_S)
    assert (result.codes == Code.VALID).all()
    assert stack.stats().promoted == 0
