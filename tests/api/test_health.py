"""The health service: what it says, to whom it says it when, and that nobody who asks can stop it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from verifier.api import Health, Listener, RpcServer
from verifier.api._watchers import Statuses

TIMEOUT_S = 60
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN


@pytest.fixture
def health():
    made = Health()
    yield made
    made.close()


@pytest.fixture
def address(health):
    def add(server: grpc.Server) -> tuple[str, ...]:
        health.add_to(server)
        return ("grpc.health.v1.Health",)

    listener = Listener("health.listen", ("127.0.0.1:0",))
    server = RpcServer(listener, add, threads=2, max_calls=4096, max_message_bytes=8192, keepalive_s=30)
    server.start()
    yield server.addresses[0]
    server.stop(0)


@pytest.fixture
def stub(address):
    with grpc.insecure_channel(address) as channel:
        yield health_pb2_grpc.HealthStub(channel)


def ask(service: str) -> health_pb2.HealthCheckRequest:
    return health_pb2.HealthCheckRequest(service=service)


def test_a_watcher_is_told_now_and_of_every_change(health, stub):
    whole, one, later = (stub.Watch(ask(name), timeout=TIMEOUT_S) for name in ("", "verify/SM2", "verify/NEW"))
    assert [next(call).status for call in (whole, one, later)] == [NOT_SERVING, UNKNOWN, UNKNOWN]
    health.update({"verify/SM2": ["cpu"]})
    assert [next(call).status for call in (whole, one)] == [SERVING, SERVING]
    health.update({"verify/SM2": ["cpu"]})  # nothing new
    health.update({"verify/SM2": [], "verify/NEW": ["cpu"]})
    assert [next(call).status for call in (one, later)] == [NOT_SERVING, SERVING]
    health.stopping()
    assert [next(call).status for call in (whole, later)] == [NOT_SERVING, NOT_SERVING]
    health.update({"verify/SM2": ["cpu"]})
    assert stub.Check(ask("verify/SM2"), timeout=TIMEOUT_S).status == NOT_SERVING
    for call in (whole, one, later):
        call.cancel()


def test_watchers_that_come_and_leave_at_once_stop_nothing(health, address):
    """With the library's own servicer some hundred of these leave the whole server without its thread."""

    def come_and_go(number: int) -> None:
        with grpc.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)]) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            for turn in range(60):
                call = stub.Watch(ask("" if turn % 2 else f"service {number}"), timeout=TIMEOUT_S)
                if turn % 3:
                    next(call)
                call.cancel()

    threads = [threading.Thread(target=come_and_go, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    turns = 0
    while any(thread.is_alive() for thread in threads):
        turns += 1
        health.update({"verify/SM2": ["cpu"] if turns % 2 else []})
        threads[0].join(0.001)
    with grpc.insecure_channel(address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        assert stub.Check(ask(""), timeout=TIMEOUT_S).status in (SERVING, NOT_SERVING)
    end = threading.Event()
    for _ in range(600):
        if health._statuses.watching() == 0:
            break
        end.wait(0.05)
    assert health._statuses.watching() == 0, "who left is forgotten"


class Ends:
    """Calls' ends, for a table without a server."""

    def __init__(self) -> None:
        self.callbacks = []

    def add(self, callback) -> bool:
        self.callbacks.append(callback)
        return True


def test_a_watcher_that_does_not_read_delays_nobody_and_gets_the_newest():
    with ThreadPoolExecutor(4) as pool:
        statuses, ends = Statuses(pool, 0), Ends()
        stuck, reads, got, others = threading.Event(), threading.Event(), [], []

        def slow(status) -> None:
            got.append(status)
            if status == 1:
                stuck.set()
                assert reads.wait(TIMEOUT_S)

        statuses.watch("a", ends.add, slow)
        told = threading.Event()
        statuses.watch("a", ends.add, lambda status: (others.append(status), status == 9 and told.set()))
        statuses.update({"a": 1})
        assert stuck.wait(TIMEOUT_S)
        for status in range(2, 10):
            statuses.update({"a": status})  # returns although nobody reads
        assert told.wait(TIMEOUT_S)
        reads.set()
    assert got == [0, 1, 9], "what was overtaken is not sent"
    assert (others[0], others[-1], others == sorted(others)) == (0, 9, True)


def test_a_call_that_was_over_before_it_began_is_forgotten():
    with ThreadPoolExecutor(1) as pool:
        statuses, sent = Statuses(pool, 0), []
        statuses.watch("a", lambda callback: False, sent.append)
        assert (sent, statuses.watching()) == ([None], 0)


def test_an_end_is_told_once_and_nothing_after_it():
    with ThreadPoolExecutor(1) as pool:
        statuses, ends, sent = Statuses(pool, 0), Ends(), []
        statuses.watch("a", ends.add, sent.append)
        for _ in range(2):
            ends.callbacks[0]()
        statuses.update({"a": 5})
        assert (sent, statuses.watching()) == ([0, None], 0)


def test_a_watcher_that_cannot_be_told_is_given_up():
    def fail(status) -> None:
        if status is not None:
            raise RuntimeError("gone")

    with ThreadPoolExecutor(1) as pool:
        statuses, ends = Statuses(pool, 0), Ends()
        statuses.watch("a", ends.add, fail)
        assert statuses.watching() == 0


def test_an_update_under_way_does_not_undo_the_end(health):
    """Whoever tells of devices is not who stops the daemon: it is NOT_SERVING whichever of them is in between."""
    told = []
    begun, go_on = threading.Event(), threading.Event()

    def mirror(operations, stopping):
        told.append((dict(operations), stopping))
        if operations:
            begun.set()
            assert go_on.wait(TIMEOUT_S)

    health.mirror(mirror)
    updating = threading.Thread(target=health.update, args=({"verify/SM2": ["cpu"]},))
    stopping = threading.Thread(target=health.stopping)
    updating.start()
    assert begun.wait(TIMEOUT_S)
    stopping.start()
    stopping.join(0.5)  # which it need not be over in
    go_on.set()
    for thread in (updating, stopping):
        thread.join(TIMEOUT_S)
    assert health.state == "stopping"
    assert set(health._statuses.all().values()) == {NOT_SERVING}
    assert told[-1] == ({}, True)
