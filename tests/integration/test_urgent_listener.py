"""The listener for urgent calls: a front end of its own, whatever becomes of the others."""

from __future__ import annotations

import os
import signal

import grpc
import pytest
from _daemon_process import Requests, alive, assert_right, digests, parity_request
from _front_ends import TIMEOUT_S, front_ends
from _waiting import until
from grpc_health.v1 import health_pb2, health_pb2_grpc

from verifier.bench.processes import children
from verifier.v1 import cipher_pb2, cipher_pb2_grpc
from verifier.v1 import verifier_pb2 as pb
from verifier.v1 import verifier_pb2_grpc as rpc


@pytest.fixture(params=[1, 2], ids=["itself", "front-ends"])
def daemon(start, tmp_path, request):
    address = f"unix:{tmp_path}/urgent.sock" if request.param == 1 else "127.0.0.1:0"
    made = start(f"server.processes={request.param}", f'server.urgent_listen=["{address}"]')
    made.processes = request.param
    return made


@pytest.fixture
def urgent(daemon):
    (ready,) = (event for event in daemon.logs() if event["event"] == "ready")
    (address,) = ready["urgent"]
    with grpc.insecure_channel(address) as channel:
        yield channel


def urgent_front_end(daemon) -> int:
    """Its process: the last one's."""
    number = 0 if daemon.processes == 1 else daemon.processes
    (pid,) = children(daemon.process.pid, f"verifier-front-end {number}")
    return pid


def test_it_serves_what_the_others_serve(daemon, urgent):
    assert len(front_ends(daemon)) == {1: 1, 2: 3}[daemon.processes]
    data = digests(50_000, seed=1)
    stub = rpc.VerifierStub(urgent)
    answers = [each.Verify(parity_request(data), timeout=TIMEOUT_S) for each in (daemon.stub, stub)]
    answers += list(stub.VerifyStream(iter([parity_request(data)]), timeout=TIMEOUT_S))
    for answer in answers:
        assert_right(answer, data)
    limits = [each.GetLimits(pb.GetLimitsRequest(), timeout=TIMEOUT_S) for each in (daemon.stub, stub)]
    assert limits[0] == limits[1]
    ciphers = cipher_pb2_grpc.CipherServiceStub(urgent).GetCiphers(cipher_pb2.GetCiphersRequest(), timeout=TIMEOUT_S)
    assert ciphers.max_items == limits[0].max_items
    health = health_pb2_grpc.HealthStub(urgent).Check(health_pb2.HealthCheckRequest(), timeout=TIMEOUT_S)
    assert health.status == health_pb2.HealthCheckResponse.SERVING


def test_it_serves_while_the_others_take_no_call(start, tmp_path):
    path = f"unix:{tmp_path}/urgent.sock"
    daemon = start("server.processes=2", f'server.urgent_listen=["{path}"]')
    others = [pid for number in (0, 1) for pid in children(daemon.process.pid, f"verifier-front-end {number}")]
    assert len(others) == 2
    data = digests(1000, seed=2)
    for pid in others:
        os.kill(pid, signal.SIGSTOP)
    try:
        waiting = daemon.stub.Verify.future(parity_request(data), timeout=TIMEOUT_S)
        with grpc.insecure_channel(path) as channel:
            stub = rpc.VerifierStub(channel)
            for _ in range(20):
                assert_right(stub.Verify(parity_request(data), timeout=TIMEOUT_S), data)
        assert not waiting.done()
    finally:
        for pid in others:
            os.kill(pid, signal.SIGCONT)
    assert_right(waiting.result(), data)


def test_one_that_dies_is_replaced_and_the_others_go_on(daemon, urgent):
    data = digests(1000, seed=3)
    stub = rpc.VerifierStub(urgent)
    assert_right(stub.Verify(parity_request(data), timeout=TIMEOUT_S), data)
    killed = urgent_front_end(daemon)
    os.kill(killed, signal.SIGKILL)
    assert_right(daemon.stub.Verify(parity_request(data), timeout=TIMEOUT_S), data)
    until(lambda: not alive(killed))
    answer = stub.Verify(parity_request(data), timeout=TIMEOUT_S, wait_for_ready=True)
    assert_right(answer, data)
    assert urgent_front_end(daemon) != killed


def test_it_drains_and_ends_with_the_daemon(daemon, urgent):
    front_end = urgent_front_end(daemon)
    stub = rpc.VerifierStub(urgent)
    requests = Requests()
    answers = stub.VerifyStream(iter(requests), timeout=TIMEOUT_S)
    data = digests(50_000, seed=4)
    requests.put(parity_request(data))
    assert_right(next(answers), data)
    assert daemon.stop() == 0
    with pytest.raises(grpc.RpcError) as caught:
        list(answers)
    assert (caught.value.code(), caught.value.details()) == (grpc.StatusCode.UNAVAILABLE, "the daemon is stopping")
    assert not alive(front_end)
