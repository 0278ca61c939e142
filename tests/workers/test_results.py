"""Results of a batch, split among its parts."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from verifier.model import Batch, BatchKey, Column, bitmap_bytes
from verifier.workers._layout import lay_out
from verifier.workers._results import read_results, split_bitmap

ITEMS = st.lists(st.integers(0, 100), min_size=1, max_size=6)


@settings(deadline=None, derandomize=True)
@given(ITEMS, st.randoms(use_true_random=False))
def test_bitmaps_split_at_any_bit(parts, random):
    bits = [random.random() < 0.5 for _ in range(sum(parts))]
    # Whatever stands past the last item must not get into a part.
    padding = [True] * (8 * bitmap_bytes(len(bits)) - len(bits))
    pieces = split_bitmap(np.packbits(np.array(bits + padding, bool), bitorder="little"), parts)
    begin = 0
    for items, piece in zip(parts, pieces, strict=True):
        assert piece.size == bitmap_bytes(items)
        unpacked = np.unpackbits(piece, bitorder="little").tolist()
        assert unpacked == bits[begin : begin + items] + [0] * (8 * piece.size - items)
        begin += items


@settings(deadline=None, derandomize=True)
@given(ITEMS, st.lists(st.integers(1, 9), max_size=2), st.integers(0, 2**32 - 1))
def test_parts_get_their_own_results(parts, outputs, seed):
    batches = [Batch(BatchKey("toy", "verify"), n, (Column.fixed("x", bytes(n), 1, n),)) for n in parts]
    layout = lay_out(batches, 0, tuple(outputs))
    slot = np.random.default_rng(seed).integers(0, 256, layout.nbytes, np.uint8)
    items = layout.items
    valid = np.unpackbits(slot[layout.valid :], bitorder="little")[:items]
    decided = np.unpackbits(slot[layout.decided :], bitorder="little")[:items]
    before = slot.copy()
    results = read_results(slot, layout, parts, "cpu", 7)
    slot[:] = 0  # the slot is used again: results are copies
    begin = 0
    for count, result in zip(parts, results, strict=True):
        end = begin + count
        assert (result.items, result.device, result.timings.device_ns) == (count, "cpu", 7)
        assert np.unpackbits(result.valid, bitorder="little")[:count].tolist() == valid[begin:end].tolist()
        assert np.unpackbits(result.decided, bitorder="little")[:count].tolist() == decided[begin:end].tolist()
        assert result.codes.tolist() == before[layout.codes + begin : layout.codes + end].tolist()
        for at, width, output in zip(layout.outputs, outputs, result.outputs, strict=True):
            assert output.shape == (count, width)
            assert output.tobytes() == before[at + begin * width : at + end * width].tobytes()
        begin = end
