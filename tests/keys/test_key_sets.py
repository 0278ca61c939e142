"""Registered sets: what shares memory, and what indices name."""

from __future__ import annotations

import numpy as np
import pytest

from verifier.errors import CapacityError, NotFoundError, RequestError
from verifier.keys import KeySet, KeySetLimits, KeySets, resolve
from verifier.model import Column


def key_set(rows: bytes, encoding: str = "RAW_XY") -> KeySet:
    return KeySet.of("SM2", encoding, len(rows), Column(np.repeat(np.frombuffer(rows, np.uint8), 64), 64))


def test_equal_sets_share_one_copy():
    sets = KeySets(KeySetLimits(sets=3, bytes=128))
    first, second = sets.add(key_set(b"ab")), sets.add(key_set(b"ab"))
    assert first != second
    assert sets.get(first) is sets.get(second)
    with pytest.raises(CapacityError, match="bytes"):
        sets.add(key_set(b"ba"))  # another order is another set: an index would name another key
    kept = sets.get(first)
    assert sets.release(first) is None
    assert sets.get(second) is kept
    assert sets.release(second) is kept
    with pytest.raises(NotFoundError):
        sets.get(second)
    sets.add(key_set(b"ba"))


@pytest.mark.parametrize("other", [key_set(b"ab", "SEC1_COMPRESSED"), key_set(b"abc"), key_set(b"ac")])
def test_other_sets_do_not(other):
    sets = KeySets(KeySetLimits())
    assert sets.get(sets.add(key_set(b"ab"))) is not sets.get(sets.add(other))


def test_sets_that_differ_in_what_is_a_key_do_not():
    sets = KeySets(KeySetLimits())
    column = key_set(b"ab").keys
    part = KeySet.of("SM2", "RAW_XY", 2, column, np.array([True, False]))
    assert sets.get(sets.add(key_set(b"ab"))) is not sets.get(sets.add(part))


def test_indices_are_resolved():
    keys = key_set(b"abc")
    keys.usable[1] = False
    indices, refused, nbytes = resolve(keys, np.array([2, 1, 3, 0, 2**32 - 1], np.uint32), 1 << 20)
    assert indices.tolist() == [2, 1, 0, 0, 0]
    assert refused.tolist() == [1, 2, 4]
    assert nbytes == 5 * 64
    with pytest.raises(RequestError, match="320 bytes; the limit of a batch is 319"):
        resolve(keys, np.zeros(5, np.uint32), 319)


def test_keys_of_any_width_count_with_their_offsets():
    column = Column(np.frombuffer(b"aabbbc", np.uint8), 0, np.array([0, 2, 5, 6], np.uint32))
    keys = KeySet.of("SM2", "SPKI", 3, column)
    assert resolve(keys, np.array([1, 1, 2], np.uint32), 1 << 20)[2] == 7 + 16
