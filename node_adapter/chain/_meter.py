"""Processor time of pieces of a thread's work."""

from __future__ import annotations

import time
from types import TracebackType

__all__ = ["Meter"]


class Meter:
    """Processor time of the calling thread, in seconds, summed over `with` blocks that do not nest."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._begun = 0.0

    def __enter__(self) -> None:
        self._begun = time.thread_time()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.seconds += time.thread_time() - self._begun
