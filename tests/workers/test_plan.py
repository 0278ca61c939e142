"""How batches are cut: pure arithmetic, over any work and any settings."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verifier.workers._plan import Bounds, Work, chunk_sizes, is_both_ways, usual_items

MIB = 1 << 20
SIGNATURES = Work(1 << 20, 160, 0, 132 * 512)  # on a device with 132 multiprocessors
STRIPES = Work(1 << 19, 512, 512, 132 * 256)  # 256 MiB of a cipher
DEFAULTS = Bounds(2, 4 * MIB, 32 * MIB, 8 * MIB, "kernels")

works = st.builds(
    Work,
    items=st.integers(1, 1 << 22),
    item_bytes=st.integers(0, 1 << 16),
    output_bytes=st.integers(0, 1 << 16),
    round_items=st.integers(1, 1 << 20),
    rounds=st.integers(0, 8),
)
bounds = st.builds(
    Bounds,
    rounds=st.integers(1, 16),
    least_bytes=st.integers(0, 64 * MIB),
    most_bytes=st.one_of(st.integers(1, 1 << 16), st.integers(1 << 16, 64 * MIB)),
    both_ways_bytes=st.one_of(st.just(0), st.integers(1, 1 << 16), st.integers(1 << 16, 64 * MIB)),
    ramp=st.sampled_from(["none", "kernels", "all"]),
)


@given(works, bounds, st.booleans())
def test_chunks_cover_a_batch_in_whole_words_within_the_bounds(work, bounds, idle):
    sizes = chunk_sizes(work, bounds, idle=idle)
    usual = usual_items(work, bounds)
    assert sum(sizes) == work.items
    assert all(size > 0 for size in sizes)
    assert all(size % 32 == 0 for size in sizes[:-1])
    assert max(sizes) <= usual
    assert max(usual, 64) * work.item_bytes <= max(bounds.most_bytes, 64 * work.item_bytes)
    least = -(-work.items // usual)  # and few: one more for the remainder, and a ramp's three on each end
    assert len(sizes) <= least + (6 if bounds.ramp == "all" else 1)


@given(works, bounds)
def test_behind_another_batch_nothing_is_ramped(work, bounds):
    flat = bounds._replace(ramp="none")
    assert chunk_sizes(work, bounds, idle=False) == chunk_sizes(work, flat, idle=True)


@given(works, bounds)
def test_a_ramp_never_begins_more_rounds(work, bounds):
    """The work of a round is the same in whichever chunk, but a round that is begun takes its time."""
    per_round = -(-work.round_items // 32) * 32
    if is_both_ways(work, bounds) or usual_items(work, bounds) % per_round:
        return
    rounds = [
        sum(-(-size // per_round) for size in chunk_sizes(work, bounds._replace(ramp=ramp), idle=True))
        for ramp in ("none", "kernels")
    ]
    assert rounds[1] <= rounds[0]


@pytest.mark.parametrize(
    ("items", "wanted"),
    [
        (1, [1]),
        (40_000, [40_000]),
        (67_584, [67_584]),  # one round
        (67_584 + 2000, [69_584]),  # and less than a warp for each multiprocessor more
        (67_584 + 20_001, [20_032, 67_553]),
        (2 * 67_584, [67_584, 67_584]),
        (5 * 67_584, [67_584, 135_168, 135_168]),
        (6 * 67_584 + 2000, [69_600, 135_168, 135_168, 67_568]),
        (1 << 20, [34_816, *[135_168] * 7, 67_584]),
    ],
)
def test_signatures_on_an_idle_device_begin_with_what_is_no_whole_round(items, wanted):
    assert chunk_sizes(SIGNATURES._replace(items=items), DEFAULTS, idle=True) == wanted


def test_signatures_on_a_busy_device_are_cut_as_ever():
    assert chunk_sizes(SIGNATURES, DEFAULTS, idle=False) == [*[135_168] * 7, 102_400]


def test_an_operation_may_say_how_many_rounds_its_chunks_have():
    short = SIGNATURES._replace(rounds=1)
    assert chunk_sizes(short, DEFAULTS, idle=True) == [34_816, *[67_584] * 15]
    assert chunk_sizes(short, DEFAULTS, idle=False) == [*[67_584] * 15, 34_816]
    assert chunk_sizes(short, DEFAULTS._replace(rounds=1), idle=True) == chunk_sizes(short, DEFAULTS, idle=True)


@pytest.mark.parametrize("items", [100, 100_000])
def test_chunks_that_are_large_to_fill_the_link_are_not_ramped(items):
    assert chunk_sizes(Work(items, 4, 0, 32), DEFAULTS, idle=True) == [items]


def test_long_items_that_fill_no_round_are_not_ramped():
    messages = Work(1 << 16, 1 << 14, 32, 132 * 2048)
    assert chunk_sizes(messages, DEFAULTS, idle=True) == [2048] * 32


@pytest.mark.parametrize(
    ("item_bytes", "wanted"),
    [(512, [16384] * 32), (528, [*[15424] * 33, 15296])],  # with a counter there are 33.03 chunks' bytes
)
def test_ciphers_are_cut_evenly(item_bytes, wanted):
    for ramp in ("none", "kernels"):
        assert chunk_sizes(STRIPES._replace(item_bytes=item_bytes), DEFAULTS._replace(ramp=ramp), idle=True) == wanted


def test_ciphers_grow_and_shrink_where_that_is_asked_for():
    sizes = chunk_sizes(STRIPES, DEFAULTS._replace(ramp="all"), idle=True)
    assert sizes[:3] == [2048, 4096, 8192]  # 1, 2 and 4 MiB
    assert sizes[-3:] == [8192, 4096, 2048]
    assert len(sizes) == 37
    assert {size <= 16384 for size in sizes[3:-3]} == {True}
    assert all(2 * before >= after for before, after in pairwise(sizes))


def test_a_short_batch_has_short_ramps():
    sizes = chunk_sizes(STRIPES._replace(items=20_007), DEFAULTS._replace(ramp="all"), idle=True)
    assert sizes == [2048, 4096, 7712, 4096, 2055]


@pytest.mark.parametrize(
    ("round_items", "rounds", "least", "most", "wanted"),
    [
        (2, 1, 0, 1 << 20, 32),
        (2, 3, 0, 1 << 20, 96),
        (64, 2, 0, 1 << 20, 128),
        (33, 1, 0, 1 << 20, 64),
        (64, 1, 5 * 1000, 1 << 20, 1024),
        (64, 1, 5 * 128, 1 << 20, 128),
        (64, 4, 0, 5 * 200, 192),  # whole rounds within the bytes
        (64, 4, 0, 5 * 63, 32),  # not one round
        (64, 4, 0, 1, 32),  # but never less than a bitmap word
    ],
)
def test_usual_chunks_are_whole_rounds_neither_too_small_nor_too_large(round_items, rounds, least, most, wanted):
    work = Work(64_000, 5, 0, round_items)
    assert usual_items(work, Bounds(rounds, least, most, 1 << 20, "kernels")) == wanted


@pytest.mark.parametrize(
    ("width", "output", "both_ways", "wanted"),
    [
        (512, 512, 1 << 20, 2048),  # a cipher's stripes: so many bytes, whatever a round is
        (512, 512, 0, 4096),  # turned off: whole rounds
        (512, 512, 100, 32),  # never less than a word of items
        (512, 512, 64 << 20, 16384),  # never more than the most
        (512, 32, 1 << 20, 4096),  # little comes back
        (64, 64, 1 << 20, 4096),  # short items: the kernels are the limit
    ],
)
def test_chunks_of_which_as_much_comes_back_are_small(width, output, both_ways, wanted):
    work = Work(1 << 16, width, output, 2048)
    assert usual_items(work, Bounds(2, 0, 8 << 20, both_ways, "kernels")) == wanted
