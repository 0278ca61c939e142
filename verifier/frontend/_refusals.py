"""What the core has just refused for want of room is refused again here, without asking it.

A refusal costs the core's one interpreter what accepting a request does. A flood of several times what the devices do
would take it from the requests that were accepted, and every front end can say no as well as the core.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import grpc

from verifier.api import RefusedError, Status

__all__ = ["Asked", "Refusals"]

_LONGEST_S = 0.05  # a queue that is full has work for longer
_PART = 0.25  # of the time after which the core said to try again
_MOST = 1024  # kinds of requests that are remembered; callers' user ids are among them


class _Refused(NamedTuple):
    status: Status
    items: int
    until: float  # the end of that
    again: float  # when the core said to try again


class Asked(NamedTuple):
    """A request without its columns, and who sent it."""

    rpc: str
    message: Any
    caller: str

    def kind(self) -> Hashable:
        """What requests share that are refused alike: queue, caller and priority."""
        work = self.message.hash if self.rpc == "Digest" else self.message.scheme.SerializeToString()
        return self.rpc, work, self.message.priority, self.caller


class Refusals:
    """Thread-safe. `count` is called for every refusal that is repeated."""

    def __init__(self, count: Callable[[], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._count = count
        self._clock = clock
        self._refused: dict[Hashable, _Refused] = {}

    def note(self, asked: Asked, status: Status) -> None:
        """The core has answered a request with a status that is not OK."""
        if status.code is not grpc.StatusCode.RESOURCE_EXHAUSTED or not status.retry_after_s:
            return
        if len(self._refused) >= _MOST:
            self._refused.clear()
        now = self._clock()
        until = now + min(_PART * status.retry_after_s, _LONGEST_S)
        self._refused[asked.kind()] = _Refused(status, asked.message.items, until, now + status.retry_after_s)

    def check(self, asked: Asked) -> None:
        """Raises RefusedError where the core has just refused such a request, and not a larger one."""
        if not self._refused:
            return
        kind = asked.kind()
        refused = self._refused.get(kind)
        if refused is None:
            return
        now = self._clock()
        if now >= refused.until:
            self._refused.pop(kind, None)
        elif asked.message.items >= refused.items:
            self._count()
            status = refused.status
            raise RefusedError(Status(status.code, status.message, status.field, refused.again - now))
