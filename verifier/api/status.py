"""The one map from errors to gRPC status."""

from __future__ import annotations

import uuid
from concurrent.futures import CancelledError
from dataclasses import dataclass

import grpc
import structlog
from google.protobuf.any_pb2 import Any as AnyMessage
from google.rpc import error_details_pb2, status_pb2

from verifier.errors import (
    BackendError,
    CapacityError,
    ConflictError,
    DeadlineError,
    DeniedError,
    DeviceUnavailableError,
    KeyInUseError,
    NotFoundError,
    NotServedError,
    PluginError,
    RequestError,
    StoppingError,
    TrustError,
    VerifierError,
)

__all__ = ["DETAILS_KEY", "RefusedError", "Status", "status_of"]

DETAILS_KEY = "grpc-status-details-bin"

_log = structlog.get_logger(__name__)

# gRPC sends texts as headers and drops a call with more than 16 KiB of them; a character may become nine bytes there.
_HEAD, _TAIL = 600, 900

# The first class that fits decides: subclasses stand before their bases.
_CODES: tuple[tuple[type[VerifierError], grpc.StatusCode], ...] = (
    (NotServedError, grpc.StatusCode.FAILED_PRECONDITION),
    (NotFoundError, grpc.StatusCode.NOT_FOUND),
    (KeyInUseError, grpc.StatusCode.FAILED_PRECONDITION),
    (RequestError, grpc.StatusCode.INVALID_ARGUMENT),
    (DeniedError, grpc.StatusCode.PERMISSION_DENIED),
    (CapacityError, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (DeadlineError, grpc.StatusCode.DEADLINE_EXCEEDED),
    (BackendError, grpc.StatusCode.UNAVAILABLE),
    (StoppingError, grpc.StatusCode.UNAVAILABLE),
    (DeviceUnavailableError, grpc.StatusCode.UNAVAILABLE),
    (TrustError, grpc.StatusCode.PERMISSION_DENIED),
    (ConflictError, grpc.StatusCode.ABORTED),
    (PluginError, grpc.StatusCode.FAILED_PRECONDITION),
)


@dataclass(frozen=True, slots=True)
class Status:
    """A gRPC status. `retry_after_s` is None where trying again does not help."""

    code: grpc.StatusCode
    message: str
    field: str | None = None
    retry_after_s: float | None = None

    @property
    def number(self) -> int:
        """The code as google.rpc.Code."""
        number: int = self.code.value[0]
        return number

    def trailing_metadata(self) -> tuple[tuple[str, bytes], ...]:
        """google.rpc details: which field is wrong, and when to come again. Empty where there are none."""
        details = []
        if self.field is not None:
            violation = error_details_pb2.BadRequest.FieldViolation(field=self.field, description=self.message)
            details.append(_packed(error_details_pb2.BadRequest(field_violations=[violation])))
        if self.retry_after_s is not None:
            retry = error_details_pb2.RetryInfo()
            retry.retry_delay.FromNanoseconds(round(self.retry_after_s * 1e9))
            details.append(_packed(retry))
        if not details:
            return ()
        status = status_pb2.Status(code=self.number, message=self.message, details=details)
        return ((DETAILS_KEY, status.SerializeToString()),)


def _packed(message: error_details_pb2.BadRequest | error_details_pb2.RetryInfo) -> AnyMessage:
    packed = AnyMessage()
    packed.Pack(message)
    return packed


class RefusedError(VerifierError):
    """A call that another process of the daemon has refused, with the status that is its caller's."""

    def __init__(self, status: Status) -> None:
        super().__init__(status.message)
        self.status = status


def status_of(error: BaseException) -> Status:
    """The status of an error. An unforeseen one is logged under a number, and that number is all that is told."""
    if isinstance(error, RefusedError):
        return error.status
    for kind, code in _CODES:
        if isinstance(error, kind):
            field = error.field if isinstance(error, RequestError) else None
            retry = error.retry_after_s if isinstance(error, CapacityError) else None
            # What a caller wrote itself is not logged: it could fill the log.
            return Status(code, _short(str(error), logged=not isinstance(error, RequestError)), field, retry)
    if isinstance(error, CancelledError):
        return Status(grpc.StatusCode.CANCELLED, "the call was cancelled")
    number = uuid.uuid4().hex[:12]
    _log.error("unforeseen_error", error_id=number, exc_info=error)
    return Status(grpc.StatusCode.INTERNAL, f"internal error {number}: see the daemon's log")


def _short(text: str, *, logged: bool) -> str:
    """What a status may carry of a text: a compiler's log is cut in its middle, and is whole in the daemon's log."""
    if len(text) <= _HEAD + _TAIL:
        return text
    if logged:
        _log.error("long_error", text=text)
    where = "in the daemon's log" if logged else "left out"
    return f"{text[:_HEAD]}\n[{len(text) - _HEAD - _TAIL} characters are {where}]\n{text[-_TAIL:]}"
