"""Block ciphers through the daemon, one call a message or one call for many, against independent implementations."""

from __future__ import annotations

import asyncio
import itertools
import random
import threading
from collections.abc import Iterator

import grpc
import numpy as np
import pytest
from _cipher_references import REFERENCES, cbc, ctr, ecb, gcm, hight
from _cipher_schemes import CTR, GCM, scheme_of
from _daemon_process import DaemonProcess
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from node_adapter.client import (
    AsyncCipherClient,
    CipherAlgorithm,
    CipherByteOrder,
    CipherClient,
    CipherMode,
    CipherScheme,
    Column,
    CounterFormat,
    Direction,
)
from node_adapter.errors import AuthenticationError, RefusedError, RequestError
from verifier.ciphers import CIPHERS
from verifier.drivers import list_devices

SEED = 5
LOADED = (CipherAlgorithm.AES, CipherAlgorithm.KUZNYECHIK, CipherAlgorithm.HIGHT)


@pytest.fixture
def aes(client):
    """An AES key: its handle and its bytes."""
    key = random.Random(SEED).randbytes(16)
    handle = client.create_key(CipherAlgorithm.AES, key)
    yield handle, key
    client.delete_key(handle)


@pytest.mark.parametrize("algorithm", LOADED, ids=lambda algorithm: algorithm.name)
def test_every_mode_at_every_length(client, algorithm):
    """Messages that end within, at and behind a block, a cell of 512 bytes, a stripe; every size of key."""
    generator = random.Random(SEED)
    block, make = REFERENCES[algorithm.name]
    for i, size in enumerate([0, 1, block - 1, block, block + 1, 511, 512, 513, 1024, 33 * block, 2048 + 3]):
        key = generator.randbytes(CIPHERS[algorithm.name].key_bytes[i % len(CIPHERS[algorithm.name].key_bytes)])
        data, iv, encrypt = generator.randbytes(size), generator.randbytes(block), make(key)
        whole = data[: size // block * block]
        handle = client.create_key(algorithm, key)
        for mode, plain, wanted in (
            (CipherMode.CTR, data, ctr(encrypt, iv, data)),
            (CipherMode.ECB, whole, ecb(encrypt, block, whole)),
            (CipherMode.CBC, whole, cbc(encrypt, iv, whole)),
        ):
            scheme, vector = scheme_of(algorithm, mode), b"" if mode is CipherMode.ECB else iv
            assert client.encrypt(handle, scheme, plain, vector) == wanted, (SEED, mode, size)
            assert client.decrypt(handle, scheme, wanted, vector) == plain, (SEED, mode, size)
        if algorithm is not CipherAlgorithm.HIGHT:
            scheme, nonce, aad = scheme_of(algorithm, CipherMode.GCM), iv[:12], generator.randbytes(size % 40)
            body, tag = client.seal(handle, scheme, data, nonce, aad)
            assert (body, tag) == gcm(encrypt, nonce, data, aad), (SEED, size)
            assert client.open(handle, scheme, body, nonce, tag, aad) == data, (SEED, size)
        client.delete_key(handle)


def test_many_messages_with_their_own_keys(client):
    """Keys of three sizes; of every third message the tag is wrong, and its neighbours are decrypted."""
    generator = np.random.default_rng(SEED)
    secrets = [generator.bytes(size) for size in (16, 24, 32) * 40]
    handles = [client.create_key(CipherAlgorithm.AES, secret) for secret in secrets]
    items = 3000
    index = generator.integers(0, len(handles), items).astype(np.uint32)
    data = [generator.bytes(int(size)) for size in generator.integers(0, 513, items)]
    nonces = [generator.bytes(12) for _ in range(items)]
    aad = [generator.bytes(int(size)) for size in generator.integers(0, 30, items)]
    sealed = client.transform(handles, GCM, Direction.ENCRYPT, data, nonces, key_index=index, aad=aad)
    assert sealed.valid.all()
    wanted = [AESGCM(secrets[k]).encrypt(n, d, a) for k, n, d, a in zip(index, nonces, data, aad, strict=True)]
    assert [sealed[i] + sealed.tags[i].tobytes() for i in range(items)] == wanted
    tags = sealed.tags.copy()
    tags[::3, 5] ^= 1
    bodies = [sealed[i] for i in range(items)]
    opened = client.transform(handles, GCM, Direction.DECRYPT, bodies, nonces, key_index=index, aad=aad, tags=tags)
    assert opened.decided.all()
    assert opened.valid.tolist() == [i % 3 != 0 for i in range(items)]
    assert [opened[i] for i in range(items)] == [b"" if i % 3 == 0 else data[i] for i in range(items)]
    for handle in handles:
        client.delete_key(handle)


def test_long_messages_under_one_key(client, aes):
    """One request, lengths from nothing to hundreds of stripes: their hashes are folded side by side."""
    handle, key = aes
    generator = np.random.default_rng(SEED)
    sizes = [0, 1, 512, 513, 0, 32 * 512, 33 * 512 + 7, 1100 * 512, 100, 3 * 512]
    data = [generator.bytes(size) for size in sizes]
    nonces = [generator.bytes(12) for _ in sizes]
    aad = [generator.bytes(i) for i in range(len(sizes))]
    sealed = client.transform(handle, GCM, Direction.ENCRYPT, data, nonces, aad=aad)
    got = [sealed[i] + sealed.tags[i].tobytes() for i in range(len(sizes))]
    assert got == [AESGCM(key).encrypt(n, d, a) for n, d, a in zip(nonces, data, aad, strict=True)]
    tags = sealed.tags.copy()
    tags[[0, 7]] ^= 255
    bodies = [sealed[i] for i in range(len(sizes))]
    opened = client.transform(handle, GCM, Direction.DECRYPT, bodies, nonces, aad=aad, tags=tags)
    assert opened.valid.tolist() == [i not in (0, 7) for i in range(len(sizes))]
    assert [opened[i] for i in range(len(sizes))] == [b"" if i in (0, 7) else d for i, d in enumerate(data)]


def test_long_chains_under_one_key(client, aes):
    handle, key = aes
    generator = np.random.default_rng(SEED)
    data = [generator.bytes(16 * blocks) for blocks in (0, 1, 32, 33, 100, 64)]
    ivs = [generator.bytes(16) for _ in data]
    scheme = CipherScheme(CipherAlgorithm.AES, CipherMode.CBC)
    wanted = [
        Cipher(algorithms.AES(key), modes.CBC(iv)).encryptor().update(d) for iv, d in zip(ivs, data, strict=True)
    ]
    done = client.transform(handle, scheme, Direction.ENCRYPT, data, ivs)
    assert [done[i] for i in range(len(data))] == wanted
    back = client.transform(handle, scheme, Direction.DECRYPT, wanted, ivs)
    assert [back[i] for i in range(len(data))] == data


@pytest.mark.parametrize("bits", [8, 32, 64, 128])
@pytest.mark.parametrize("before", [1, 31, 700])
def test_counters_wrap(client, aes, bits, before):
    handle, key = aes
    data = bytes(range(256)) * 100
    iv = (((1 << bits) - before) % (1 << 128)).to_bytes(16, "big")
    assert client.encrypt(handle, CTR, data, iv) == Cipher(algorithms.AES(key), modes.CTR(iv)).encryptor().update(
        data
    )


def test_ranges_of_a_message_are_done_apart(client, aes):
    handle, key = aes
    data, iv = random.Random(SEED).randbytes(5000), b"\xff" * 16
    wanted = Cipher(algorithms.AES(key), modes.CTR(iv)).encryptor().update(data)
    cuts = [0, 1, 31, 32, 100, 311, -(-len(data) // 16)]
    parts = [
        client.encrypt(handle, CTR, data[16 * begin : 16 * end], iv, first_block=begin)
        for begin, end in itertools.pairwise(cuts)
    ]
    assert b"".join(parts) == wanted


def test_gost_counters_are_half_a_block(client):
    key, iv, data = bytes(range(32)), bytes.fromhex("1234567890abcef0"), bytes(range(250)) * 3
    handle = client.create_key(CipherAlgorithm.KUZNYECHIK, key)
    scheme = CipherScheme(CipherAlgorithm.KUZNYECHIK, CipherMode.CTR, counter_format=CounterFormat.GOST_HALF_BLOCK)
    wanted = ctr(REFERENCES["KUZNYECHIK"][1](key), iv + bytes(8), data)
    assert client.encrypt(handle, scheme, data, iv) == wanted
    with pytest.raises(RefusedError, match="16 bytes; 1 items in CTR need 8"):
        client.transform(handle, scheme, Direction.ENCRYPT, [data], _column(iv + iv))
    client.delete_key(handle)


def _column(value: bytes) -> Column:
    return Column(np.frombuffer(value, np.uint8), 1, len(value))


@pytest.mark.parametrize("size", [8, 1024])
def test_both_byte_orders_of_hight(client, size):
    key, data = bytes(range(16)), random.Random(SEED).randbytes(size)
    handle = client.create_key(CipherAlgorithm.HIGHT, key)
    for order, reverse in ((CipherByteOrder.LOW_FIRST, False), (CipherByteOrder.HIGH_FIRST, True)):
        scheme = CipherScheme(CipherAlgorithm.HIGHT, CipherMode.ECB, order)
        assert client.encrypt(handle, scheme, data) == ecb(hight(key, reverse=reverse), 8, data)
    client.delete_key(handle)


def test_the_asyncio_client_does_the_same(cipher_daemon, monkeypatch):
    """Short messages in one call, and longer ones, here those beyond a few kilobytes, as streams."""
    monkeypatch.setattr("node_adapter.client._cipher.unary_bytes", lambda _: 5000)
    key, iv = random.Random(SEED).randbytes(16), bytes(range(16))

    def failing() -> Iterator[bytes]:
        yield bytes(1000)
        raise OSError("the disk is gone")

    async def work() -> None:
        async with AsyncCipherClient(cipher_daemon.address, timeout_s=120) as client:
            handle = await client.create_key(CipherAlgorithm.AES, key)
            for size in (0, 100, 100_000):
                data = random.Random(size).randbytes(size)
                wanted = Cipher(algorithms.AES(key), modes.CTR(iv)).encryptor().update(data)
                assert await client.encrypt(handle, CTR, data, iv) == wanted
                assert await client.decrypt(handle, CTR, wanted, iv) == data
                body, tag = await client.seal(handle, GCM, data, iv[:12], b"aad")
                assert body + tag == AESGCM(key).encrypt(iv[:12], data, b"aad")
                assert await client.open(handle, GCM, body, iv[:12], tag, b"aad") == data
                with pytest.raises(AuthenticationError):
                    await client.open(handle, GCM, body, iv[:12], tag, b"other")
            many = await client.transform(handle, GCM, Direction.ENCRYPT, [b"a", b"bc"], [iv[:12], iv[4:]])
            assert many[1] + many.tags[1].tobytes() == AESGCM(key).encrypt(iv[4:], b"bc", b"")
            with pytest.raises(OSError, match="the disk is gone"):
                await client.stream(handle, CTR, Direction.ENCRYPT, failing(), iv=iv).read()
            with pytest.raises(RequestError, match="GCM goes through"):
                await client.encrypt(handle, GCM, b"", iv)
            assert (await client.ciphers()).max_short_bytes == 512
            await client.delete_key(handle)
            for call in (
                client.seal(handle, GCM, b"", iv[:12]),
                client.stream(handle, CTR, Direction.ENCRYPT, [b"a"], iv=iv).read(),
            ):
                with pytest.raises(RefusedError, match=str(handle)):
                    await call

    asyncio.run(work())


def test_a_wrong_tag_gives_nothing(client, aes):
    handle, _ = aes
    for size in (5, 5000):
        body, tag = client.seal(handle, GCM, bytes(size), bytes(12), b"aad")
        for changed in ({"tag": tag[:-1] + b"\0"}, {"nonce": bytes(11) + b"\1"}, {"aad": b"abd"}):
            given = {"nonce": bytes(12), "tag": tag, "aad": b"aad", **changed}
            with pytest.raises(AuthenticationError):
                client.open(handle, GCM, body, **given)


def test_bytes_that_are_no_request_are_refused(cipher_daemon):
    call = cipher_daemon.channel.unary_unary("/verifier.v1.CipherService/Transform")
    with pytest.raises(grpc.RpcError) as refused:
        call(b"\xff\xff", timeout=60)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_what_is_served_is_listed(client):
    answer = client.ciphers()
    loaded = {CipherAlgorithm(cipher.algorithm): cipher.served_by for cipher in answer.ciphers}
    assert {algorithm for algorithm, label in loaded.items() if label} == set(LOADED)
    assert loaded[CipherAlgorithm.AES].startswith("aes@")
    assert (answer.max_short_bytes, answer.max_held_bytes) == (512, 1 << 20)


def test_callers_at_once_get_their_own(client):
    """Batches of several callers are merged, those under one key and those of many."""
    generator = random.Random(SEED)
    keys = [generator.randbytes(16) for _ in range(3)]
    handles = [client.create_key(CipherAlgorithm.AES, key) for key in keys]
    wrong = []

    def call(number: int) -> None:
        own = random.Random(number)
        for size in (own.randrange(600) for _ in range(12)):
            data, iv, which = own.randbytes(size), own.randbytes(16), own.randrange(3)
            wanted = Cipher(algorithms.AES(keys[which]), modes.CTR(iv)).encryptor().update(data)
            if client.encrypt(handles[which], CTR, data, iv) != wanted:
                wrong.append((number, size))

    threads = [threading.Thread(target=call, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    for handle in handles:
        client.delete_key(handle)


@pytest.mark.gpu
def test_a_gpu_gives_the_same(tmp_path):
    """Short and long messages in every mode, and a stream whose hashes are folded."""
    if "cuda:0" not in {device.id for device in list_devices()}:
        pytest.skip("there is no cuda:0")
    daemon = DaemonProcess(tmp_path, ["aes"], devices=("cuda:0",), cache=None)
    try:
        with CipherClient(daemon.address, timeout_s=120) as client:
            generator = random.Random(SEED)
            key = generator.randbytes(32)
            handle = client.create_key(CipherAlgorithm.AES, key)
            for size in (0, 1, 512, 513, 40_000, 3_000_016):
                data, iv = generator.randbytes(size), generator.randbytes(16)
                body, tag = client.seal(handle, GCM, data, iv[:12], b"aad")
                assert body + tag == AESGCM(key).encrypt(iv[:12], data, b"aad"), size
                assert client.open(handle, GCM, body, iv[:12], tag, b"aad") == data
                for mode, whole in ((modes.CTR(iv), data), (modes.CBC(iv), data[: size // 16 * 16])):
                    scheme = scheme_of(CipherAlgorithm.AES, CipherMode[mode.name])
                    wanted = Cipher(algorithms.AES(key), mode).encryptor().update(whole)
                    assert client.encrypt(handle, scheme, whole, iv) == wanted, (mode.name, size)
                    assert client.decrypt(handle, scheme, wanted, iv) == whole, (mode.name, size)
            data = generator.randbytes((17 << 20) + 5)
            chunks = (data[at : at + (1 << 20)] for at in range(0, len(data), 1 << 20))
            with client.stream(handle, GCM, Direction.ENCRYPT, chunks, iv=bytes(12)) as stream:
                assert b"".join(stream) + stream.tag == AESGCM(key).encrypt(bytes(12), data, b"")
            assert stream.device == "cuda:0"
    finally:
        daemon.stop()
