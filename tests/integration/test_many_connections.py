"""A thousand connections that idle and a hundred that work, some of them badly: nothing is left of them."""

from __future__ import annotations

import os
import resource
import signal
import socket
import struct
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from _daemon_process import ROOT, assert_right, digests, parity_request
from _front_ends import TIMEOUT_S, front_ends, mappings
from _waiting import until

from verifier.bench.processes import open_files
from verifier.v1 import verifier_pb2 as pb
from verifier.v1 import verifier_pb2_grpc as rpc

IDLE, BUSY, HALF_OPEN, SLOW = 1000, 100, 20, 10
CALLS = 10  # of each busy connection
FEW = 4  # descriptors that a process opens once, when it is first needed
SMALL, LARGE = 200, 50_000  # items; the large ones stay in a front end's region
OWN_CHANNEL = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1)]

# Its stream is in full swing when it is killed.
STREAMS_FOR_EVER = """
    import itertools, sys
    sys.path[:0] = ["tests/integration"]
    import grpc
    from _daemon_process import digests, parity_request
    from verifier.v1 import verifier_pb2_grpc as rpc

    data = digests(50_000, seed=3)
    stub = rpc.VerifierStub(grpc.insecure_channel(sys.argv[1]))
    for answer in stub.VerifyStream(parity_request(data, i) for i in itertools.count()):
        print(answer.items, flush=True)
"""


@pytest.fixture
def descriptors():
    """As many as this process may have: a connection takes one on each side."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 4 * IDLE:
        pytest.skip(f"a process may open {hard} files at most here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4 * IDLE), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _started_with_few(start, *settings: str):
    """A daemon from a shell whose own limit is less than a thousand connections need."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        return start(*settings)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("processes", [1, 2])
def test_nothing_is_left_of_a_thousand_connections(start, descriptors, processes):
    daemon = _started_with_few(start, f"server.processes={processes}", "server.max_streams=1000")
    pids = [daemon.process.pid, *front_ends(daemon), *daemon.workers()]
    data = digests(LARGE, seed=1)
    for _ in range(16):  # the workers map each front end's region when it first sends that much
        with grpc.insecure_channel(daemon.address, OWN_CHANNEL) as channel:
            _ask(channel, data)

    def held() -> list[tuple[int, int]]:
        return [(open_files(pid), mappings(pid, "memfd:")) for pid in pids]

    before = held()
    idle = [grpc.insecure_channel(daemon.address, OWN_CHANNEL) for _ in range(IDLE)]
    stubs = [rpc.VerifierStub(channel) for channel in idle]
    greetings = [stub.GetLimits.future(pb.GetLimitsRequest(), timeout=TIMEOUT_S) for stub in stubs]
    for greeting in greetings:
        assert greeting.result().max_items > 0
    assert sum(files for files, _ in held()) >= IDLE

    half_open = [_half_open(daemon.address) for _ in range(HALF_OPEN)]
    slow = [grpc.insecure_channel(daemon.address, OWN_CHANNEL) for _ in range(SLOW)]
    stop = threading.Event()
    unread = [rpc.VerifierStub(channel).VerifyStream(_requests(data, stop), timeout=TIMEOUT_S) for channel in slow]
    killed = [_stream_in_a_process(daemon.address) for _ in range(2)]
    with ThreadPoolExecutor(BUSY) as pool:
        assert sum(pool.map(lambda seed: _work(daemon.address, seed), range(BUSY))) == BUSY * CALLS
    for process in killed:
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
    # Those who idled through all that are served as before.
    for channel in idle[::100]:
        _ask(channel, data)

    stop.set()
    for stream in unread:
        stream.cancel()
    for channel in (*idle, *slow):
        channel.close()
    for half in half_open:
        half.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        half.close()
    until(lambda: daemon.metrics().get('verifier_rpcs_in_flight{rpc="VerifyStream"}', 0) == 0, "streams end")
    until(lambda: daemon.metrics().get('verifier_queue_items{plugin="parity"}', 0) == 0, "queues are empty")
    rest = f"files and mappings of each process are as before: {before}"
    until(lambda: all(f <= g + FEW and m <= n for (f, m), (g, n) in zip(held(), before, strict=True)), rest)
    # Every slot and place is free: more than fit at a time go through.
    calls = [daemon.stub.Verify.future(parity_request(data), timeout=TIMEOUT_S) for _ in range(64)]
    for call in calls:
        assert_right(call.result(), data)


def _half_open(address: str) -> socket.socket:
    host, port = address.rsplit(":", 1)
    half = socket.create_connection((host, int(port)))
    half.sendall(b"PRI * HTTP/2.0\r\n")  # half a preface, and silence
    return half


def _requests(data, stop: threading.Event):
    number = 0
    while not stop.is_set() and number < 500:
        number += 1
        yield parity_request(data, number)


def _stream_in_a_process(address: str) -> subprocess.Popen:
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(STREAMS_FOR_EVER), address],
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    while process.stdout.readline().strip() != b"50000":  # a full queue refuses some
        assert process.poll() is None
    return process


def _work(address: str, seed: int) -> int:
    """Calls one after the other on a connection of its own; how many came back right."""
    data = digests(SMALL, seed)
    with grpc.insecure_channel(address, OWN_CHANNEL) as channel:
        for _ in range(CALLS):
            _ask(channel, data)
    return CALLS


def _ask(channel: grpc.Channel, data) -> None:
    """A call that comes back right, after as many refusals as it takes while the queue is full."""
    stub = rpc.VerifierStub(channel)
    for _ in range(1000):
        try:
            answer = stub.Verify(parity_request(data), timeout=TIMEOUT_S)
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:
                raise
            time.sleep(0.05)
        else:
            return assert_right(answer, data)
    raise AssertionError("the queue stays full")
