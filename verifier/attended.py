"""Futures that whoever waits for them may bring about."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

__all__ = ["Attend", "Attended", "attend_as"]

T = TypeVar("T")

Attend = Callable[[float | None], None]
"""Works on a result in the calling thread, for so many seconds at most or as long as it likes; it need not get it."""


class Attended(Future[T]):
    """A future with what the first thread that waits in `result` does, instead of sleeping until it is woken."""

    attend: Attend | None = None

    def result(self, timeout: float | None = None) -> T:
        """As Future.result."""
        if timeout is not None and timeout <= 0:
            return super().result(timeout)
        attend, self.attend = self.attend, None  # once: it holds whatever it works with
        if attend is not None and not self.done():
            began = time.monotonic()
            attend(timeout)
            if timeout is not None:
                timeout = max(timeout - (time.monotonic() - began), 0.0)
        return super().result(timeout)


def attend_as(outer: Attended[T], inner: Future[Any]) -> None:
    """Who waits for `outer` attends to `inner`, from which it comes."""
    if isinstance(inner, Attended):
        outer.attend = inner.attend
