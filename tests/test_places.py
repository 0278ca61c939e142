"""Places in a region: never two of the same bytes, all of them back in the end."""

from __future__ import annotations

import random
import threading
import time

import pytest

from verifier.errors import CapacityError
from verifier.places import Places
from verifier.regions import ALIGNMENT


def test_places_never_overlap_and_come_back():
    generator = random.Random(1)
    places = Places(1 << 16)
    held: list[tuple[int, int]] = []
    refused = 0
    for _ in range(5000):
        if held and generator.random() < 0.5:
            places.give_back(held.pop(generator.randrange(len(held))))
            continue
        try:
            begin, end = places.take(generator.randrange(1, 6000))
        except CapacityError:
            refused += 1
            continue
        assert begin % ALIGNMENT == 0
        assert 0 <= begin < end <= 1 << 16
        assert all(end <= other_begin or other_end <= begin for other_begin, other_end in held)
        held.append((begin, end))
        assert places.taken == sum(end - begin for begin, end in held)
    assert refused
    for place in held:
        places.give_back(place)
    assert places.take(1 << 16) == (0, 1 << 16)


def test_a_request_without_columns_has_a_place_too():
    places = Places(256)
    assert places.take(0) == (0, ALIGNMENT)


def test_one_who_waits_gets_the_place_that_comes_free():
    places = Places(1024)
    first = places.take(1024)
    timer = threading.Timer(0.05, places.give_back, (first,))
    timer.start()
    assert places.take(1000, lambda: True) == (0, 1024)
    timer.join()


def test_waiting_ends_with_the_wish_and_with_the_deadline():
    places = Places(1024)
    places.take(1024)
    asked = iter([True, True, False])
    with pytest.raises(CapacityError, match="no room for 1 bytes"):
        places.take(1, lambda: next(asked))
    with pytest.raises(CapacityError):
        places.take(1, lambda: True, time.monotonic() + 0.05)
    with pytest.raises(CapacityError):
        Places(1024).take(1025, lambda: True)  # it would never fit
