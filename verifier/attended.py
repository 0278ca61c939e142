"""Futures that whoever waits for them may bring about."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

__all__ = ["Attend", "Attended", "attend_as"]

T = TypeVar("T")

Attend = Callable[[float | None, Callable[[], bool]], None]
"""Works on a result in the calling thread, for so many seconds at most or as long as it likes, and only while the
function says that nothing else is to be done; it need not get it."""


class Attended(Future[T]):
    """A future with what the first thread that waits in `result` does, instead of sleeping until it is woken."""

    attend: Attend | None = None

    def look(self, idle: Callable[[], bool]) -> None:
        """As `result` begins: for a thread that has nothing else to do while it is `idle`, and does not wait."""
        attend, self.attend = self.attend, None
        if attend is not None and not self.done():
            attend(None, idle)

    def result(self, timeout: float | None = None) -> T:
        """As Future.result."""
        if timeout is not None and timeout <= 0:
            return super().result(timeout)
        attend, self.attend = self.attend, None  # once: it holds whatever it works with
        if attend is not None and not self.done():
            began = time.monotonic()
            attend(timeout, _always)
            if timeout is not None:
                timeout = max(timeout - (time.monotonic() - began), 0.0)
        return super().result(timeout)


def _always() -> bool:
    return True


def attend_as(outer: Attended[T], inner: Future[Any]) -> None:
    """Who waits for `outer` attends to `inner`, from which it comes."""
    if isinstance(inner, Attended):
        outer.attend = inner.attend
