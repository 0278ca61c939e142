"""The gRPC handlers of calls that are columns, over whatever backend runs them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.message import Message

from verifier.api._calls import CallLimit, CallMetrics, caller_of, deadline_of, guarded, lifter, wait_in_call
from verifier.api._lift import KINDS, ColumnarRequest
from verifier.api._operations import Backend
from verifier.api._streams import Streams
from verifier.scheduling import Priority

__all__ = ["CallLimits", "ColumnCalls", "serialized"]


@dataclass(frozen=True, slots=True)
class CallLimits:
    """What one process handles at once."""

    calls: int
    streams: int
    stream_in_flight: int  # requests of one stream that are not answered yet


def serialized(answer: Message | bytes) -> bytes:
    """A response's bytes: a backend may give it whole or ready to be sent."""
    return answer if isinstance(answer, bytes) else answer.SerializeToString()


class ColumnCalls:
    """Verify, Recover, Digest and VerifyStream. `calls` is the limit that other unary calls share."""

    def __init__(self, backend: Backend, metrics: CallMetrics, limits: CallLimits) -> None:
        self._backend = backend
        self._metrics = metrics
        self.calls = CallLimit(limits.calls)
        self.streams = Streams(backend, metrics, limits.stream_in_flight, CallLimit(limits.streams))

    def handlers(self) -> dict[str, Any]:
        """By the name of the RPC. Requests that do not parse are refused as INVALID_ARGUMENT."""
        made: dict[str, Any] = {
            rpc: grpc.unary_unary_rpc_method_handler(
                guarded(rpc, self._metrics, self._unary(rpc)), lifter(kind), serialized
            )
            for rpc, kind in KINDS.items()
        }
        made["VerifyStream"] = grpc.stream_stream_rpc_method_handler(
            self.streams.handle, lifter(KINDS["Verify"]), serialized
        )
        return made

    def _unary(self, rpc: str) -> Callable[[ColumnarRequest, grpc.ServicerContext], Any]:
        def call(request: ColumnarRequest, context: grpc.ServicerContext) -> Any:
            urgent = request.message.priority == Priority.CONSENSUS
            with self.calls.urgently() if urgent else self.calls:
                deadline = deadline_of(context)
                pending = self._backend.submit(rpc, request, deadline=deadline, caller=caller_of(context))
                wait_in_call(pending.future, context, deadline)
                return pending.answer()

        return call
