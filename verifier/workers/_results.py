"""From a slot's result area to one result a part."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from verifier.model import BatchResult, Bytes, StageTimes, Timings, bitmap_bytes
from verifier.workers._layout import Layout

__all__ = ["read_results", "split_bitmap"]


def read_results(
    slot: Bytes,
    layout: Layout,
    parts: Sequence[int],
    device: str,
    device_ns: int,
    stages: StageTimes | None = None,
) -> list[BatchResult]:
    """Copies the results out of the slot and splits them among parts of so many items each."""
    nbytes = bitmap_bytes(layout.items)
    valid = slot[layout.valid : layout.valid + nbytes].copy()
    decided = slot[layout.decided : layout.decided + nbytes].copy()
    codes = slot[layout.codes : layout.codes + layout.items].copy()
    outputs = [
        slot[begin : begin + layout.items * width].copy().reshape(layout.items, width)
        for begin, width in zip(layout.outputs, layout.output_bytes, strict=True)
    ]
    if len(parts) == 1:
        return [
            BatchResult(
                layout.items,
                valid,
                decided,
                codes,
                tuple(outputs),
                device=device,
                timings=Timings(device_ns=device_ns, stages=stages),
            )
        ]
    results = []
    begin = 0
    for items, valid_part, decided_part in zip(
        parts, split_bitmap(valid, parts), split_bitmap(decided, parts), strict=True
    ):
        end = begin + items
        results.append(
            BatchResult(
                items,
                valid_part,
                decided_part,
                codes[begin:end],
                tuple(output[begin:end] for output in outputs),
                device=device,
                timings=Timings(device_ns=device_ns, stages=stages),
            )
        )
        begin = end
    return results


def split_bitmap(bitmap: Bytes, parts: Sequence[int]) -> list[Bytes]:
    """Bitmaps of the parts; parts begin at any bit, and bits past a part's last item are 0."""
    pieces = []
    begin = 0
    for items in parts:
        piece = bitmap[begin // 8 : bitmap_bytes(begin + items)]
        if begin % 8:
            bits = np.unpackbits(piece, bitorder="little")[begin % 8 :][:items]
            piece = np.packbits(bits, bitorder="little")
        else:  # as all but a cut request's end: bytes as they are
            piece = piece.copy()
            if items % 8:
                piece[-1] &= (1 << items % 8) - 1
        pieces.append(piece)
        begin += items
    return pieces
