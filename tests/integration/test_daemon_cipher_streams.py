"""Messages in chunks: the same as in one piece, whatever the chunks; and what ends a stream."""

from __future__ import annotations

import queue
import random
from collections.abc import Iterator

import grpc
import pytest
from _cipher_schemes import CBC, CTR, ECB, GCM, scheme_of
from _daemon_process import DaemonProcess
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from node_adapter.client import CipherAlgorithm, CipherClient, CipherMode, Direction
from node_adapter.errors import CapacityError, DeadlineError, RefusedError
from verifier.v1 import cipher_pb2 as pb
from verifier.v1 import cipher_pb2_grpc as rpc

SEED = 6
KEY = random.Random(SEED).randbytes(32)
HIGHT = scheme_of(CipherAlgorithm.HIGHT, CipherMode.CTR)
HELD = 1 << 20  # the fixture's cipher.stream_held_bytes


@pytest.fixture(scope="module")
def keys(client):
    made = {
        CipherAlgorithm.AES: client.create_key(CipherAlgorithm.AES, KEY),
        CipherAlgorithm.HIGHT: client.create_key(CipherAlgorithm.HIGHT, KEY[:16]),
    }
    yield made
    for handle in made.values():
        client.delete_key(handle)


@pytest.fixture(scope="module")
def stub(cipher_daemon):
    return rpc.CipherServiceStub(cipher_daemon.channel)


def pieces(data: bytes, size: int) -> Iterator[bytes]:
    """Chunks of a size, with empty ones between."""
    for at in range(0, len(data), size):
        yield data[at : at + size]
        if at % 3 == 0:
            yield b""


@pytest.mark.parametrize("scheme", [ECB, CTR, CBC, HIGHT], ids=lambda s: f"{s.algorithm.name}-{s.mode.name}")
def test_chunks_of_any_size_are_the_message(client, keys, scheme):
    key, block = keys[scheme.algorithm], scheme.cipher.block_bytes
    data = random.Random(SEED).randbytes(2051 if scheme.mode is CipherMode.CTR else 2048 + block)
    iv = random.Random(SEED).randbytes(scheme.iv_bytes)
    whole = client.encrypt(key, scheme, data, iv)
    for size in (len(data), 1000, 513, 512, 511, 100, block, 7):
        for direction, given, wanted in ((Direction.ENCRYPT, data, whole), (Direction.DECRYPT, whole, data)):
            with client.stream(key, scheme, direction, pieces(given, size), iv=iv, timeout_s=120) as stream:
                assert b"".join(stream) == wanted, (direction, size)
    for size in range(1, 6):
        with client.stream(key, scheme, Direction.ENCRYPT, pieces(data[: 5 * block], size), iv=iv) as stream:
            assert b"".join(stream) == client.encrypt(key, scheme, data[: 5 * block], iv)


@pytest.mark.parametrize("length", [0, 1, 511, 512, 513, 3 * 512, 40 * 512 + 9])
def test_gcm_in_chunks(client, keys, length):
    key, data, nonce = keys[CipherAlgorithm.AES], random.Random(length).randbytes(length), b"twelve bytes"
    sealed = AESGCM(KEY).encrypt(nonce, data, b"aad")
    body, tag = sealed[:-16], sealed[-16:]
    for size in (max(length, 1), 1000, 512, 77):
        with client.stream(key, GCM, Direction.ENCRYPT, pieces(data, size), iv=nonce, aad=b"aad") as stream:
            assert (b"".join(stream), stream.tag) == (body, tag), size
            assert stream.served_by.startswith("aes@")
        for direction, wanted in ((Direction.DECRYPT, data), (Direction.AUTHENTICATE, b"")):
            with client.stream(key, GCM, direction, pieces(body, size), iv=nonce, aad=b"aad", tag=tag) as stream:
                assert (b"".join(stream), stream.authentic) == (wanted, True), size
            wrong = bytes([tag[0] ^ 128]) + tag[1:]
            with client.stream(key, GCM, direction, pieces(body, size), iv=nonce, aad=b"aad", tag=wrong) as stream:
                assert (b"".join(stream), stream.authentic) == (b"", False), size


def test_hashes_are_folded_on_the_way(client, keys):
    """More than 16 MiB: what waits to be folded is bounded."""
    key, data = keys[CipherAlgorithm.AES], random.Random(SEED).randbytes((17 << 20) + 5)
    with client.stream(key, GCM, Direction.ENCRYPT, pieces(data, 1 << 20), iv=bytes(12)) as stream:
        body = b"".join(stream)
        assert body + stream.tag == AESGCM(KEY).encrypt(bytes(12), data, b"")
    # As the contract says that what is too long to be kept back is decrypted.
    assert client.open(key, GCM, body, bytes(12), stream.tag) == data


def test_a_range_in_chunks(client, keys):
    data, iv = random.Random(SEED).randbytes(4000), b"\xff" * 15 + b"\xf0"
    wanted = Cipher(algorithms.AES(KEY), modes.CTR(iv)).encryptor().update(data)
    key = keys[CipherAlgorithm.AES]
    with client.stream(key, CTR, Direction.ENCRYPT, pieces(data[1600:], 333), iv=iv, first_block=100) as stream:
        assert b"".join(stream) == wanted[1600:]


def begin(keys, scheme=GCM, direction=Direction.ENCRYPT, **fields) -> pb.TransformStreamRequest:
    made = {"scheme": scheme.message(direction), "key": keys[scheme.algorithm], "iv": bytes(scheme.iv_bytes)}
    return pb.TransformStreamRequest(begin=pb.TransformBegin(**{**made, **fields}))


def chunk(data: bytes = b"", last: bool = False) -> pb.TransformStreamRequest:
    return pb.TransformStreamRequest(data=data, last=last)


WRONG = {
    "nothing": (lambda keys: [], "begin: missing"),
    "no begin": (lambda keys: [chunk(b"a", True)], "begin: missing"),
    "begin with data": (
        lambda keys: [pb.TransformStreamRequest(begin=begin(keys).begin, data=b"a")],
        "begin: comes alone",
    ),
    "begin twice": (lambda keys: [begin(keys), begin(keys)], "begin: comes once"),
    "no last": (lambda keys: [begin(keys), chunk(b"a")], "last: the stream ended without it"),
    "end in a block": (
        lambda keys: [begin(keys, CBC), chunk(bytes(16)), chunk(b"a", True)],
        "data: 17 bytes end in a block of 1",
    ),
    "long chunk": (
        lambda keys: [begin(keys), chunk(bytes((24 << 20) + 1))],
        "data: a chunk of 25165825 bytes; at most",
    ),
    "iv": (lambda keys: [begin(keys, iv=bytes(16))], "iv: 16 bytes; GCM takes 12"),
    "no tag": (lambda keys: [begin(keys, direction=Direction.DECRYPT)], "tag: 0 bytes; DECRYPT in GCM takes 16"),
    "a tag": (lambda keys: [begin(keys, tag=bytes(16))], "tag: 16 bytes; ENCRYPT in GCM takes 0"),
    "aad": (lambda keys: [begin(keys, CTR, aad=b"a")], "aad: must be empty: CTR authenticates nothing"),
    "long aad": (lambda keys: [begin(keys, aad=bytes((24 << 20) + 1))], "aad: 25165825 bytes; at most 25165824"),
    "first block": (lambda keys: [begin(keys, first_block=1)], "first_block: 1; only messages in CTR"),
    "authenticate in ctr": (
        lambda keys: [begin(keys, CTR, Direction.AUTHENTICATE)],
        "scheme.direction: AUTHENTICATE is not accepted",
    ),
    "priority": (lambda keys: [begin(keys, priority=9)], "priority: 9 is not a value"),
    "too long to keep back": (
        lambda keys: [begin(keys, direction=Direction.DECRYPT, tag=bytes(16)), chunk(bytes(HELD)), chunk(b"a")],
        f"data: {HELD + 1} bytes and more, but a stream keeps back at most {HELD} .* AUTHENTICATE, and then in CTR",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_named(stub, keys, name):
    requests, problem = WRONG[name]
    with pytest.raises(grpc.RpcError, match=problem) as refused:
        list(stub.TransformStream(iter(requests(keys)), timeout=60))
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_nothing_of_a_message_comes_before_its_tag_was_checked(stub, keys):
    sealed = AESGCM(KEY).encrypt(bytes(12), bytes(5000), b"")
    requests = [begin(keys, direction=Direction.DECRYPT, tag=sealed[-16:])]
    requests += [chunk(sealed[:3000]), chunk(sealed[3000:-16]), chunk(last=True)]
    answers = list(stub.TransformStream(iter(requests), timeout=60))
    assert [len(answer.data) for answer in answers] == [0, 0, 5000]
    assert [answer.last for answer in answers] == [False, False, True]


class Fed:
    """Chunks that a test sends one by one."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue = queue.SimpleQueue()
        self.put = self._queue.put

    def __iter__(self) -> Iterator[pb.TransformStreamRequest]:
        return iter(self._queue.get, None)


def test_plaintext_kept_back_is_bounded_over_all_streams(stub, keys):
    """The daemon keeps 1.5 MiB: a second megabyte has no room until the first stream is at its end."""
    sealed = AESGCM(KEY).encrypt(bytes(12), bytes(HELD), b"")
    start = begin(keys, direction=Direction.DECRYPT, tag=sealed[-16:])
    whole = [start, chunk(sealed[:-16]), chunk(last=True)]
    first = Fed()
    first.put(start)
    first.put(chunk(sealed[:-16]))
    call = stub.TransformStream(iter(first), timeout=60)
    assert next(call).data == b""
    with pytest.raises(grpc.RpcError, match=r"cipher\.held_bytes") as refused:
        list(stub.TransformStream(iter(whole), timeout=60))
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    first.put(chunk(last=True))
    first.put(None)
    assert len(list(call)[-1].data) == HELD
    assert len(list(stub.TransformStream(iter(whole), timeout=60))[-1].data) == HELD


def test_a_key_that_is_deleted_ends_its_streams(client, stub):
    handle = client.create_key(CipherAlgorithm.AES, KEY)
    fed = Fed()
    fed.put(begin({CipherAlgorithm.AES: handle}, CTR))
    fed.put(chunk(bytes(1024)))
    call = stub.TransformStream(iter(fed), timeout=60)
    assert len(next(call).data) == 1024
    client.delete_key(handle)  # an idle stream does not hold it
    fed.put(chunk(bytes(1024), last=True))
    with pytest.raises(grpc.RpcError, match=f"key: {handle} is no key of this caller") as refused:
        next(call)
    assert refused.value.code() is grpc.StatusCode.NOT_FOUND
    fed.put(None)
    with pytest.raises(RefusedError, match=str(handle)):
        list(client.stream(handle, CTR, Direction.ENCRYPT, [b"a"], iv=bytes(16)))


def test_a_stream_that_is_given_up_lets_its_key_go(client):
    handle = client.create_key(CipherAlgorithm.AES, KEY)
    stream = client.stream(handle, CTR, Direction.ENCRYPT, (bytes(100_000) for _ in range(1000)), iv=bytes(16))
    assert next(iter(stream))
    stream.close()
    client.delete_key(handle)


def test_a_refusal_reaches_the_caller_while_it_sends(client):
    handle = client.create_key(CipherAlgorithm.AES, KEY)
    client.delete_key(handle)
    for _ in range(40):
        with pytest.raises(RefusedError, match=f"key: {handle}"):
            list(client.stream(handle, CTR, Direction.ENCRYPT, (bytes(1000) for _ in range(20)), iv=bytes(16)))


def test_an_error_of_the_source_reaches_the_caller(client, keys):
    def failing() -> Iterator[bytes]:
        yield bytes(600)
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        list(client.stream(keys[CipherAlgorithm.AES], CTR, Direction.ENCRYPT, failing(), iv=bytes(16)))


def test_a_deadline_ends_a_stream(client, keys):
    fed = Fed()
    with pytest.raises(DeadlineError):
        list(client.stream(keys[CipherAlgorithm.AES], CTR, Direction.ENCRYPT, iter(fed), iv=bytes(16), timeout_s=0.2))
    fed.put(None)


def test_front_ends_pass_streams_on(tmp_path):
    """Those without a deadline too; and one beyond the limit is told when to come again."""
    daemon = DaemonProcess(tmp_path, ["hight"], "cipher.max_streams=1", "server.processes=2", cache=None)
    try:
        with CipherClient(daemon.address) as client:
            key = client.create_key(CipherAlgorithm.HIGHT, bytes(16))
            data = random.Random(SEED).randbytes(5000)
            with client.stream(key, HIGHT, Direction.ENCRYPT, pieces(data, 777), iv=bytes(8)) as stream:
                assert b"".join(stream) == client.encrypt(key, HIGHT, data, bytes(8))
            fed = Fed()
            fed.put(bytes(512))
            first = iter(client.stream(key, HIGHT, Direction.ENCRYPT, iter(fed), iv=bytes(8)))
            assert len(next(first)) == 512
            with pytest.raises(CapacityError, match="1 calls are in flight"):
                list(client.stream(key, HIGHT, Direction.ENCRYPT, [b"a"], iv=bytes(8)))
            fed.put(None)
            assert list(first) == []
    finally:
        daemon.stop()
