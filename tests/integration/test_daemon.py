"""A daemon in another process and a gRPC client in this one: answers, errors, health, what it says of itself."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np
import pytest
from _daemon_process import Requests, assert_right, bits, digests, parity_request, parity_scheme
from google.rpc import error_details_pb2, status_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from verifier.v1 import verifier_pb2 as pb

TIMEOUT_S = 60


def refused(call, request, **options):
    with pytest.raises(grpc.RpcError) as caught:
        call(request, timeout=TIMEOUT_S, **options)
    return caught.value


def test_verdicts(daemon):
    data = digests(1000, seed=1)
    answer = daemon.stub.Verify(parity_request(data, request_id=2**64 - 1), timeout=TIMEOUT_S)
    assert_right(answer, data)
    assert answer.request_id == 2**64 - 1
    assert answer.served_by == "parity@1.0.0#1"
    assert answer.device == "cpu"
    assert answer.timings.total_ns >= answer.timings.queue_ns > 0
    assert answer.timings.device_ns > 0


def test_one_bad_item_in_8192_leaves_the_others_valid(daemon):
    data = np.zeros((8192, 32), np.uint8)
    data[4711, 7] = 1
    answer = daemon.stub.Verify(parity_request(data), timeout=TIMEOUT_S)
    assert np.flatnonzero(~bits(answer.valid, 8192)).tolist() == [4711]


def test_messages_of_any_length(daemon):
    big = np.full(1 << 20, 3, np.uint8)
    data = np.concatenate([[2, 1], big]).astype(np.uint8)
    offsets = np.array([0, 1, 2, 2, 2 + big.size], "<u4")
    request = pb.VerifyRequest(
        items=4,
        scheme=parity_scheme(pb.INPUT_KIND_MESSAGE),
        input=pb.Column(data=data.tobytes(), offsets=offsets.tobytes()),
    )
    answer = daemon.stub.Verify(request, timeout=TIMEOUT_S)
    assert bits(answer.valid, 4).tolist() == [True, False, False, True]
    assert bits(answer.decided, 4).all()
    assert np.frombuffer(answer.problems.index, "<u4").tolist() == [2]
    assert list(answer.problems.code) == [pb.PROBLEM_CODE_INPUT_LENGTH]


BAD = [
    ("items", lambda r: setattr(r, "items", 0)),
    ("items", lambda r: setattr(r, "items", (1 << 20) + 1)),
    ("input.data", lambda r: setattr(r, "items", 3)),
    ("scheme.input_kind", lambda r: setattr(r.scheme, "input_kind", 99)),
    ("scheme.input_kind", lambda r: setattr(r.scheme, "input_kind", 0)),
    ("scheme.algorithm", lambda r: setattr(r.scheme, "algorithm", 99)),
    ("input.offsets", lambda r: setattr(r.input, "offsets", b"\0" * 5)),
    ("input.offsets", lambda r: setattr(r.input, "offsets", np.array([0, 64, 32], "<u4").tobytes())),
    ("priority", lambda r: setattr(r, "priority", 77)),
    ("key_table", lambda r: setattr(r, "key_table", b"x")),
]


@pytest.mark.parametrize(("field", "spoil"), BAD)
def test_bad_input_has_a_status_and_a_field_and_the_daemon_lives(daemon, field, spoil):
    request = parity_request(digests(2, seed=2))
    spoil(request)
    error = refused(daemon.stub.Verify, request)
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert error.details().startswith(f"{field}: ")
    details = dict(error.trailing_metadata())["grpc-status-details-bin"]
    bad = error_details_pb2.BadRequest()
    assert status_pb2.Status.FromString(details).details[0].Unpack(bad)
    assert bad.field_violations[0].field == field
    data = digests(5, seed=3)
    assert_right(daemon.stub.Verify(parity_request(data), timeout=TIMEOUT_S), data)


def test_what_is_not_served(daemon):
    request = parity_request(digests(1, seed=2))
    request.scheme.plugin = "parity@3.0.0"
    assert refused(daemon.stub.Verify, request).code() is grpc.StatusCode.FAILED_PRECONDITION
    digest = pb.DigestRequest(items=1, hash=pb.HASH_SM3, input=pb.Column(offsets=bytes(8)))
    assert refused(daemon.stub.Digest, digest).code() is grpc.StatusCode.FAILED_PRECONDITION
    assert refused(daemon.stub.ReleaseKeys, pb.ReleaseKeysRequest(key_set=5)).code() is grpc.StatusCode.NOT_FOUND


def test_bytes_that_are_no_request(daemon):
    call = daemon.channel.unary_unary("/verifier.v1.Verifier/Verify", lambda data: data, lambda data: data)
    error = refused(call, b"\xff\xff\xff")
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "not a VerifyRequest" in error.details()


def test_a_message_above_the_limit_is_refused(daemon):
    limits = daemon.stub.GetLimits(pb.GetLimitsRequest(), timeout=TIMEOUT_S)
    request = parity_request(digests(1, seed=1))
    request.input.data = bytes(limits.max_message_bytes)
    assert refused(daemon.stub.Verify, request).code() is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_batching_is_invisible_in_the_verdicts(daemon):
    """Many callers at once, of many sizes: each gets its own verdicts."""
    rng = np.random.default_rng(20260730)
    batches = [digests(int(n), seed=i) for i, n in enumerate(rng.integers(1, 700, 200))]

    def ask(number):
        return daemon.stub.Verify(parity_request(batches[number], request_id=number), timeout=TIMEOUT_S)

    with ThreadPoolExecutor(16) as pool:
        for number, answer in enumerate(pool.map(ask, range(len(batches)))):
            assert answer.request_id == number
            assert_right(answer, batches[number])


def test_a_stream_answers_every_request_by_its_id(daemon):
    batches = {i: digests(1 + 37 * i % 500, seed=i) for i in range(100)}
    requests = [parity_request(data, request_id=i) for i, data in batches.items()]
    wrong = pb.VerifyRequest(request_id=1000, items=0, scheme=parity_scheme())
    requests.insert(50, wrong)
    answers = list(daemon.stub.VerifyStream(iter(requests), timeout=TIMEOUT_S))
    assert len(answers) == 101
    by_id = {answer.request_id: answer for answer in answers}
    failure = by_id.pop(1000)
    assert failure.failure.code == grpc.StatusCode.INVALID_ARGUMENT.value[0]
    assert failure.failure.message.startswith("items: ")
    assert not failure.valid
    for number, data in batches.items():
        assert not by_id[number].HasField("failure")
        assert_right(by_id[number], data)


def test_a_stream_lives_while_its_client_thinks(daemon):
    requests = Requests()
    answers = daemon.stub.VerifyStream(requests, timeout=TIMEOUT_S)
    for number in range(3):
        data = digests(3, seed=number)
        requests.put(parity_request(data, request_id=number))
        assert_right(next(answers), data)
    requests.put(None)
    assert list(answers) == []


def test_a_slow_reader_is_held_back_by_the_streams_bound(daemon):
    """A client that sends far more than the bound before it reads anything still gets every answer."""
    batches = [digests(200, seed=i) for i in range(300)]
    answers = daemon.stub.VerifyStream(
        (parity_request(data, request_id=i) for i, data in enumerate(batches)), timeout=TIMEOUT_S
    )
    first = next(answers)
    rest = list(answers)
    assert sorted(answer.request_id for answer in [first, *rest]) == list(range(300))


def test_limits(daemon):
    limits = daemon.stub.GetLimits(pb.GetLimitsRequest(), timeout=TIMEOUT_S)
    assert limits.max_items == 1 << 20
    assert 0 < limits.max_batch_bytes < limits.max_message_bytes
    assert 1024 <= limits.preferred_items <= limits.max_items
    served = {(o.operation, o.algorithm): o for o in limits.operations}
    assert set(served) == {("verify", "PARITY"), ("digest", "PARITY")}
    assert served["verify", "PARITY"].served_by == "parity@1.0.0#1"
    assert served["verify", "PARITY"].devices == ["cpu"]
    assert len(served["verify", "PARITY"].digest) == 64


@pytest.mark.parametrize("listener", ["work", "health"])
def test_health(daemon, listener):
    address = daemon.address if listener == "work" else daemon.ready_event()["health"][0]
    with grpc.insecure_channel(address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        for service in ("", "verifier.v1.Verifier", "verify/PARITY", "digest/PARITY"):
            answer = stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=TIMEOUT_S)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING, service
        error = refused(stub.Check, health_pb2.HealthCheckRequest(service="verify/SM9"))
        assert error.code() is grpc.StatusCode.NOT_FOUND
        watch = stub.Watch(health_pb2.HealthCheckRequest(service=""), timeout=TIMEOUT_S)
        assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
        watch.cancel()


def test_reflection(daemon):
    stub = reflection_pb2_grpc.ServerReflectionStub(daemon.channel)
    request = reflection_pb2.ServerReflectionRequest(list_services="")
    (answer,) = stub.ServerReflectionInfo(iter([request]), timeout=TIMEOUT_S)
    names = {service.name for service in answer.list_services_response.service}
    assert {"verifier.v1.Verifier", "grpc.health.v1.Health"} <= names


def test_metrics(daemon):
    before = daemon.metrics()
    data = digests(100, seed=9)
    daemon.stub.Verify(parity_request(data), timeout=TIMEOUT_S)
    refused(daemon.stub.Verify, pb.VerifyRequest())
    after = daemon.metrics()

    def rise(name):
        return after.get(name, 0) - before.get(name, 0)

    valid = int((data.sum(axis=1) % 2 == 0).sum())
    assert rise('verifier_items_total{plugin="parity",verdict="valid"}') == valid
    assert rise('verifier_items_total{plugin="parity",verdict="invalid"}') == 100 - valid
    assert rise('verifier_requests_total{code="OK",rpc="Verify"}') == 1
    assert rise('verifier_requests_total{code="INVALID_ARGUMENT",rpc="Verify"}') == 1
    assert rise('verifier_batches_total{device="cpu",plugin="parity"}') == 1
    assert rise('verifier_total_seconds_count{plugin="parity"}') == 1
    assert after['verifier_plugin_state{plugin="parity",state="ACTIVE",version="1.0.0"}'] == 1
    assert after['verifier_device_up{device="cpu"}'] == 1
    assert after["verifier_start_seconds"] > 0
