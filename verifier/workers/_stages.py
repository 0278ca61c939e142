"""How a batch's time on the device divides among copies and kernels, by events between them.

An event costs some microseconds of the host, so where there are copies only every so-many-th batch is measured.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from verifier.drivers._driver import Event, Stream
from verifier.model import StageTimes

__all__ = ["MEASURE_EVERY", "ChunkMarks", "stage_times"]

MEASURE_EVERY = 16


class ChunkMarks:
    """The events of one chunk: before the copies in, before the kernels, before the copies out, at the end."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self.events: list[Event] = []

    def mark(self) -> None:
        """One more event."""
        self.events.append(self._stream.record())


def stage_times(chunks: Iterable[ChunkMarks]) -> StageTimes:
    """The sums over chunks. They overlap on several streams, so they may add up to more than the batch took.

    Every event must be reached. Raises BackendError.
    """
    sums = [0, 0, 0]
    for chunk in chunks:
        for stage, (before, after) in enumerate(itertools.pairwise(chunk.events)):
            sums[stage] += after.elapsed_ns(before)
    return StageTimes(*sums)
