"""Refusals of the core that a front end repeats: of what, for how long, and with which time to wait."""

from __future__ import annotations

import grpc
import pytest

from verifier.api import RefusedError, Status
from verifier.frontend._refusals import _LONGEST_S, _MOST, Asked, Refusals
from verifier.v1 import verifier_pb2 as pb

FULL = Status(grpc.StatusCode.RESOURCE_EXHAUSTED, "the queue is full", None, 1.0)
SCHEME = pb.Scheme(algorithm=pb.ALGORITHM_SM2)
REQUEST = pb.VerifyRequest(items=100, scheme=SCHEME)


class Clocked:
    """Refusals, their clock, and how many were repeated."""

    def __init__(self):
        self.now, self.repeated = 100.0, 0
        self.refusals = Refusals(self._count, lambda: self.now)

    def _count(self):
        self.repeated += 1

    def note(self, status=FULL, request=REQUEST):
        self.refusals.note(Asked("Verify", request, "caller"), status)

    def refuses(self, request=REQUEST, rpc="Verify", caller="caller"):
        try:
            self.refusals.check(Asked(rpc, request, caller))
        except RefusedError as error:
            return error.status
        return None


@pytest.fixture
def clocked():
    return Clocked()


def test_what_was_refused_is_refused_again_for_a_moment(clocked):
    assert clocked.refuses() is None
    clocked.note()
    clocked.now += 0.9 * _LONGEST_S
    status = clocked.refuses()
    assert (status.code, status.message) == (FULL.code, FULL.message)
    assert status.retry_after_s == pytest.approx(1.0 - 0.9 * _LONGEST_S)
    clocked.now += 0.2 * _LONGEST_S
    assert clocked.refuses() is None
    assert clocked.repeated == 1


def test_no_longer_than_a_part_of_the_time_to_wait(clocked):
    clocked.note(Status(FULL.code, "", None, _LONGEST_S))
    clocked.now += 0.3 * _LONGEST_S
    assert clocked.refuses() is None


@pytest.mark.parametrize(
    "request_",
    [
        pb.VerifyRequest(items=99, scheme=SCHEME),  # may fit where a larger one did not
        pb.VerifyRequest(items=100, scheme=SCHEME, priority=pb.PRIORITY_CONSENSUS),
        pb.VerifyRequest(items=100, scheme=pb.Scheme(algorithm=pb.ALGORITHM_ECDSA_P256)),
    ],
)
def test_other_requests_go_on(clocked, request_):
    clocked.note()
    assert clocked.refuses(request_) is None
    assert clocked.refuses(pb.VerifyRequest(items=101, scheme=SCHEME)) is not None


def test_other_callers_and_calls_go_on(clocked):
    clocked.note()
    assert clocked.refuses(caller="another") is None
    assert clocked.refuses(pb.RecoverRequest(items=100, scheme=SCHEME), rpc="Recover") is None
    assert clocked.refuses(pb.DigestRequest(items=100, hash=pb.HASH_SM3), rpc="Digest") is None


@pytest.mark.parametrize(
    "status",
    [
        Status(grpc.StatusCode.INVALID_ARGUMENT, "", "items", None),
        Status(grpc.StatusCode.UNAVAILABLE, "", None, 1.0),
        Status(FULL.code, "too large for ever", None, None),
    ],
)
def test_other_failures_are_the_cores_to_repeat(clocked, status):
    clocked.note(status)
    assert clocked.refuses() is None


def test_what_is_remembered_is_bounded(clocked):
    for size in range(_MOST + 10):
        clocked.note(request=pb.VerifyRequest(items=1, scheme=pb.Scheme(sm2_user_id=b"%d" % size)))
    assert len(clocked.refusals._refused) <= _MOST
