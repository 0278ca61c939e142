"""Every error has its status, and only what a caller may know is told."""

from __future__ import annotations

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2
from structlog.testing import capture_logs

from verifier import errors
from verifier.api import status_of
from verifier.api.status import DETAILS_KEY

CASES = [
    (errors.RequestError("items", "0"), grpc.StatusCode.INVALID_ARGUMENT),
    (errors.NotServedError("scheme", "x"), grpc.StatusCode.FAILED_PRECONDITION),
    (errors.NotFoundError("key_set", "x"), grpc.StatusCode.NOT_FOUND),
    (errors.KeyInUseError("key", "x"), grpc.StatusCode.FAILED_PRECONDITION),
    (errors.DeniedError("no role"), grpc.StatusCode.PERMISSION_DENIED),
    (errors.CapacityError("full", 0.25), grpc.StatusCode.RESOURCE_EXHAUSTED),
    (errors.DeadlineError("late"), grpc.StatusCode.DEADLINE_EXCEEDED),
    (errors.BackendError("broken"), grpc.StatusCode.UNAVAILABLE),
    (errors.StoppingError("bye"), grpc.StatusCode.UNAVAILABLE),
    (errors.DeviceUnavailableError("none"), grpc.StatusCode.UNAVAILABLE),
    (errors.PluginError("bad"), grpc.StatusCode.FAILED_PRECONDITION),
    (errors.ManifestError("bad"), grpc.StatusCode.FAILED_PRECONDITION),
    (errors.TrustError("no"), grpc.StatusCode.PERMISSION_DENIED),
    (errors.BuildError("no"), grpc.StatusCode.FAILED_PRECONDITION),
    (errors.ProviderError("no"), grpc.StatusCode.FAILED_PRECONDITION),
    (errors.SelfTestError("no"), grpc.StatusCode.FAILED_PRECONDITION),
    (errors.ConflictError("newer"), grpc.StatusCode.ABORTED),
]


@pytest.mark.parametrize(("error", "code"), CASES, ids=[type(error).__name__ for error, _ in CASES])
def test_codes(error, code):
    status = status_of(error)
    assert status.code is code
    assert status.message == str(error)


def test_a_compilers_long_log_is_cut_in_its_middle():
    """gRPC drops a call whose headers are above 16 KiB, and a character may take nine bytes of them."""
    text = "p@1.0.0 does not compile: " + "错" * 50_000 + " the last line"
    with capture_logs() as logs:
        status = status_of(errors.BuildError(text))
    assert status.message.startswith("p@1.0.0 does not compile: ")
    assert status.message.endswith(" the last line")
    assert "characters are in the daemon's log" in status.message
    assert len(status.message) < 16384 // 9
    assert logs[0]["text"] == text


def test_what_a_caller_wrote_is_cut_and_does_not_fill_the_log():
    with capture_logs() as logs:
        status = status_of(errors.RequestError("plugin", "x" * 50_000))
    assert len(status.message) < 16384 // 9
    assert "characters are left out" in status.message
    assert logs == []


def test_every_error_of_the_tree_is_mapped():
    """ConfigError never reaches a caller; any other new error must be given a status."""
    mapped = {type(error) for error, _ in CASES} | {errors.VerifierError, errors.ConfigError}
    declared = {getattr(errors, name) for name in errors.__all__}
    assert declared == mapped


def _details(status):
    ((key, value),) = status.trailing_metadata()
    assert key == DETAILS_KEY
    message = status_pb2.Status.FromString(value)
    assert message.code == status.number
    return message.details[0]


def test_a_full_queue_says_when_to_come_again():
    retry = error_details_pb2.RetryInfo()
    assert _details(status_of(errors.CapacityError("full", 0.25))).Unpack(retry)
    assert retry.retry_delay.ToMilliseconds() == 250


def test_a_wrong_field_is_named():
    bad = error_details_pb2.BadRequest()
    assert _details(status_of(errors.RequestError("items", "0"))).Unpack(bad)
    assert bad.field_violations[0].field == "items"


def test_an_unforeseen_error_is_not_told():
    with capture_logs() as events:
        status = status_of(ZeroDivisionError("secret"))
    assert status.code is grpc.StatusCode.INTERNAL
    assert "secret" not in status.message
    assert status.trailing_metadata() == ()
    assert [event["error_id"] for event in events] == [status.message.split()[2].rstrip(":")]
