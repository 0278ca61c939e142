"""What the client of ciphers refuses before it sends, and answers that do not fit their question."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import grpc
import numpy as np
import pytest

from node_adapter.client import CipherAlgorithm, CipherByteOrder, CipherClient, CipherMode, CipherScheme, Direction
from node_adapter.client._cipher_jobs import transformed
from node_adapter.client._cipher_stream import CipherStream
from node_adapter.errors import AnswerError, DeadlineError, RequestError
from verifier.v1 import cipher_pb2 as pb
from verifier.v1 import cipher_pb2_grpc, verifier_pb2

GCM = CipherScheme(CipherAlgorithm.AES, CipherMode.GCM)
CTR = CipherScheme(CipherAlgorithm.AES, CipherMode.CTR)


@pytest.fixture
def client():
    with CipherClient("127.0.0.1:1", timeout_s=0.5) as made:
        yield made


def test_each_mode_has_its_calls(client):
    with pytest.raises(RequestError, match="GCM goes through `seal` and `open`"):
        client.encrypt(1, GCM, b"data", bytes(12))
    for call in (lambda: client.seal(1, CTR, b"", bytes(16)), lambda: client.open(1, CTR, b"", bytes(16), bytes(16))):
        with pytest.raises(RequestError, match="CTR goes through `encrypt` and `decrypt`"):
            call()


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"ivs": [bytes(12)]}, "iv: 1 values, but the batch has 2 items"),
        ({"ivs": [bytes(12), bytes(11)]}, "iv: every value has 12 bytes"),
        ({"ivs": [bytes(12)] * 2, "tags": [bytes(16), bytes(15)]}, "tags: every value has 16 bytes"),
        ({"ivs": [bytes(12)] * 2, "aad": [b""]}, "aad: 1 values, but the batch has 2 items"),
    ],
)
def test_columns_that_do_not_fit_are_not_sent(client, fields, problem):
    with pytest.raises(RequestError, match=problem):
        client.transform(1, GCM, Direction.DECRYPT, [b"a", b"b"], **fields)


def test_nobody_answers(client):
    with pytest.raises(DeadlineError, match=r"no daemon answered at 127\.0\.0\.1:1 within 0\.5 s: .*refused"):
        client.create_key(CipherAlgorithm.AES, bytes(16))


class Counting(cipher_pb2_grpc.CipherServiceServicer):
    """Answers GetCiphers and counts."""

    def __init__(self) -> None:
        self.calls = 0

    def GetCiphers(self, request, context):  # noqa: N802
        self.calls += 1
        return pb.GetCiphersResponse()


def test_all_calls_go_to_one_daemon():
    """A handle is known to the daemon that gave it alone."""
    services, addresses, servers = [Counting(), Counting()], [], []
    for service in services:
        server = grpc.server(ThreadPoolExecutor(2))
        cipher_pb2_grpc.add_CipherServiceServicer_to_server(service, server)
        addresses.append(f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}")
        server.start()
        servers.append(server)
    with CipherClient(f"ipv4:{','.join(addresses)}") as client:
        for _ in range(10):
            client.ciphers()
    for server in servers:
        server.stop(None).wait()
    assert sorted(service.calls for service in services) == [0, 10]


def answer(
    items: int = 2, data: bytes = b"abc", offsets=(0, 1, 3), valid: bytes = b"\3", decided: bytes = b"\3", tags=b""
):
    column = verifier_pb2.Column(data=data, offsets=np.array(offsets, "<u4").tobytes())
    return pb.TransformResponse(items=items, data=column, valid=valid, decided=decided, tags=tags)


def test_an_answer_is_read():
    result = transformed(answer(valid=b"\1", offsets=(0, 3, 3)), 2)
    assert [result[0], result[1]] == [b"abc", b""]
    assert (result.valid.tolist(), result.decided.tolist(), len(result)) == ([True, False], [True, True], 2)


@pytest.mark.parametrize(
    "wrong",
    [
        answer(items=3),
        answer(offsets=(0, 1)),
        answer(offsets=(0, 1, 2)),
        answer(offsets=(0, 4, 3)),
        answer(offsets=(1, 1, 3)),
        answer(valid=b""),
        answer(decided=b""),
        answer(valid=b"\7"),
        answer(decided=b"\3\0"),
        answer(tags=bytes(16)),
        answer(tags=bytes(33)),
    ],
)
def test_an_answer_that_does_not_fit_is_not_used(wrong):
    with pytest.raises(AnswerError):
        transformed(wrong, 2)


def test_a_stream_that_ends_early_is_no_message():
    def call(requests, **_):
        return iter([pb.TransformStreamResponse(data=b"half")])

    stream = CipherStream(call, pb.TransformBegin(), [b"data"], None, "late")
    parts = iter(stream)
    assert next(parts) == b"half"
    with pytest.raises(AnswerError, match="before the message's last part"):
        next(parts)


def test_schemes_know_their_vectors():
    sizes = {
        (CipherAlgorithm.AES, CipherMode.ECB): 0,
        (CipherAlgorithm.AES, CipherMode.GCM): 12,
        (CipherAlgorithm.HIGHT, CipherMode.CBC): 8,
    }
    for (algorithm, mode), size in sizes.items():
        order = CipherByteOrder.LOW_FIRST if algorithm is CipherAlgorithm.HIGHT else CipherByteOrder.UNSPECIFIED
        assert CipherScheme(algorithm, mode, order).iv_bytes == size
    assert GCM.message(Direction.ENCRYPT).counter_format == 0
    assert CTR.message(Direction.ENCRYPT).counter_format == pb.COUNTER_FORMAT_FULL_BLOCK
