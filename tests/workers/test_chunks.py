"""What a chunk's columns point to, and what is copied for it."""

from __future__ import annotations

import ctypes
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from _toy import random_values, values_of, variable_batch

from verifier.drivers import BatchStruct
from verifier.model import Batch, BatchKey, Column
from verifier.workers._chunks import copied_chunk, in_place_chunk
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
@pytest.mark.parametrize("kind", ["copied", "columns only", "in place"])
def test_a_chunk_reads_its_own_items(begin, items, kind):
    variable = variable_batch(random_values(ITEMS, 2)).inputs[0]
    whole = Batch(BatchKey("toy", "verify"), ITEMS, (FIXED, variable, Column.absent()))
    layout = lay_out([whole], 3, (4,))
    slot = np.zeros(layout.nbytes, np.uint8)
    write_parts(slot, layout, [whole], b"abc")
    # What lies elsewhere for all chunks: the chunk that is the whole batch has it all the same.
    elsewhere = np.zeros(64 + ITEMS, np.uint8)
    elsewhere[:3] = np.frombuffer(b"abc", np.uint8)
    batch = BatchStruct(constant=elsewhere.ctypes.data, codes=elsewhere.ctypes.data + 64 + begin)
    if kind != "in place":
        chunk = copied_chunk(slot, layout, begin, items, columns_only=kind == "columns only")
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
    ctypes.memset(batch.codes, 0x11, items)
    memory[batch.outputs[0] - base :][: 4 * items] = 0x22
    for copy in chunk.copies_out:
        slot[copy.slot : copy.slot + copy.nbytes] = memory[copy.device : copy.device + copy.nbytes]
    apart = kind == "columns only" and items < ITEMS
    assert (elsewhere[64 + begin :][:items] == 0x11).all() == apart
    assert (slot[layout.codes + begin :][:items] == 0x11).all() == (not apart)
    assert (slot[layout.outputs[0] + 4 * begin :][: 4 * items] == 0x22).all()
    assert batch.output_strides[0] == 4


def test_rounds_are_of_the_stage_that_the_manifest_names():
    def stage(name: str, lanes: int, warp_items: int = 32) -> SimpleNamespace:
        return SimpleNamespace(name=name, lanes=lanes, warp_items=warp_items)

    stages, publish = [stage("scalars", 1024), stage("verify", 512), stage("tiles", 2048, 1)], stage("publish", 4096)
    assert LoadedOperation(stages, publish).round_items == 1024
    assert LoadedOperation(stages, publish, "verify").round_items == 512
    assert LoadedOperation(stages, publish, "verify").lanes == 2048
