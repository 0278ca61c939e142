"""The simulated chain, and both clients, against a daemon in another process."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import replace

import _sm2
import numpy as np
import pytest
from _daemon_process import DaemonProcess

from node_adapter import LocalVerifier
from node_adapter.chain import FAULTS, TRANSACTION_SCHEME, Simulation, make_pool
from node_adapter.client import AsyncVerifierClient, Hash, Items, KeyEncoding, Retry, VerifierClient
from node_adapter.errors import NotServedError, RefusedError, RequestError
from verifier.model import Code


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    made = DaemonProcess(tmp_path_factory.mktemp("daemon"), ["sm2", "sm3"], cache=None)
    yield made
    made.stop()


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    return make_pool(21, 60, accounts=6, fault_share=0.5, folder=tmp_path_factory.mktemp("pool"), processes=1)


def columns(pool):
    transactions = [entry.transaction for entry in pool.entries]
    return [tx.body() for tx in transactions], [tx.signature for tx in transactions], [tx.key for tx in transactions]


def test_exactly_the_spoilt_transactions_are_rejected(daemon, pool):
    assert {entry.fault for entry in pool.entries} == {None, *FAULTS}
    report = Simulation(daemon.address, pool, seed=21, block_transactions=20).run()
    assert report.ok, report.mismatches
    assert report.blocks == 3
    assert sum(report.rejected.values()) == 30
    assert {(label.split("#")[0], device) for label, device in report.served} == {("sm2@1.0.0", "cpu")}


def test_the_daemon_agrees_with_python_item_by_item(daemon, pool):
    inputs, signatures, keys = columns(pool)
    expected = _sm2.verify(Items(TRANSACTION_SCHEME, inputs, signatures, keys))
    assert len(set(expected)) >= 6
    with VerifierClient(daemon.address, chunk_items=7) as client:
        verdicts = client.verify(TRANSACTION_SCHEME, inputs * 5, signatures * 5, keys * 5)
        assert verdicts.codes.tolist() == [int(code) for code in expected] * 5
        once = client.verify(TRANSACTION_SCHEME, inputs * 5, signatures * 5, keys * 5, deduplicate=True)
        assert (once.codes == verdicts.codes).all()
        assert sum(part.items for part in once.served) == 60


def test_the_asyncio_client_gives_the_same(daemon, pool):
    inputs, signatures, keys = columns(pool)

    async def ask():
        async with AsyncVerifierClient(daemon.address, chunk_items=16) as client:
            verdicts, digests = await asyncio.gather(
                client.verify(TRANSACTION_SCHEME, inputs, signatures, keys), client.digest(Hash.SM3, [b"abc", b""])
            )
            return verdicts, digests

    verdicts, digests = asyncio.run(ask())
    assert [Code(code).name if code != Code.VALID else None for code in verdicts.codes] == [
        None if entry.reason in ("NONCE", "BALANCE") else entry.reason for entry in pool.entries
    ]
    # GB/T 32905, annex A.1.
    assert digests.digests[0].tobytes().hex() == "66c7f0f462eeedd9d1f2d46bdc10e4e24167c4875cf2f7a2297da02b8f4ba8e0"


def test_limits_and_what_is_served(daemon):
    with VerifierClient(daemon.address) as client:
        limits = client.limits()
        assert limits.max_items >= limits.preferred_items > 0
        served = {(entry.operation, entry.algorithm) for entry in client.served().operations}
        assert {("verify", "SM2"), ("digest", "SM3")} <= served
        with pytest.raises(NotServedError):
            client.digest(Hash.SHA3_256, [b""])


def test_registered_keys(daemon, pool):
    good = [entry.transaction for entry in pool.entries if entry.fault is None]
    keys = sorted({tx.key for tx in good})
    index = np.array([keys.index(tx.key) for tx in good], np.uint32)
    scheme = replace(TRANSACTION_SCHEME, key_encoding=KeyEncoding.INDEX)
    inputs, signatures = [tx.body() for tx in good], [tx.signature for tx in good]
    with VerifierClient(daemon.address) as client:
        assert client.verify(scheme, inputs, signatures, index, key_table=b"".join(keys)).valid.all()
        handle = client.register_keys(scheme.algorithm, TRANSACTION_SCHEME.key_encoding, keys)
        assert client.verify(scheme, inputs, signatures, index, key_set=handle).valid.all()
        wrong = (index + 1) % len(keys)
        assert client.verify(scheme, inputs, signatures, wrong.astype(np.uint32), key_set=handle).invalid.all()
        client.release_keys(handle)
        with pytest.raises(RefusedError):
            client.verify(scheme, inputs, signatures, index, key_set=handle)
        with pytest.raises(RequestError, match="1 are not keys of the curve, the first at 1"):
            client.register_keys(scheme.algorithm, TRANSACTION_SCHEME.key_encoding, [keys[0], bytes(64)])

    async def ask():
        async with AsyncVerifierClient(daemon.address) as client:
            handle = await client.register_keys(scheme.algorithm, TRANSACTION_SCHEME.key_encoding, keys)
            verdicts = await client.verify(scheme, inputs, signatures, index, key_set=handle)
            await client.release_keys(handle)
            return verdicts

    assert asyncio.run(ask()).valid.all()


def test_a_dying_worker_in_the_middle_changes_nothing(daemon, pool):
    """The device's process is killed after the first block; its batches run again, and no verdict is wrong."""

    def connect(target):
        return VerifierClient(target, timeout_s=120, retry=Retry(attempts=100, base_s=0.05, cap_s=0.5))

    killed = []

    def kill(_):
        if not killed:
            killed.extend(daemon.workers())
            for process in killed:
                os.kill(process, signal.SIGKILL)

    report = Simulation(daemon.address, pool, seed=21, block_transactions=20, timeout_s=120, connect=connect).run(
        kill
    )
    assert killed
    assert report.ok, report.mismatches


def test_a_dead_daemon_is_replaced_by_the_nodes_own_cpu(tmp_path, pool):
    """The daemon is killed after the first block; the validators verify the rest themselves, with equal verdicts."""
    daemon = DaemonProcess(tmp_path, ["sm2"], cache=None)
    with LocalVerifier(["sm2"], trust_any=True) as local:
        local.client()

        def connect(target):
            return VerifierClient(target, retry=Retry(attempts=2, base_s=0.01, cap_s=0.02), fallback=local)

        report = Simulation(daemon.address, pool, seed=21, block_transactions=20, connect=connect).run(
            lambda _: daemon.process.kill()
        )
    daemon.stop(None)
    assert report.ok, report.mismatches
    assert report.blocks == 3
    assert sum(len(question.verdicts.failures) > 0 for question in report.questions) >= 2 * 4
