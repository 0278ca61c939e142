"""How batches are cut, and what a chunk's columns point to."""

from __future__ import annotations

import ctypes
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from _toy import random_values, values_of, variable_batch

from verifier.drivers import BatchStruct
from verifier.model import Batch, BatchKey, Column
from verifier.workers._chunks import chunk_items, copied_chunk, in_place_chunk
from verifier.workers._instance import LoadedOperation
from verifier.workers._layout import lay_out, write_parts

ITEMS = 100
FIXED = Column.fixed("x", np.random.default_rng(1).integers(0, 256, 5 * ITEMS, np.uint8), 5, ITEMS)


def values_on_device(batch: BatchStruct, index: int) -> list[bytes]:
    """What `value()` of the ABI reads, item by item."""
    column = batch.inputs[index]
    if not column.offsets:
        return [ctypes.string_at(column.data + i * column.stride, column.stride) for i in range(batch.items)]
    offsets = np.frombuffer(ctypes.string_at(column.offsets, 4 * (batch.items + 1)), "<u4").tolist()
    return [ctypes.string_at(column.data + a, b - a) for a, b in pairwise(offsets)]


@pytest.mark.parametrize(("begin", "items"), [(0, 32), (32, 32), (64, 36), (96, 4), (0, 100)])
@pytest.mark.parametrize("copied", [True, False])
def test_a_chunk_reads_its_own_items(begin, items, copied):
    variable = variable_batch(random_values(ITEMS, 2)).inputs[0]
    whole = Batch(BatchKey("toy", "verify"), ITEMS, (FIXED, variable, Column.absent()))
    layout = lay_out([whole], 3, (4,))
    slot = np.zeros(layout.nbytes, np.uint8)
    write_parts(slot, layout, [whole], b"abc")
    batch = BatchStruct()
    if copied:
        chunk = copied_chunk(slot, layout, begin, items)
        memory = np.full(chunk.nbytes, 0xCD, np.uint8)
        for copy in chunk.copies_in:
            memory[copy.device : copy.device + copy.nbytes] = slot[copy.slot : copy.slot + copy.nbytes]
    else:
        chunk = in_place_chunk(layout, begin, items)
        memory = slot
    base = memory.ctypes.data
    chunk.fill(batch, base, layout)
    assert batch.items == items
    assert batch.capacity % 32 == 0
    assert batch.capacity >= items
    fixed_values = values_of(Batch(whole.key, ITEMS, (FIXED,)))
    assert values_on_device(batch, 0) == fixed_values[begin : begin + items]
    assert values_on_device(batch, 1) == values_of(Batch(whole.key, ITEMS, (variable,)))[begin : begin + items]
    assert values_on_device(batch, 2) == [b""] * items
    assert ctypes.string_at(batch.constant, batch.constant_bytes) == b"abc"
    # Results written on the device come to their items' places in the slot.
    memory[batch.codes - base :][:items] = 0x11
    memory[batch.outputs[0] - base :][: 4 * items] = 0x22
    for copy in chunk.copies_out:
        slot[copy.slot : copy.slot + copy.nbytes] = memory[copy.device : copy.device + copy.nbytes]
    assert (slot[layout.codes + begin :][:items] == 0x11).all()
    assert (slot[layout.outputs[0] + 4 * begin :][: 4 * items] == 0x22).all()
    assert batch.output_strides[0] == 4


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
def test_chunks_are_whole_rounds_neither_too_small_nor_too_large(round_items, rounds, least, most, wanted):
    items = 64_000
    batch = Batch(BatchKey("toy", "verify"), items, (Column.fixed("x", bytes(5 * items), 5, items),))
    assert chunk_items(lay_out([batch], 0, ()), round_items, rounds, least, most, 1 << 20) == wanted


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
    batch = Batch(BatchKey("toy", "echo", ()), 1 << 16, (Column.fixed("data", bytes(width << 16), width, 1 << 16),))
    assert chunk_items(lay_out([batch], 0, (output,)), 2048, 2, 0, 8 << 20, both_ways) == wanted


def test_rounds_are_of_the_stage_that_the_manifest_names():
    def stage(name: str, lanes: int, warp_items: int = 32) -> SimpleNamespace:
        return SimpleNamespace(name=name, lanes=lanes, warp_items=warp_items)

    stages, publish = [stage("scalars", 1024), stage("verify", 512), stage("tiles", 2048, 1)], stage("publish", 4096)
    assert LoadedOperation(stages, publish).round_items == 1024
    assert LoadedOperation(stages, publish, "verify").round_items == 512
    assert LoadedOperation(stages, publish, "verify").lanes == 2048
