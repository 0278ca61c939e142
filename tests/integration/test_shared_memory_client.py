"""The client's shared memory: places for what lies there or fits, bytes for the rest, and nothing stays taken."""

from __future__ import annotations

import asyncio
import contextlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from _daemon_process import DaemonProcess
from _front_ends import MEMORY, shared_memory

from node_adapter.client import (
    Algorithm,
    AsyncVerifierClient,
    InputKind,
    KeyEncoding,
    Scheme,
    SharedMemory,
    SignatureEncoding,
    VerifierClient,
    _shared_memory,
)
from node_adapter.errors import CapacityError, RefusedError, RequestError
from verifier.bench.signatures import make_signatures

SM2 = Scheme(Algorithm.SM2, InputKind.DIGEST, SignatureEncoding.RAW_RS, KeyEncoding.RAW_XY)


@pytest.fixture
def address(tmp_path) -> str:
    return f"unix:{tmp_path}/memory.sock"


@pytest.fixture
def sm2(tmp_path, monkeypatch):
    monkeypatch.setattr(_shared_memory, "_LEAST_LENT_BYTES", 64 << 10)  # as small as these batches are
    daemon = DaemonProcess(tmp_path, ["sm2"], "server.processes=1", *shared_memory(tmp_path), cache=None)
    yield daemon
    daemon.stop()


def test_the_client(tmp_path, address):
    """It sends places for what lies in its memory and bytes for the rest, also to a daemon started anew."""

    def begin() -> DaemonProcess:
        return DaemonProcess(tmp_path, ["sm2"], "server.processes=1", *shared_memory(tmp_path), cache=None)

    daemon = begin()
    made = make_signatures("SM2", 2048, seed=5, keys=16, fault_share=0.2)
    with SharedMemory(address, MEMORY) as memory:
        signatures = memory.array[: made.signatures.size].reshape(made.signatures.shape)
        signatures[:] = made.signatures
        assert memory.place_of(signatures.reshape(-1)).bytes == signatures.size
        assert memory.place_of(made.keys.reshape(-1)) is None
        with VerifierClient(daemon.address, shared_memory=memory) as client:
            for values in (signatures, made.signatures):
                verdicts = client.verify(SM2, made.digests, values, made.keys)
                np.testing.assert_array_equal(verdicts.valid, made.valid)
        daemon.stop()
        assert memory.place_of(signatures.reshape(-1)) is None
        again = begin()
        assert memory.place_of(signatures.reshape(-1)).bytes == signatures.size
        with VerifierClient(again.address, shared_memory=memory) as client:
            verdicts = client.verify(SM2, made.digests, signatures, made.keys)
            np.testing.assert_array_equal(verdicts.valid, made.valid)
        with pytest.raises(CapacityError, match="bytes of regions are taken"):
            SharedMemory(address, 5 * MEMORY)
    again.stop()


@pytest.fixture
def lent(monkeypatch):
    """Whether each request was lent room."""
    found = []
    lend = SharedMemory.lend

    def noted(*arguments):
        loan = lend(*arguments)
        found.append(loan is not None)
        return loan

    monkeypatch.setattr(SharedMemory, "lend", noted)
    return found


@pytest.mark.parametrize(("room", "lends"), [(1 << 20, True), (150_000, False)])
def test_a_clients_own_room(sm2, address, lent, room, lends):
    """What lies elsewhere goes through it, or as bytes where there is no room; all of it is back in the end."""
    sets = [make_signatures("SM2", 1000, seed=seed, keys=16, fault_share=0.2) for seed in range(4)]
    with SharedMemory(address, 4096, room=room) as memory:
        assert memory.array.size == 4096
        with VerifierClient(sm2.address, shared_memory=memory) as client:

            def right(made) -> None:
                verdicts = client.verify(SM2, made.digests, made.signatures, made.keys)
                np.testing.assert_array_equal(verdicts.valid, made.valid)

            with ThreadPoolExecutor(4) as pool:
                list(pool.map(right, sets * 6))
            assert lent == [lends] * 24
            right(sets[0].part(0, 8))  # a message carries it as well
            assert not lent[-1]
        assert memory.lent_bytes == 0


def test_who_finds_no_room_sends_bytes(sm2, address, lent):
    made = make_signatures("SM2", 1000, seed=1, keys=16, fault_share=0.2)
    with (
        SharedMemory(address, 0, room=200_000) as memory,
        VerifierClient(sm2.address, shared_memory=memory) as client,
    ):
        other = memory.lend([np.zeros(100_000, np.uint8)])
        for end in (other.end, lambda: None):
            verdicts = client.verify(SM2, made.digests, made.signatures, made.keys)
            np.testing.assert_array_equal(verdicts.valid, made.valid)
            end()
        assert lent == [True, False, True]


def test_room_comes_back_however_a_call_ends(sm2, address, lent):
    made = make_signatures("SM2", 4096, seed=3, keys=16, fault_share=0.2)
    columns = made.digests, made.signatures, made.keys
    with SharedMemory(address, 0, room=4 << 20) as memory:
        with VerifierClient(sm2.address, shared_memory=memory) as client:
            with pytest.raises(RefusedError):
                client.verify(
                    replace(SM2, key_encoding=KeyEncoding.INDEX), *columns[:2], np.zeros(4096, np.uint32), key_set=9
                )
            assert not client.verify(SM2, *columns, timeout_s=1e-4, allow_undecided=True).whole
        assert memory.lent_bytes == 0

        async def calls() -> None:
            async with AsyncVerifierClient(sm2.address, shared_memory=memory) as client:
                np.testing.assert_array_equal((await client.verify(SM2, *columns)).valid, made.valid)
                assert memory.lent_bytes == 0
                for turns in range(8):
                    task = asyncio.create_task(client.verify(SM2, *columns))
                    for _ in range(turns):
                        await asyncio.sleep(0)
                    task.cancel()
                    with contextlib.suppress(asyncio.CancelledError):
                        await task
                    assert memory.lent_bytes == 0
                # Verdicts of those that come next are their own.
                np.testing.assert_array_equal((await client.verify(SM2, *columns)).valid, made.valid)

        asyncio.run(calls())
        assert memory.lent_bytes == 0
    assert all(lent)


@pytest.mark.parametrize("client", [VerifierClient, AsyncVerifierClient])
def test_memory_of_one_daemon_goes_with_no_target_of_several(sm2, address, client):
    with SharedMemory(address, 4096) as memory:
        for target in (f"ipv4:{sm2.address},127.0.0.1:1", "dns:///localhost:1"):
            with pytest.raises(RequestError, match="shared_memory: belongs to one daemon"):
                client(target, shared_memory=memory)
