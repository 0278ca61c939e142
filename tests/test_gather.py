"""Items picked out of a column: the right bytes, and in no more memory than they have themselves."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from verifier import gather as module
from verifier.gather import gather
from verifier.model import Column


def ragged(widths: np.ndarray, seed: int = 1) -> Column:
    offsets = np.concatenate([[0], np.cumsum(widths)]).astype(np.uint32)
    return Column(np.random.default_rng(seed).integers(0, 256, int(offsets[-1]), np.uint8), 0, offsets)


@pytest.mark.parametrize("at_once", [1, 7, 64, 1 << 20])
def test_items_of_any_width_in_any_order(monkeypatch, at_once):
    monkeypatch.setattr(module, "_GATHERED_BYTES", at_once)
    rng = np.random.default_rng(at_once)
    column = ragged(rng.choice([0, 0, 1, 3, 64, 65, 200], 300))
    items = rng.integers(0, 300, 500)
    found = gather(column, items)
    values = [
        column.data[begin:end].tobytes() for begin, end in np.stack([column.offsets[:-1], column.offsets[1:]], 1)
    ]
    assert found.data.tobytes() == b"".join(values[item] for item in items)
    assert np.diff(found.offsets).tolist() == [len(values[item]) for item in items]


def test_no_items_and_empty_items():
    column = ragged(np.array([0, 5, 0]))
    assert gather(column, np.array([], np.intp)).data.size == 0
    assert gather(column, np.array([0, 2, 0])).offsets.tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("widths", [np.full(1 << 18, 64), np.array([12 << 20, 1, 4 << 20])])
def test_memory_is_that_of_the_items(widths):
    column = ragged(widths)
    items = np.arange(widths.size)
    tracemalloc.start()
    try:
        gather(column, items)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # The items' bytes, a handful of numbers an item, and the index of what is gathered at once.
    assert most < column.data.size + 6 * 8 * widths.size + (32 << 20)
