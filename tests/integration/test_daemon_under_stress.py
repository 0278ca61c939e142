"""Deadlines, cancellation, full queues, faults and stopping, on a device that is made slow."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import numpy as np
import pytest
from _daemon_process import (
    Requests,
    accepted,
    alive,
    assert_right,
    assert_right_or_undecided,
    digests,
    parity_request,
    parity_scheme,
)
from _waiting import until
from google.rpc import error_details_pb2, status_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc

from verifier.v1 import verifier_pb2 as pb

TIMEOUT_S = 60
# Every launch of the toy's last stage takes this long; known answers at load too.
SLOW_S = 0.1
SLOW = {"call": "launch parity_decide", "device": "fake:0", "times": 0, "delay_s": SLOW_S}
ONE_AT_A_TIME = ("scheduling.launches_per_device=1", "scheduling.measure=false")


class Gate:
    """Closed, no batch gets past the toy's last stage on fake:0, however long a test takes."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.fault = SLOW | {"delay_s": 0.0, "held": str(file)}

    def close(self) -> None:
        self._file.touch()

    def open(self) -> None:
        self._file.unlink()


@pytest.fixture
def gate(tmp_path):
    return Gate(tmp_path / "gate")


@pytest.fixture
def gated(start, gate):
    """Starts a daemon whose only device has a gate."""

    def started(*settings):
        return start(*ONE_AT_A_TIME, "devices.batch_limit_s=60", *settings, devices=("fake:0",), faults=[gate.fault])

    return started


@pytest.fixture
def slow(start):
    """A daemon whose only device takes its time, one launch after the other."""
    return start(*ONE_AT_A_TIME, "server.stream_in_flight=8", devices=("fake:0",), faults=[SLOW])


def test_deadlines(slow):
    """A call whose time is over gets DEADLINE_EXCEEDED, the others their verdicts."""
    data = digests(50, seed=1)
    patient = [slow.stub.Verify.future(parity_request(data, i), timeout=TIMEOUT_S) for i in range(3)]
    hasty = [slow.stub.Verify.future(parity_request(data, i), timeout=SLOW_S / 3) for i in range(3)]
    for call in hasty:
        assert call.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    for call in patient:
        assert_right(call.result(), data)


def test_cancelled_calls_leave_nothing_behind(slow):
    data = digests(50, seed=2)
    first = slow.stub.Verify.future(parity_request(data), timeout=TIMEOUT_S)
    calls = [slow.stub.Verify.future(parity_request(data), timeout=TIMEOUT_S) for _ in range(10)]
    until(lambda: accepted(slow) == 50 * 11)
    for call in calls:
        call.cancel()
    assert_right(first.result(), data)
    assert_right(slow.stub.Verify(parity_request(data), timeout=TIMEOUT_S), data)


def test_answers_of_a_stream_come_as_they_finish(gated, gate):
    """A large batch in front does not hold back the consensus batch behind it."""
    daemon = gated("server.stream_in_flight=8")
    gate.close()
    requests = Requests()
    answers = daemon.stub.VerifyStream(requests, timeout=TIMEOUT_S)
    requests.put(parity_request(digests(5, seed=0), 0))
    until(lambda: accepted(daemon) == 5)
    # Pool work of another key waits; consensus work that is sent later overtakes it, and may overtake what runs.
    pool = digests(40, seed=1)
    requests.put(
        pb.VerifyRequest(
            request_id=1,
            items=40,
            scheme=parity_scheme(pb.INPUT_KIND_MESSAGE),
            input=pb.Column(data=pool.tobytes(), offsets=bytes(_offsets(40, 32))),
        )
    )
    consensus = digests(5, seed=2)
    requests.put(parity_request(consensus, 2, priority=pb.PRIORITY_CONSENSUS))
    until(lambda: accepted(daemon) == 50)
    gate.open()
    requests.put(None)
    order = [answer.request_id for answer in answers]
    assert order in ([0, 2, 1], [2, 0, 1])


def _offsets(items, width):
    return (np.arange(items + 1, dtype="<u4") * width).tobytes()


def test_a_full_queue_refuses_politely(start):
    daemon = start(
        *ONE_AT_A_TIME,
        "scheduling.queue_items=1000",
        "server.max_items=1000",
        "scheduling.caller_share=1.0",
        devices=("fake:0",),
        faults=[SLOW],
    )
    data = digests(400, seed=1)
    calls = [
        daemon.stub.Verify.future(parity_request(data, i, priority=pb.PRIORITY_CONSENSUS), timeout=TIMEOUT_S)
        for i in range(12)
    ]
    codes = [call.code() for call in calls]
    assert set(codes) == {grpc.StatusCode.OK, grpc.StatusCode.RESOURCE_EXHAUSTED}
    for call in calls:
        if call.code() is grpc.StatusCode.OK:
            assert_right(call.result(), data)
            continue
        status = status_pb2.Status.FromString(dict(call.trailing_metadata())["grpc-status-details-bin"])
        retry = error_details_pb2.RetryInfo()
        assert status.details[0].Unpack(retry)
        assert retry.retry_delay.ToNanoseconds() > 0
        assert "the queue of parity is full" in call.details()
    # A stream is told the same, and lives on.
    requests = [parity_request(data, i, priority=pb.PRIORITY_CONSENSUS) for i in range(12)]
    answers = list(daemon.stub.VerifyStream(iter(requests), timeout=TIMEOUT_S))
    failures = [answer.failure for answer in answers if answer.HasField("failure")]
    assert len(answers) == 12
    assert {failure.code for failure in failures} == {grpc.StatusCode.RESOURCE_EXHAUSTED.value[0]}
    assert all(failure.retry_after_ms > 0 for failure in failures)
    refused = sum(call.code() is not grpc.StatusCode.OK for call in calls) + len(failures)
    assert daemon.metrics()['verifier_rejected_total{plugin="parity",reason="queue_full"}'] == refused


def test_a_stream_is_not_read_beyond_its_bound(gated, gate):
    """A client that sends everything at once and reads nothing has so many requests in the daemon, and no more."""
    daemon = gated("server.stream_in_flight=2")
    gate.close()
    batches = [digests(100, seed=i) for i in range(12)]
    answers = daemon.stub.VerifyStream((parity_request(data, i) for i, data in enumerate(batches)), timeout=TIMEOUT_S)
    until(lambda: accepted(daemon) == 200)
    assert {accepted(daemon) for _ in range(10)} == {200}
    gate.open()
    for answer in answers:
        assert_right(answer, batches[answer.request_id])


def test_streams_are_bounded(start):
    daemon = start("server.max_streams=1")
    requests = Requests()
    first = daemon.stub.VerifyStream(requests, timeout=TIMEOUT_S)
    data = digests(3, seed=1)
    requests.put(parity_request(data))
    assert_right(next(first), data)
    with pytest.raises(grpc.RpcError) as refused:
        next(daemon.stub.VerifyStream(iter([parity_request(data)]), timeout=TIMEOUT_S))
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    requests.put(None)
    assert list(first) == []
    assert len(list(daemon.stub.VerifyStream(iter([parity_request(data)]), timeout=TIMEOUT_S))) == 1


def test_health_answers_while_every_thread_works(gated, gate):
    daemon = gated("server.max_calls=2", "server.max_streams=1")
    gate.close()
    data = digests(10, seed=1)
    calls = [daemon.stub.Verify.future(parity_request(data, i), timeout=TIMEOUT_S) for i in range(8)]
    until(lambda: sum(not call.done() for call in calls) == 2, "calls above the limit are refused, not queued")
    with grpc.insecure_channel(daemon.ready_event()["health"][0]) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        answer = stub.Check(health_pb2.HealthCheckRequest(), timeout=TIMEOUT_S)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
    gate.open()
    codes = [call.code() for call in calls]
    assert codes.count(grpc.StatusCode.OK) == 2
    assert codes.count(grpc.StatusCode.RESOURCE_EXHAUSTED) == 6


def test_a_device_that_fails_is_replaced_by_another(start, tmp_path):
    fault = {
        "call": "launch parity_decide",  # on whichever device comes so far first
        "after": 60,
        "times": 0,
        "error": "illegal address",
        "sticky": True,
        "once": str(tmp_path / "fired"),
    }
    daemon = start("scheduling.measure=false", devices=("fake:0", "fake:1"), faults=[fault])
    undecided = 0
    for number in range(300):
        data = digests(20, seed=number)
        answer = daemon.stub.Verify(parity_request(data, number), timeout=TIMEOUT_S)
        undecided += assert_right_or_undecided(answer, data)
        if (tmp_path / "fired").exists() and number > 100:
            break
    assert (tmp_path / "fired").exists(), "the fault did not happen"
    assert undecided == 0, "the other device had it"


def test_a_killed_worker_costs_no_verdict_and_service_is_back(start):
    daemon = start("scheduling.unserved_wait_s=30")
    (victim,) = daemon.workers()
    batches = [digests(300, seed=i) for i in range(400)]

    def ask(number):
        if number == 100:
            os.kill(victim, signal.SIGKILL)
        return daemon.stub.Verify(parity_request(batches[number], number), timeout=TIMEOUT_S)

    with ThreadPoolExecutor(8) as pool:
        for number, answer in enumerate(pool.map(ask, range(len(batches)))):
            assert_right_or_undecided(answer, batches[number])
    assert not alive(victim)
    until(lambda: daemon.workers() not in ([], [victim]))
    data = digests(77, seed=77)
    assert_right(daemon.stub.Verify(parity_request(data), timeout=TIMEOUT_S), data)


def test_health_tells_that_no_device_serves(start):
    daemon = start()
    with grpc.insecure_channel(daemon.ready_event()["health"][0]) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        watch = stub.Watch(health_pb2.HealthCheckRequest(service="verify/PARITY"), timeout=TIMEOUT_S)
        assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
        os.kill(daemon.workers()[0], signal.SIGKILL)
        assert next(watch).status == health_pb2.HealthCheckResponse.NOT_SERVING
        assert next(watch).status == health_pb2.HealthCheckResponse.SERVING, "and that it does again"
        watch.cancel()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stopping_finishes_what_was_accepted(gated, gate, number):
    daemon = gated()
    gate.close()
    data = digests(50, seed=1)
    calls = [daemon.stub.Verify.future(parity_request(data, i), timeout=TIMEOUT_S) for i in range(4)]
    requests = Requests()
    stream = daemon.stub.VerifyStream(requests, timeout=TIMEOUT_S)
    requests.put(parity_request(data, 9))
    until(lambda: accepted(daemon) == 50 * 5)
    daemon.process.send_signal(number)
    until(lambda: any(event["event"] == "draining" for event in daemon.logs()))
    with pytest.raises(grpc.RpcError) as refused:
        daemon.stub.Verify(parity_request(data), timeout=TIMEOUT_S)
    assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
    gate.open()
    for call in calls:
        assert_right(call.result(), data)
    assert_right(next(stream), data)
    with pytest.raises(grpc.RpcError) as ended:
        next(stream)
    assert ended.value.code() is grpc.StatusCode.UNAVAILABLE
    requests.put(None)
    assert daemon.stop(None) == 0
    draining = next(event for event in daemon.logs() if event["event"] == "draining")
    assert draining["in_flight"] == {"parity": 5}
    assert next(event for event in daemon.logs() if event["event"] == "stopped")["unfinished"] == {}


def test_stopping_is_bounded(start, tmp_path):
    fired = tmp_path / "fired"
    stuck = {"call": "launch parity_decide", "device": "fake:0", "after": 40, "delay_s": 600, "once": str(fired)}
    daemon = start(
        *ONE_AT_A_TIME, "server.drain_s=0.5", "devices.drain_timeout_s=0.5", devices=("fake:0",), faults=[stuck]
    )
    data = digests(10, seed=1)
    calls = []
    while not fired.exists():
        calls.append(daemon.stub.Verify.future(parity_request(data, len(calls)), timeout=TIMEOUT_S))
        until(lambda call=calls[-1]: call.done() or fired.exists())
    daemon.process.send_signal(signal.SIGTERM)
    assert daemon.stop(None) == 1
    stopped = next(event for event in daemon.logs() if event["event"] == "stopped")
    assert stopped["unfinished"]["parity"] >= 1
    for call in calls:
        if call.code() is grpc.StatusCode.OK:
            assert_right_or_undecided(call.result(), data)
        else:
            assert call.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
