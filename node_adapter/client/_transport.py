"""What both clients share about gRPC: the channel's options, which failures pass, and how long to wait."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import grpc
from google.rpc import error_details_pb2, status_pb2

from node_adapter.errors import (
    AdapterError,
    CapacityError,
    DeadlineError,
    NotServedError,
    RefusedError,
    UnavailableError,
    UndecidedError,
)

__all__ = [
    "CHANNEL_OPTIONS",
    "REASON_S",
    "Retry",
    "again_after_s",
    "channel_options",
    "failure",
    "may_retry",
    "nobody_answered",
    "retry_after_s",
]

# A call that waits for a daemon until its deadline is not told why none came. One that does not wait is told at once,
# for instance that the daemon speaks TLS; it has so long.
REASON_S = 0.1

# Large frames and windows are worth two to three times the throughput on batches of megabytes. The daemon allows
# pings this often, also on an idle connection, so that a dead peer is noticed before a block arrives.
CHANNEL_OPTIONS: Sequence[tuple[str, Any]] = (
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.http2.max_frame_size", (1 << 24) - 1),
    ("grpc.http2.lookahead_bytes", 64 << 20),
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.write_buffer_size", 16 << 20),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.service_config", json.dumps({"loadBalancingConfig": [{"round_robin": {}}]})),
)

# Only this policy watches the health service, also where a channel has one address.
_WATCHED = {
    "loadBalancingConfig": [{"round_robin": {}}],
    "healthCheckConfig": {"serviceName": "verifier.v1.Verifier"},
}

_PASSING = {
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.ABORTED,
    grpc.StatusCode.CANCELLED,  # by a daemon that ends; what the caller cancels is not asked about
}
_REFUSALS = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.OUT_OF_RANGE,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.UNIMPLEMENTED,
}


@dataclass(frozen=True, slots=True)
class Retry:
    """How often and how long to wait when the daemon is full or away.

    The wait before attempt k is at least what the daemon asks for, plus a random part of base_s x 2^k, capped.
    """

    attempts: int = 6
    base_s: float = 0.05
    cap_s: float = 2.0
    random: random.Random = field(default_factory=random.Random, repr=False, compare=False)

    def delay_s(self, attempt: int, asked_s: float) -> float:
        """Seconds to wait after the failed attempt number `attempt` (from 0)."""
        return asked_s + self.random.uniform(0, min(self.cap_s, self.base_s * 2**attempt))


def channel_options(name: str = "", *, watch_health: bool = False) -> list[tuple[str, Any]]:
    """Options of a channel. `name`: whom the daemon's certificate must be for, where the address does not say it."""
    options = [option for option in CHANNEL_OPTIONS if not (watch_health and option[0] == "grpc.service_config")]
    if watch_health:
        options.append(("grpc.service_config", json.dumps(_WATCHED)))
    if name:
        options += [("grpc.ssl_target_name_override", name), ("grpc.default_authority", name)]
    return options


def may_retry(code: grpc.StatusCode) -> bool:
    """Whether the same request may succeed later."""
    return code in _PASSING


def again_after_s(
    retry: Retry | None, code: grpc.StatusCode, trailers: Any, attempt: int, left_s: float
) -> float | None:
    """Seconds until a call that failed is made again; None: it is not. `left_s`: until the caller's time is over."""
    if retry is None or not may_retry(code) or attempt + 1 >= retry.attempts:
        return None
    delay_s = retry.delay_s(attempt, retry_after_s(trailers))
    return delay_s if delay_s < left_s else None


def nobody_answered(target: str, timeout_s: float, reason: str) -> str:
    """The text of a DeadlineError. `reason`: what a call said that did not wait, if anything."""
    return f"no daemon answered at {target} within {timeout_s:.3g} s" + (f": {reason}" if reason else "")


def failure(code: grpc.StatusCode, problem: str, late: str = "the deadline passed") -> AdapterError:
    """The error for a status. An UndecidedError concerns one chunk; any other ends the whole batch.

    `late` is the text of a DeadlineError: the status's own says nothing.
    """
    if code is grpc.StatusCode.FAILED_PRECONDITION:
        return NotServedError(code.name, problem)
    if code in _REFUSALS:
        return RefusedError(code.name, problem)
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return DeadlineError(late)
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
        return CapacityError(problem)
    if code is grpc.StatusCode.UNAVAILABLE or code is grpc.StatusCode.CANCELLED:
        return UnavailableError(problem)
    return UndecidedError(f"{code.name}: {problem}")


def retry_after_s(trailers: Any) -> float:
    """Seconds that the daemon asks to wait (google.rpc.RetryInfo in the status details), or 0."""
    for key, value in trailers or ():
        if key != "grpc-status-details-bin":
            continue
        for detail in status_pb2.Status.FromString(value).details:
            info = error_details_pb2.RetryInfo()
            if detail.Unpack(info):
                return float(info.retry_delay.ToNanoseconds() / 1e9)
    return 0.0
