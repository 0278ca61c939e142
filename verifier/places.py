"""Places in shared memory: taken for a request, given back with its answer."""

from __future__ import annotations

import bisect
import threading
import time
from collections.abc import Callable

from verifier.errors import CapacityError
from verifier.regions import ALIGNMENT, aligned

__all__ = ["Places"]

_LOOK_S = 0.1  # how often one who waits is asked whether it still wants to
_RETRY_S = 0.05


class Places:
    """First fit, from the front on: memory that was never needed is never touched. Thread-safe."""

    def __init__(self, nbytes: int) -> None:
        self._nbytes = nbytes
        self._free = [(0, nbytes)]  # (begin, end), rising, never touching each other
        self._changed = threading.Condition()

    @property
    def taken(self) -> int:
        """Bytes that are in use."""
        with self._changed:
            return self._nbytes - sum(end - begin for begin, end in self._free)

    def take(
        self, nbytes: int, patient: Callable[[], bool] | None = None, deadline: float | None = None
    ) -> tuple[int, int]:
        """Begin and end of a place. Waits for one while `patient()`, until `deadline`; else raises CapacityError."""
        size = max(aligned(nbytes), ALIGNMENT)
        with self._changed:
            while True:
                found = self._fit(size)
                if found is not None:
                    return found
                late = deadline is not None and time.monotonic() >= deadline
                if size > self._nbytes or late or patient is None or not patient():
                    raise CapacityError(f"no room for {nbytes} bytes of columns in this front end", _RETRY_S)
                self._changed.wait(_LOOK_S)

    def _fit(self, size: int) -> tuple[int, int] | None:
        for i, (begin, end) in enumerate(self._free):
            if end - begin >= size:
                if end - begin == size:
                    del self._free[i]
                else:
                    self._free[i] = (begin + size, end)
                return begin, begin + size
        return None

    def give_back(self, place: tuple[int, int]) -> None:
        """The place is free again."""
        begin, end = place
        with self._changed:
            i = bisect.bisect(self._free, place)
            if i < len(self._free) and self._free[i][0] == end:
                end = self._free.pop(i)[1]
            if i and self._free[i - 1][1] == begin:
                begin = self._free[i - 1][0]
                i -= 1
                self._free[i] = (begin, end)
            else:
                self._free.insert(i, (begin, end))
            self._changed.notify_all()
