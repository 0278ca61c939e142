"""Columns of several parts, written one behind the other into a slot."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verifier.drivers._abi import MAX_INPUTS
from verifier.model import Batch, BatchKey, Column
from verifier.regions import ALIGNMENT
from verifier.workers._layout import Layout, bound, lay_out, write_parts

KEY = BatchKey("toy", "verify")


@st.composite
def columns(draw, items: int) -> Column:
    if draw(st.booleans()):
        stride = draw(st.integers(0, 5))
        return Column.fixed("x", draw(st.binary(min_size=items * stride, max_size=items * stride)), stride, items)
    values = draw(st.lists(st.binary(max_size=9), min_size=items, max_size=items))
    return variable(values)


@st.composite
def batches(draw, inputs: int) -> Batch:
    items = draw(st.integers(0, 70))
    return Batch(KEY, items, tuple(draw(columns(items)) for _ in range(inputs)))


@st.composite
def part_lists(draw) -> list[Batch]:
    inputs = draw(st.integers(1, MAX_INPUTS))
    return draw(st.lists(batches(inputs), min_size=1, max_size=5))


def variable(values: list[bytes]) -> Column:
    offsets = np.concatenate([[0], np.cumsum([len(value) for value in values])]).astype("<u4")
    return Column.variable("x", b"".join(values), offsets.tobytes(), len(values))


def values_of(column: Column, items: int) -> list[bytes]:
    data = column.data.tobytes()
    if column.offsets is None:
        return [data[i * column.stride : (i + 1) * column.stride] for i in range(items)]
    return [data[a:b] for a, b in zip(column.offsets[:-1], column.offsets[1:], strict=True)]


def read_column(slot: np.ndarray, layout: Layout, index: int) -> list[bytes]:
    place = layout.inputs[index]
    data = slot[place.data : place.data + place.nbytes]
    if place.offsets < 0:
        return values_of(Column(data, place.stride), layout.items)
    offsets = slot[place.offsets : place.offsets + 4 * (layout.items + 1)].view("<u4")
    return values_of(Column(data, 0, offsets), layout.items)


@settings(deadline=None, derandomize=True)
@given(part_lists(), st.binary(max_size=20), st.lists(st.integers(1, 40), max_size=2))
def test_written_columns_read_back(parts, constant, outputs):
    layout = lay_out(parts, len(constant), tuple(outputs))
    slot = np.full(layout.nbytes, 0xEE, np.uint8)
    write_parts(slot, layout, parts, constant)
    for index in range(len(layout.inputs)):
        wanted = [value for part in parts for value in values_of(part.inputs[index], part.items)]
        assert read_column(slot, layout, index) == wanted
    assert slot[layout.constant : layout.constant + len(constant)].tobytes() == constant


@settings(deadline=None, derandomize=True)
@given(part_lists(), st.binary(max_size=20), st.lists(st.integers(1, 40), max_size=2))
def test_regions_are_aligned_apart_and_within_the_bound(parts, constant, outputs):
    layout = lay_out(parts, len(constant), tuple(outputs))
    items = layout.items
    regions = [(layout.constant, len(constant)), (layout.codes, items)]
    regions += [(at, items * width) for at, width in zip(layout.outputs, outputs, strict=True)]
    regions += [(layout.valid, layout.bitmap_words_bytes), (layout.decided, layout.bitmap_words_bytes)]
    for place in layout.inputs:
        regions.append((place.data, place.nbytes))
        if place.offsets >= 0:
            regions.append((place.offsets, 4 * (items + 1)))
    assert all(at % ALIGNMENT == 0 for at, _ in regions)
    used = sorted((at, at + nbytes) for at, nbytes in regions if nbytes)
    assert all(end <= begin for (_, end), (begin, _) in pairwise(used))
    assert all(end <= layout.nbytes for _, end in used)
    nbytes = sum(part.nbytes for part in parts) + len(constant)
    assert layout.nbytes <= bound(items, nbytes, sum(outputs))


def test_equal_fixed_widths_stay_fixed():
    parts = [Batch(KEY, n, (Column.fixed("x", bytes(4 * n), 4, n),)) for n in (3, 5)]
    assert lay_out(parts, 0, ()).inputs[0].offsets == -1


@pytest.mark.parametrize("other", [Column.fixed("x", bytes(10), 2, 5), variable([b"a"] * 5), Column.absent()])
def test_mixed_widths_become_variable(other):
    parts = [Batch(KEY, 3, (Column.fixed("x", bytes(12), 4, 3),)), Batch(KEY, 5, (other,))]
    layout = lay_out(parts, 0, ())
    assert layout.inputs[0].offsets >= 0
    slot = np.zeros(layout.nbytes, np.uint8)
    write_parts(slot, layout, parts, b"")
    assert [len(value) for value in read_column(slot, layout, 0)] == [4, 4, 4] + [
        len(value) for value in values_of(other, 5)
    ]


def test_columns_absent_in_every_part_take_nothing():
    parts = [Batch(KEY, n, (Column.absent(),)) for n in (3, 5)]
    (place,) = lay_out(parts, 0, ()).inputs
    assert (place.nbytes, place.stride, place.offsets) == (0, 0, -1)
