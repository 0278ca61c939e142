"""Front-end processes: the same verdicts, faults that stay where they are, and nothing that is left behind."""

from __future__ import annotations

import os
import signal
import socket
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np
import pytest
from _daemon_process import (
    DaemonProcess,
    Requests,
    accepted,
    alive,
    assert_right,
    digests,
    parity_request,
    parity_scheme,
)
from _front_ends import TIMEOUT_S, front_ends, mappings
from _waiting import until

from verifier.bench.processes import open_files
from verifier.v1 import cipher_pb2, cipher_pb2_grpc
from verifier.v1 import verifier_pb2 as pb
from verifier.v1 import verifier_pb2_grpc as rpc

TWO = "server.processes=2"
LARGE = 50_000  # items: 1.6 MB, which stay in the front end's region
OWN_CHANNEL = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1)]


def channels(daemon, count: int) -> list[grpc.Channel]:
    """Connections of their own, which the system spreads over the front ends."""
    return [grpc.insecure_channel(daemon.address, OWN_CHANNEL) for _ in range(count)]


def stub_of_each(daemon) -> dict[int, rpc.VerifierStub]:
    """One stub for each front end, found by where its connections end."""
    found: dict[int, rpc.VerifierStub] = {}
    kept = []
    for _ in range(64):
        before = {pid: open_files(pid) for pid in front_ends(daemon)}
        channel = channels(daemon, 1)[0]
        stub = rpc.VerifierStub(channel)
        stub.GetLimits(pb.GetLimitsRequest(), timeout=TIMEOUT_S)
        rise = {pid: open_files(pid) - before[pid] for pid in before}
        pid = max(rise, key=lambda pid: rise[pid])
        if pid not in found and rise[pid] > 0:
            found[pid] = stub
            kept.append(channel)
        else:
            channel.close()
            time.sleep(0.05)  # or the next one's descriptor hides the end of this one's
        if len(found) == len(before):
            return found
    raise AssertionError("the system gave all connections to one front end")


def test_verdicts_are_the_same_whichever_process_takes_the_call(start):
    """Every column call, large and small, fixed and variable, through one process, and through each of two."""
    data, small = digests(LARGE, seed=1), digests(33, seed=2)
    texts = [np.random.default_rng(i).bytes(i % 90) for i in range(3000)]
    offsets = np.concatenate([[0], np.cumsum([len(t) for t in texts])]).astype("<u4").tobytes()
    variable = pb.VerifyRequest(
        items=len(texts),
        scheme=parity_scheme(pb.INPUT_KIND_MESSAGE),
        input=pb.Column(data=b"".join(texts), offsets=offsets),
    )
    wrong = parity_request(small)
    wrong.input.data = wrong.input.data[:-1]

    def ask(stub):
        answers = [stub.Verify(request, timeout=TIMEOUT_S) for request in (parity_request(data), variable)]
        answers += list(stub.VerifyStream(iter([parity_request(small)]), timeout=TIMEOUT_S))
        with pytest.raises(grpc.RpcError) as caught:
            stub.Verify(wrong, timeout=TIMEOUT_S)
        failure = next(iter(stub.VerifyStream(iter([wrong]), timeout=TIMEOUT_S))).failure
        for answer in answers:
            answer.ClearField("timings")
        return answers, caught.value.code(), caught.value.details(), failure

    one = start("server.processes=1")
    expected = ask(one.stub)
    assert_right(expected[0][0], data)
    one.stop()
    two = start(TWO)
    for stub in stub_of_each(two).values():
        assert ask(stub) == expected


@pytest.mark.long
def test_handles_work_through_every_front_end(tmp_path):
    """What the core keeps is one: keys of ciphers are made through one front end and used through the other."""
    daemon = DaemonProcess(tmp_path, ["aes"], TWO, cache=None)
    stubs = [cipher_pb2_grpc.CipherServiceStub(channel) for channel in channels(daemon, 12)]
    algorithm = cipher_pb2.CIPHER_ALGORITHM_AES
    key = stubs[0].CreateKey(cipher_pb2.CreateKeyRequest(algorithm=algorithm, key=bytes(16)), timeout=TIMEOUT_S).key
    scheme = cipher_pb2.CipherScheme(
        algorithm=algorithm, mode=cipher_pb2.CIPHER_MODE_ECB, direction=cipher_pb2.DIRECTION_ENCRYPT
    )
    request = cipher_pb2.TransformRequest(items=1, scheme=scheme, keys=[key], data=pb.Column(data=bytes(16)))
    answers = {stub.Transform(request, timeout=TIMEOUT_S).data.data for stub in stubs}
    assert answers == {bytes.fromhex("66e94bd4ef8a2c3b884cfa59ca342b2e")}  # FIPS 197's zero key and block
    stubs[-1].DeleteKey(cipher_pb2.DeleteKeyRequest(key=key), timeout=TIMEOUT_S)
    for stub in stubs:
        with pytest.raises(grpc.RpcError) as caught:
            stub.Transform(request, timeout=TIMEOUT_S)
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    daemon.stop()


def test_a_front_end_that_dies_takes_only_its_own_calls_with_it(start):
    """kill -9 under load: its clients get UNAVAILABLE and may try again, the others notice nothing, nothing leaks."""
    daemon = start(TWO)
    data = digests(LARGE, seed=3)
    each = stub_of_each(daemon)
    victim, other = each
    outcomes: dict[int, list[grpc.StatusCode]] = {victim: [], other: []}
    stop = threading.Event()

    def load(pid: int) -> None:
        while not stop.is_set():
            call = each[pid].Verify.future(parity_request(data), timeout=TIMEOUT_S)
            outcomes[pid].append(call.code())
            if call.code() is grpc.StatusCode.OK:
                assert_right(call.result(), data)
            else:
                time.sleep(0.01)

    with ThreadPoolExecutor(8) as pool:
        futures = [pool.submit(load, pid) for pid in each for _ in range(4)]
        try:
            until(lambda: len(outcomes[victim]) > 8 and len(outcomes[other]) > 8)
            os.kill(victim, signal.SIGKILL)
            until(lambda: grpc.StatusCode.UNAVAILABLE in outcomes[victim])
            at = {pid: len(outcomes[pid]) for pid in each}
            until(lambda: outcomes[victim][at[victim] :].count(grpc.StatusCode.OK) > 8)
            until(lambda: len(outcomes[other]) > at[other] + 8)
        finally:
            stop.set()
        for future in futures:
            future.result()
    assert set(outcomes[other]) == {grpc.StatusCode.OK}
    assert set(outcomes[victim]) == {grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE}
    until(lambda: len(front_ends(daemon)) == 2)
    assert victim not in front_ends(daemon)
    (worker,) = daemon.workers()
    # The dead one's region has gone from core and worker; the others' are there.
    until(lambda: mappings(daemon.process.pid, "verifier-region") == 2)
    until(lambda: mappings(worker, "verifier-region") <= 2)
    until(lambda: daemon.metrics()["verifier_front_ends"] == 2)
    metrics = daemon.metrics()
    assert metrics["verifier_front_ends_lost_total"] == 1
    until(lambda: daemon.metrics().get('verifier_queue_items{plugin="parity"}', 0) == 0)
    for stub in stub_of_each(daemon).values():
        assert_right(stub.Verify(parity_request(data), timeout=TIMEOUT_S), data)
    assert daemon.stop() == 0


def test_front_ends_end_with_the_core(start):
    daemon = start(TWO)
    processes = [*front_ends(daemon), *daemon.workers()]
    assert len(processes) == 3
    daemon.stop(signal.SIGKILL)
    until(lambda: not any(alive(pid) for pid in processes))


def test_draining_works_across_all_front_ends_with_one_report(start):
    """What was accepted is answered, whichever front end has it; streams end with UNAVAILABLE; the status is 0."""
    slow = {"call": "launch parity_decide", "device": "fake:0", "times": 0, "delay_s": 0.2}
    daemon = start(TWO, "scheduling.measure=false", devices=("fake:0",), faults=[slow])
    data = digests(100, seed=4)
    stubs = list(stub_of_each(daemon).values())
    calls = [stub.Verify.future(parity_request(data), timeout=TIMEOUT_S) for stub in stubs for _ in range(3)]
    feeds = [Requests() for _ in stubs]
    streams = [stub.VerifyStream(feed, timeout=TIMEOUT_S) for stub, feed in zip(stubs, feeds, strict=True)]
    for feed, stream in zip(feeds, streams, strict=True):
        feed.put(parity_request(data))
        assert_right(next(stream), data)
        feed.put(parity_request(data, 2))
    until(lambda: accepted(daemon) == 100 * (len(calls) + 2 * len(streams)), "all of it has arrived")
    stopping = threading.Thread(target=daemon.stop)
    stopping.start()
    for call in calls:
        assert_right(call.result(), data)
    for stream in streams:
        assert_right(next(stream), data)
        with pytest.raises(grpc.RpcError) as caught:
            next(stream)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    stopping.join()
    assert daemon.process.returncode == 0
    (report,) = [event for event in daemon.logs() if event["event"] == "stopped"]
    assert report["unfinished"] == {}
    for feed in feeds:
        feed.put(None)


@pytest.mark.long
def test_a_slow_reader_holds_up_only_itself_and_a_bounded_number_of_batches(start):
    """A client that sends and never reads: flow control stops it, its columns' memory is bounded, others go on."""
    daemon = start(TWO, "server.stream_in_flight=4")
    data = digests(LARGE, seed=5)
    sent = []

    def endless():
        while len(sent) < 500:
            sent.append(1)
            yield parity_request(data, len(sent))

    slow = channels(daemon, 1)[0]
    stream = rpc.VerifierStub(slow).VerifyStream(endless(), timeout=TIMEOUT_S)
    for stub in stub_of_each(daemon).values():
        assert_right(stub.Verify(parity_request(data), timeout=TIMEOUT_S), data)
    # The gRPC library takes answers by itself while there are few; what bounds it is read from the requests sent.
    time.sleep(0.5)
    assert len(sent) < 500 or next(stream).items == LARGE
    stream.cancel()
    slow.close()
    until(lambda: daemon.metrics().get('verifier_queue_items{plugin="parity"}', 0) == 0)


def test_clients_that_vanish_leave_nothing_behind(start):
    """Half-open connections, and clients that reset theirs amid a stream: descriptors and places as before."""
    daemon = start(TWO)
    data = digests(LARGE, seed=6)
    for stub in stub_of_each(daemon).values():
        assert_right(stub.Verify(parity_request(data), timeout=TIMEOUT_S), data)
    processes = [daemon.process.pid, *front_ends(daemon), *daemon.workers()]

    def settled() -> list[int]:
        return [open_files(pid) for pid in processes]

    time.sleep(0.5)
    before = settled()
    host, port = daemon.address.rsplit(":", 1)
    for _ in range(20):
        half = socket.create_connection((host, int(port)))
        half.sendall(b"PRI * HTTP/2.0\r\n")  # half a preface, and silence
        half.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        half.close()
    for channel in channels(daemon, 12):
        stub = rpc.VerifierStub(channel)
        stream = stub.VerifyStream((parity_request(data, i) for i in range(1000)), timeout=TIMEOUT_S)
        assert next(stream).items == LARGE
        channel.close()
    until(lambda: all(now <= then + 1 for now, then in zip(settled(), before, strict=True)))
    until(lambda: daemon.metrics().get('verifier_rpcs_in_flight{rpc="VerifyStream"}', 0) == 0)
    until(lambda: daemon.metrics().get('verifier_queue_items{plugin="parity"}', 0) == 0)
    # Every place is free: more bytes than a region has still go through.
    for stub in stub_of_each(daemon).values():
        calls = [stub.Verify.future(parity_request(data), timeout=TIMEOUT_S) for _ in range(64)]
        for call in calls:
            assert_right(call.result(), data)


def test_a_second_daemon_on_the_port_is_refused(start):
    daemon = start(TWO)
    with pytest.raises(AssertionError, match="is another process there"):
        start(TWO, f'server.listen=["{daemon.address}"]')
    assert_right(daemon.stub.Verify(parity_request(digests(3, 7)), timeout=TIMEOUT_S), digests(3, 7))


@pytest.mark.long
def test_a_unix_socket_is_served_by_a_front_end(start, tmp_path):
    daemon = start(TWO, f'server.listen=["unix:{tmp_path}/work.sock", "127.0.0.1:0"]')
    data = digests(LARGE, seed=8)
    assert daemon.address == f"unix:{tmp_path}/work.sock"
    assert_right(daemon.stub.Verify(parity_request(data), timeout=TIMEOUT_S), data)
    for pid in front_ends(daemon):
        os.kill(pid, signal.SIGKILL)
    until(lambda: daemon.metrics()["verifier_front_ends_lost_total"] == 2 and len(front_ends(daemon)) == 2)
    answer = daemon.stub.Verify(parity_request(data), timeout=TIMEOUT_S, wait_for_ready=True)
    assert_right(answer, data)
