"""Columns in memory of clients on the same host: the same answers as over gRPC, and nothing a client can break."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap

import grpc
import numpy as np
import pytest
from _daemon_process import ROOT, assert_right, bits, digests, parity_request, parity_scheme
from _front_ends import MEMORY, SEALS, TIMEOUT_S, Registrar, mappings, memfd, shared_memory
from _waiting import until

from node_adapter.client import SharedMemory
from node_adapter.errors import UnavailableError
from verifier.bench.processes import open_files
from verifier.regions import map_memory
from verifier.v1 import verifier_pb2 as pb

LARGE = 50_000


@pytest.fixture(params=[pytest.param(1, id="one process"), pytest.param(2, id="front ends", marks=pytest.mark.long)])
def daemon(start, tmp_path, request):
    return start(f"server.processes={request.param}", *shared_memory(tmp_path))


@pytest.fixture
def address(tmp_path) -> str:
    return f"unix:{tmp_path}/memory.sock"


def shared_request(region: int, items: int, at: int = 0, nbytes: int | None = None) -> pb.VerifyRequest:
    place = pb.SharedBytes(region=region, offset=at, bytes=32 * items if nbytes is None else nbytes)
    return pb.VerifyRequest(request_id=1, items=items, scheme=parity_scheme(), input=pb.Column(shared_data=place))


def refusal(daemon, request) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as caught:
        daemon.stub.Verify(request, timeout=TIMEOUT_S)
    return caught.value.code(), caught.value.details()


def test_answers_are_those_of_grpc(daemon, address):
    """Bit for bit, fixed and variable width, offsets beside the data or in the message, unary and on a stream."""
    registrar = Registrar(address)
    fd = memfd(MEMORY)
    memory = map_memory(fd, MEMORY)
    region = registrar.ask((fd,), register_bytes=MEMORY).region
    data = digests(LARGE, seed=1)
    at = 12_345  # places need no alignment
    memory[at : at + data.size] = data.ravel()
    own = daemon.stub.Verify(parity_request(data), timeout=TIMEOUT_S)
    assert_right(own, data)
    request = shared_request(region, LARGE, at)
    answers = [daemon.stub.Verify(request, timeout=TIMEOUT_S)]
    answers += daemon.stub.VerifyStream(iter([request]), timeout=TIMEOUT_S)
    texts = [np.random.default_rng(i).bytes(i % 90) for i in range(4000)]
    joined = np.frombuffer(b"".join(texts), np.uint8)
    offsets = np.concatenate([[0], np.cumsum([len(text) for text in texts])]).astype("<u4")
    memory[: joined.size] = joined
    memory[4 << 20 : (4 << 20) + offsets.nbytes] = offsets.view(np.uint8)
    variable = pb.VerifyRequest(items=4000, scheme=parity_scheme(pb.INPUT_KIND_MESSAGE))
    variable.input.data, variable.input.offsets = joined.tobytes(), offsets.tobytes()
    other = daemon.stub.Verify(variable, timeout=TIMEOUT_S)
    variable.input.ClearField("data")
    variable.input.shared_data.CopyFrom(pb.SharedBytes(region=region, offset=0, bytes=joined.size))
    more = [daemon.stub.Verify(variable, timeout=TIMEOUT_S)]
    variable.input.ClearField("offsets")
    variable.input.shared_offsets.CopyFrom(pb.SharedBytes(region=region, offset=4 << 20, bytes=offsets.nbytes))
    more.append(daemon.stub.Verify(variable, timeout=TIMEOUT_S))
    for expected, got in ((own, answers), (other, more)):
        for answer in got:
            assert (answer.valid, answer.decided, answer.problems) == (
                expected.valid,
                expected.decided,
                expected.problems,
            )
            assert answer.columns_digest == expected.columns_digest
    registrar.close()
    os.close(fd)


def test_places_outside_the_region_are_refused(daemon, address):
    registrar = Registrar(address)
    fd = memfd(MEMORY)
    region = registrar.ask((fd,), register_bytes=MEMORY).region
    for at, nbytes in ((MEMORY - 31, 32), (MEMORY, 32), (1 << 63, 32), ((1 << 64) - 16, 32), (0, (1 << 64) - 1)):
        code, text = refusal(daemon, shared_request(region, 1, at, nbytes))
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert text.startswith("input.shared_data: bytes ")
    code, text = refusal(daemon, shared_request(region + 1, 1))
    assert (code, text) == (grpc.StatusCode.NOT_FOUND, f"input.shared_data.region: {region + 1} is not registered")
    both = shared_request(region, 1)
    both.input.data = bytes(32)
    code, text = refusal(daemon, both)
    assert (code, text) == (
        grpc.StatusCode.INVALID_ARGUMENT,
        "input.data: is given, and input.shared_data too",
    )
    registrar.close()
    os.close(fd)


def test_memory_that_is_not_safe_to_read_is_refused(daemon, address, tmp_path):
    """What can be made smaller, what is no memfd, what is too small, and what comes without a descriptor."""
    registrar = Registrar(address)
    plain = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    os.truncate(plain, MEMORY)
    fds = [memfd(MEMORY, seals=0), plain, memfd(4096)]
    problems = ["seal it with F_SEAL_SHRINK", "it is not a memfd", f"{MEMORY}, but the memory has 4096 bytes"]
    for fd, problem in zip(fds, problems, strict=True):
        answer = registrar.ask((fd,), register_bytes=MEMORY)
        assert answer.code == grpc.StatusCode.INVALID_ARGUMENT.value[0]
        assert problem in answer.message
        os.close(fd)
    assert "no descriptor" in registrar.ask(register_bytes=MEMORY).message
    assert "not a region of this connection" in registrar.ask(unregister_region=5).message
    registrar.close()


def test_a_client_cannot_make_its_memory_smaller(daemon, address):
    registrar = Registrar(address)
    fd = memfd(MEMORY)
    region = registrar.ask((fd,), register_bytes=MEMORY).region
    with pytest.raises(PermissionError):
        os.truncate(fd, 0)
    # Pages that are punched out are read as zeros: even sums, all valid.
    libc_fallocate(fd, MEMORY)
    answer = daemon.stub.Verify(shared_request(region, LARGE), timeout=TIMEOUT_S)
    assert bits(answer.valid, LARGE).all()
    registrar.close()
    os.close(fd)


def libc_fallocate(fd: int, nbytes: int) -> None:
    import ctypes

    keep_size, punch_hole = 1, 2
    size = ctypes.c_long(nbytes)
    assert ctypes.CDLL(None).fallocate(fd, keep_size | punch_hole, ctypes.c_long(0), size) == 0


def test_memory_of_another_user_is_refused(daemon, address, tmp_path):
    """A descriptor that another user made and passed on."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to be two users")
    fd = memfd(MEMORY, seals=0)
    os.fchown(fd, 65534, 65534)
    import fcntl

    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SEALS)
    registrar = Registrar(address)
    answer = registrar.ask((fd,), register_bytes=MEMORY)
    assert answer.code == grpc.StatusCode.PERMISSION_DENIED.value[0]
    assert "belongs to another user" in answer.message
    registrar.close()
    os.close(fd)


def test_regions_are_bounded_in_number_and_bytes(daemon, address):
    registrar = Registrar(address)
    fds = [memfd(MEMORY) for _ in range(4)]
    kept = [registrar.ask((fd,), register_bytes=MEMORY).region for fd in fds[:3]]
    full = registrar.ask((fds[3],), register_bytes=MEMORY)
    assert (full.code, full.message) == (
        grpc.StatusCode.RESOURCE_EXHAUSTED.value[0],
        "this user's 3 regions are registered, which is the limit",
    )
    assert registrar.ask(unregister_region=kept[0]).code == 0
    big = memfd(4 * MEMORY)
    assert "bytes of regions are taken" in registrar.ask((big,), register_bytes=4 * MEMORY).message
    larger = memfd(5 * MEMORY + 1)
    refused = registrar.ask((larger,), register_bytes=5 * MEMORY + 1)
    assert refused.code == grpc.StatusCode.INVALID_ARGUMENT.value[0]
    assert "shared_memory.max_region_bytes" in refused.message
    assert registrar.ask((fds[3],), register_bytes=MEMORY).code == 0
    registrar.close()
    for fd in (*fds, big, larger):
        os.close(fd)


def test_a_region_in_use_lives_until_its_batches_are_done(start, tmp_path, address):
    """Unregistered while a batch is in flight: the batch is finished; then the memory is gone everywhere."""
    gate = tmp_path / "gate"  # while it is there the batch is in flight
    held = {"call": "launch parity_decide", "device": "fake:0", "times": 0, "held": str(gate)}
    options = ("server.processes=1", "scheduling.measure=false", "devices.batch_limit_s=60")
    daemon = start(*options, *shared_memory(tmp_path), devices=("fake:0",), faults=[held])
    gate.touch()
    registrar = Registrar(address)
    fd = memfd(MEMORY)
    data = digests(3000, seed=2)
    map_memory(fd, MEMORY)[: data.size] = data.ravel()
    region = registrar.ask((fd,), register_bytes=MEMORY).region
    call = daemon.stub.Verify.future(shared_request(region, 3000), timeout=TIMEOUT_S)
    until(lambda: daemon.metrics().get('verifier_queue_items{plugin="parity"}', 0) > 0)
    assert registrar.ask(unregister_region=region).code == 0
    assert refusal(daemon, shared_request(region, 3000))[0] is grpc.StatusCode.NOT_FOUND
    assert daemon.metrics()["verifier_shared_regions"] == 1
    gate.unlink()
    assert_right(call.result(), data)
    (worker,) = daemon.workers()
    for pid in (daemon.process.pid, worker):
        until(lambda pid=pid: mappings(pid, "verifier-test") == 0)
    until(lambda: daemon.metrics()["verifier_shared_regions"] == 0)
    registrar.close()
    os.close(fd)


CLIENT = """
import sys, time
sys.path[:0] = [{folder!r}]
from _front_ends import Registrar, memfd
import grpc
from verifier.v1 import verifier_pb2 as pb, verifier_pb2_grpc as rpc
registrar = Registrar({memory!r})
region = registrar.ask((memfd({nbytes}),), register_bytes={nbytes}).region
place = pb.SharedBytes(region=region, offset=0, bytes=32 * {items})
request = pb.VerifyRequest(items={items}, scheme=pb.Scheme(plugin="parity", input_kind=2),
                           input=pb.Column(shared_data=place))
stub = rpc.VerifierStub(grpc.insecure_channel({address!r}))
def endless():
    while True:
        yield request
for answer in stub.VerifyStream(endless()):
    assert answer.items == {items}, answer
    print("answered", flush=True)
"""


def test_clients_that_are_killed_leave_nothing_behind(daemon, address):
    """kill -9 amid batches, several times: regions, mappings and descriptors as before."""
    (worker,) = daemon.workers()
    daemon.stub.Verify(parity_request(digests(LARGE, 3)), timeout=TIMEOUT_S)
    before = open_files(daemon.process.pid)
    code = CLIENT.format(
        folder=str(ROOT / "tests" / "integration"),
        memory=address,
        nbytes=MEMORY,
        items=LARGE,
        address=daemon.address,
    )
    for _ in range(3):
        client = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, cwd=ROOT)
        assert client.stdout is not None
        assert client.stdout.readline() == b"answered\n"
        client.send_signal(signal.SIGKILL)
        client.wait()
        client.stdout.close()
    until(lambda: daemon.metrics()["verifier_shared_regions"] == 0)
    for pid in (daemon.process.pid, worker):
        until(lambda pid=pid: mappings(pid, "verifier-test") == 0)
    until(lambda: open_files(daemon.process.pid) <= before)
    assert_right(daemon.stub.Verify(parity_request(digests(50, 4)), timeout=TIMEOUT_S), digests(50, 4))


def test_half_a_registration_and_rubbish(daemon, address):
    """A client that stops amid a message, one that sends no message, and one that sends too much."""
    before = open_files(daemon.process.pid)
    for data in (b"\x08\0\0", b"\x04\0\0\0\xff\xff\xff\xff", b"\xff\xff\xff\xff"):
        registrar = Registrar(address)
        registrar.socket.sendall(data)
        registrar.close()
    until(lambda: open_files(daemon.process.pid) <= before)
    registrar = Registrar(address)
    fd = memfd(MEMORY)
    assert registrar.ask((fd,), register_bytes=MEMORY).code == 0
    registrar.close()
    os.close(fd)


def test_it_is_off_by_default(start, tmp_path, address):
    daemon = start("server.processes=1")
    assert not (tmp_path / "memory.sock").exists()
    assert refusal(daemon, shared_request(1, 1))[0] is grpc.StatusCode.NOT_FOUND
    with pytest.raises(UnavailableError, match="no shared memory at"):
        SharedMemory(address, MEMORY)
