"""Where a chunk's columns lie on the device, and what is copied to and fro for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from verifier.drivers._abi import BatchStruct
from verifier.model import Bytes
from verifier.regions import aligned
from verifier.workers._borrowed import Borrowed
from verifier.workers._layout import Layout

__all__ = ["Chunk", "Copy", "copied_chunk", "in_place_chunk"]

_NBYTES = attrgetter("nbytes")

# So many codes come in behind the columns, as zeros that the host has written: a fill would be an order more for the
# host, and cost the device more than copying them does.
_COPIED_CODES = 32 << 10


class Copy(NamedTuple):
    """Bytes of the slot, or of a region, and where they lie on the device, relative to the chunk's memory."""

    slot: int  # offset there
    nbytes: int
    device: int
    region: int = 0  # 0: the slot


class Chunk(NamedTuple):
    """Items [begin, begin + items) of a batch. Addresses are relative to the chunk's memory on the device."""

    begin: int
    items: int
    nbytes: int
    inputs_bytes: int  # columns, and the constant where it lies here: in front of everything else
    copies_in: Sequence[Copy]
    copies_out: Sequence[Copy]
    columns: Sequence[tuple[int, int, int]]  # data (biased), offsets (-1: fixed width), stride
    constant: int  # -1: not here, but once for all chunks; and so are the codes
    codes: int
    outputs: Sequence[int]
    copies_codes: bool = False  # in, with the columns: not decided is what the slot has to say then

    def fill(self, batch: BatchStruct, base: int, layout: Layout) -> None:
        """Writes the chunk's addresses into `batch`, its memory being at `base`.

        Addresses of a constant and of codes that lie elsewhere are left as they are.
        """
        batch.items = self.items
        batch.capacity = (self.items + 31) // 32 * 32
        for place, (data, offsets, stride) in zip(batch.inputs, self.columns, strict=False):
            place.data = base + data
            place.offsets = base + offsets if offsets >= 0 else 0
            place.stride = stride
        if self.constant >= 0:
            batch.constant = base + self.constant
            batch.codes = base + self.codes
        batch.constant_bytes = layout.constant_bytes
        for i, (output, width) in enumerate(zip(self.outputs, layout.output_bytes, strict=True)):
            batch.outputs[i] = base + output
            batch.output_strides[i] = width


def in_place_chunk(layout: Layout, begin: int, items: int) -> Chunk:
    """A chunk whose memory is the slot itself."""
    columns = [
        (place.data, place.offsets + 4 * begin, 0)
        if place.offsets >= 0
        else (place.data + begin * place.stride, -1, place.stride)
        for place in layout.inputs
    ]
    outputs = [at + begin * width for at, width in zip(layout.outputs, layout.output_bytes, strict=True)]
    return Chunk(begin, items, 0, 0, [], [], columns, layout.constant, layout.codes + begin, outputs)


def copied_chunk(
    slot: Bytes,
    layout: Layout,
    begin: int,
    items: int,
    borrowed: Sequence[Borrowed] = (),
    *,
    columns_only: bool = False,
) -> Chunk:
    """A chunk with memory of its own. One that is the whole slot is laid out as it is there: one copy each way.

    `columns_only`: constant and codes are not in it but somewhere else, once for all chunks.
    """
    if items == layout.items and not borrowed:
        return _whole_slot(layout)
    end = 0

    def take(at: int, nbytes: int) -> Copy:
        nonlocal end
        copy = Copy(at, nbytes, end)
        end = aligned(end + nbytes)
        return copy

    copies_in = []
    columns = []
    for place in layout.inputs:
        if place.offsets >= 0:
            offsets = take(place.offsets + 4 * begin, 4 * (items + 1))
            first, last = slot[offsets.slot : offsets.slot + offsets.nbytes].view(np.uint32)[[0, -1]].tolist()
            data = take(place.data + first, last - first)
            copies_in += [offsets, data]
            columns.append((data.device - first, offsets.device, 0))
        else:
            data = take(place.data + begin * place.stride, items * place.stride)
            copies_in.append(data)
            columns.append((data.device, -1, place.stride))
    constant = codes = -1
    copies_out = []
    if not columns_only:
        copies_in.append(take(layout.constant, layout.constant_bytes))
        constant = copies_in[-1].device
    inputs_bytes = end
    if not columns_only:
        copies_out.append(take(layout.codes + begin, items))
        codes = copies_out[-1].device
    outputs = [
        take(at + begin * width, items * width) for at, width in zip(layout.outputs, layout.output_bytes, strict=True)
    ]
    return Chunk(
        begin,
        items,
        end,
        inputs_bytes,
        _small_first(piece for copy in copies_in if copy.nbytes for piece in _pieces(copy, borrowed)),
        _small_first([*copies_out, *outputs]),
        columns,
        constant,
        codes,
        [output.device for output in outputs],
    )


@lru_cache(256)  # as layouts are
def _whole_slot(layout: Layout) -> Chunk:
    copies_codes = layout.items <= _COPIED_CODES
    return in_place_chunk(layout, 0, layout.items)._replace(
        nbytes=layout.valid,
        inputs_bytes=layout.codes,
        copies_codes=copies_codes,
        copies_in=(Copy(0, layout.codes + layout.items * copies_codes, 0),),
        copies_out=(Copy(layout.codes, layout.valid - layout.codes, layout.codes),),
    )


def _small_first(copies: Iterable[Copy]) -> list[Copy]:
    """Behind a chunk's large copy its small ones would wait for other streams' large ones, and the chunk for them."""
    return sorted(copies, key=_NBYTES)


def _pieces(copy: Copy, borrowed: Sequence[Borrowed]) -> Iterator[Copy]:
    """A copy from the slot, with what lies in regions copied from there."""
    begin, end = copy.slot, copy.slot + copy.nbytes
    for at, nbytes, region, offset in borrowed:
        first, last = max(begin, at), min(end, at + nbytes)
        if first >= last:
            continue
        if begin < first:
            yield Copy(begin, first - begin, copy.device + begin - copy.slot)
        yield Copy(offset + first - at, last - first, copy.device + first - copy.slot, region)
        begin = last
    if begin < end:
        yield Copy(begin, end - begin, copy.device + begin - copy.slot)
