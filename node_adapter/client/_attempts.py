"""What follows from the end of a call: who is left alone, and whether and when its request is sent again."""

from __future__ import annotations

import time
from collections.abc import MutableSet
from dataclasses import dataclass
from typing import Any

import grpc

from node_adapter.client._replicas import Replica, Replicas
from node_adapter.client._results import Result
from node_adapter.client._transport import Retry, failure, may_retry, retry_after_s
from node_adapter.errors import UndecidedError

__all__ = ["Attempts"]


@dataclass(frozen=True, slots=True)
class Attempts:
    """The rules of one batch, whose time ends at `deadline` (time.monotonic)."""

    replicas: Replicas
    retry: Retry
    deadline: float

    def answered(self, replica: Replica, part: Result, doubtful: MutableSet[Replica]) -> None:
        """A replica gave an answer. Where that leaves items undecided the replica is added to `doubtful`."""
        if part.whole:
            self.replicas.answered(replica)
        else:
            self.replicas.failed(replica, "it left items undecided")
            doubtful.add(replica)

    def failed(
        self, replica: Replica, call: Any, attempt: int, avoid: MutableSet[Replica]
    ) -> tuple[UndecidedError, float | None]:
        """The error of a call that failed, and the seconds until its request is sent again; None: it is not.

        `avoid`, whom the request does not go to again, is brought up to date. Raises what ends the whole batch.
        """
        code = call.code()
        error = failure(code, call.details() or "")
        if not isinstance(error, UndecidedError):
            raise error from None
        asked_s = retry_after_s(call.trailing_metadata())
        late = code is grpc.StatusCode.DEADLINE_EXCEEDED and time.monotonic() < self.deadline
        if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED) or late:
            self.replicas.failed(replica, str(error))
        elif code is grpc.StatusCode.RESOURCE_EXHAUSTED:
            self.replicas.full(replica, asked_s)
        if not (may_retry(code) or late) or attempt + 1 >= self.retry.attempts:
            return error, None
        avoid.add(replica)
        delay_s = 0.0
        if not self.replicas.elsewhere(avoid):
            delay_s = self.retry.delay_s(attempt, asked_s)
            avoid.clear()
        return error, delay_s if time.monotonic() + delay_s < self.deadline else None
