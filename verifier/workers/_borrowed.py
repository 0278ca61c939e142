"""Which bytes of a batch a job finds in regions instead of its slot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from verifier.model import Batch, BatchKey, Column
from verifier.regions import Region
from verifier.workers._layout import Layout

__all__ = ["LEAST_BYTES", "Borrowed", "find_borrowed", "regions_of"]

# A memcpy of less costs less than one more transfer and its bookkeeping.
LEAST_BYTES = 64 << 10


class Borrowed(NamedTuple):
    """Bytes [at, at + nbytes) of the slot lie at `offset` of a region instead."""

    at: int
    nbytes: int
    region: int
    offset: int


def find_borrowed(layout: Layout, key: BatchKey, parts: Sequence[Batch]) -> tuple[Borrowed, ...]:
    """What of the parts' columns stays where it is, in rising order. Secret columns never do: slots are wiped."""
    found = []
    for number, place in enumerate(layout.inputs):
        at = place.data
        for part in parts:
            column = part.inputs[number]
            if column.region is not None and _stays(column) and number not in key.secret_inputs:
                offset = column.region.offset_of(column.data)
                found.append(Borrowed(at, column.data.size, column.region.id, offset))
            at += column.data.size
    return tuple(found)


def regions_of(parts: Sequence[Batch]) -> dict[int, Region]:
    """The regions that columns of the parts stay in, by their number."""
    columns = (column for part in parts for column in part.inputs)
    return {c.region.id: c.region for c in columns if c.region is not None and _stays(c)}


def _stays(column: Column) -> bool:
    return column.data.size >= LEAST_BYTES
