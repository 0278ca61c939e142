"""The chain in real time, and both clients, against a daemon in another process."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from dataclasses import replace

import _sm2
import numpy as np
import pytest
from _admin import AdminDaemon, copy_plugin
from _daemon_process import DaemonProcess

from node_adapter import LocalVerifier
from node_adapter.chain import (
    TRANSACTION_SCHEME,
    Conditions,
    Library,
    Middleware,
    NodeSettings,
    Point,
    Question,
    RealTime,
    issue_members,
    make_pool,
    report_of,
    requests_of,
)
from node_adapter.chain._faults import faults_of
from node_adapter.chain.byzantine import Conspiracy, Forger
from node_adapter.client import Algorithm, AsyncVerifierClient, Hash, Items, KeyEncoding, Retry, VerifierClient
from node_adapter.errors import DeadlineError, NotServedError, RefusedError, RequestError
from verifier.manifest import load_manifest
from verifier.model import Code
from verifier.registry._folders import shipped_folder

LIMIT_S = 120
SM2 = f"sm2@{load_manifest(shipped_folder() / 'sm2').version}"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    made = DaemonProcess(tmp_path_factory.mktemp("daemon"), ["sm2", "ecdsa", "sm3"], cache=None)
    yield made
    made.stop()


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    return make_pool(21, 60, accounts=6, fault_share=0.5, folder=tmp_path_factory.mktemp("pool"), processes=1)


def columns(pool):
    transactions = [entry.transaction for entry in pool.entries]
    return [tx.signed for tx in transactions], [tx.signature for tx in transactions], [tx.key for tx in transactions]


def connect(target, **options):
    return Middleware(AsyncVerifierClient(target, **options))


def run_chain(target, pool, during=None, *, connect=connect, engines=None, settings=None, **options):
    """A chain of four in real time; `during` is called with the world at each poll. The report, of a level chain."""
    settings = settings or NodeSettings(pool.algorithm, block_transactions=20)

    async def run():
        requests = requests_of(pool, malformed=3)
        each = [connect(target) for _ in range(4)] if engines is None else engines
        world = RealTime(issue_members(21, 4), pool, requests, each, seed=21, settings=settings, **options)
        start = world.clock.time()

        def done():
            if during:
                during(world)
            return world.client.done

        try:
            world.client.start()
            await world.run(done, LIMIT_S)
            await world.run(lambda: len({node.ledger.height for node in world.nodes}) == 1, LIMIT_S)
            return report_of(world, pool, requests, world.clock.time() - start)
        finally:
            await world.finish()

    return asyncio.run(run())


def test_exactly_the_spoilt_transactions_are_rejected(daemon, pool):
    assert {entry.fault for entry in pool.entries} == {None, *faults_of(Algorithm.SM2)}
    report = run_chain(daemon.address, pool)
    assert report.ok, report.mismatches
    assert report.blocks >= 2
    assert sum(report.rejected.values()) == 30 + 3
    assert sum(asked.items for asked in report.at(Point.RECEIPT)) >= 3 * 58
    assert {label.split("#")[0] for label, _ in report.served} == {SM2}
    assert len(report.latencies_s) == 30


def test_ecdsa_by_the_daemon_and_by_openssl(daemon, tmp_path):
    """The same chain with the middleware, and with the usual library in the nodes."""
    pool = make_pool(22, 60, algorithm=Algorithm.ECDSA_P256, accounts=6, fault_share=0.4, folder=tmp_path)
    report = run_chain(daemon.address, pool)
    assert report.ok, report.mismatches
    assert report.rejected["HIGH_S"] > 0
    good = replace(pool, entries=tuple(entry for entry in pool.entries if entry.fault is None))
    assert run_chain("", good, engines=[Library() for _ in range(4)]).ok


def test_enrolled_signers_and_a_daemon_that_forgets_them(daemon, pool):
    good = [entry.transaction for entry in pool.entries if entry.fault is None]
    question = Question.transactions(Point.RECEIPT, TRANSACTION_SCHEME, good)

    async def run():
        engine = connect(daemon.address)
        await engine.enroll(Algorithm.SM2, sorted({tx.key for tx in good}))
        assert (await engine.verify(question) == Code.VALID).all()
        await engine.client.release_keys(engine._key_set)
        assert (await engine.verify(question) == Code.VALID).all()
        assert engine._key_set == 0, "the handle is gone, and the keys go along as bytes"
        await engine.close()

    asyncio.run(run())


def test_a_lossy_network(daemon, pool):
    report = run_chain(daemon.address, pool, conditions=Conditions(0.001, 0.02, 0.1))
    assert report.ok, report.mismatches


def test_a_node_that_was_away_catches_up_through_the_daemon(daemon, pool):
    away = []

    def crash(world):
        if not away and world.nodes[0].ledger.height == 1:
            world.crash(3)
            away.append(world.nodes[3].ledger.height)
        elif away and world.client.done:
            world.restart(3)

    report = run_chain(daemon.address, pool, crash)
    assert away
    assert report.ok, report.mismatches
    assert {label.split("@")[0] for label, _ in report.served} == {"sm2", "ecdsa"}, "certificates are ECDSA"
    assert sum(asked.items for asked in report.at(Point.SYNC)) > 0


def test_a_forging_primary_is_replaced(daemon, pool):
    dress = Conspiracy(random.Random(1)).dress({0: Forger})
    settings = NodeSettings(block_transactions=20, view_timeout_s=0.5)

    async def run():
        requests = requests_of(pool)
        engines = [connect(daemon.address) for _ in range(4)]
        world = RealTime(
            issue_members(21, 4), pool, requests, engines, seed=21, settings=settings, dress=dress, window=60
        )
        world.client.start()
        try:
            await world.run(lambda: world.client.done, LIMIT_S)
            chains = [node.ledger.blocks(1, node.ledger.height) for node in world.nodes[1:]]
            return [[tx.hash for block in blocks for tx in block.block.transactions] for blocks in chains], [
                node.replica.view for node in world.nodes[1:]
            ]
        finally:
            await world.finish()

    hashes, views = asyncio.run(run())
    good = {entry.transaction.hash for entry in pool.entries if entry.fault is None}
    assert max(map(len, hashes)) == len(good)
    assert all(set(each) <= good for each in hashes)
    assert max(views) >= 1


def test_without_an_answer_the_run_says_where_it_is(daemon, pool):
    async def run():
        world = RealTime(issue_members(21, 4), pool, [], [connect(daemon.address) for _ in range(4)], seed=1)
        try:
            await world.run(lambda: False, 0.05)
        finally:
            await world.finish()

    with pytest.raises(DeadlineError, match="the nodes are at 0, 0, 0, 0"):
        asyncio.run(run())


def test_a_plugin_is_swapped_in_the_middle(tmp_path, pool):
    """Another version takes over while blocks are being verified: no verdict changes, and both have answered."""
    newer = copy_plugin(tmp_path / "newer", of="sm2", version="1.99.0")
    daemon = AdminDaemon(tmp_path, ["sm2", "ecdsa"], cache=None)
    daemon.load(newer, keep_inactive=True)  # built and tested before, so that the swap falls into the run
    swapped = []

    def swap(world):
        if not swapped and world.nodes[0].ledger.height >= 1:
            swapped.append(daemon.load(newer))

    try:
        settings = NodeSettings(block_transactions=5)
        report = run_chain(daemon.address, pool, swap, settings=settings, window=10)
    finally:
        daemon.stop()
    assert swapped
    assert report.ok, report.mismatches
    assert {label.split("#")[0] for label, _ in report.served} == {SM2, "sm2@1.99.0"}


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
        None if entry.reason in ("NONCE", "BALANCE", "CHAIN") else entry.reason for entry in pool.entries
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
    inputs, signatures = [tx.signed for tx in good], [tx.signature for tx in good]
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
    killed = []

    def kill(world):
        if not killed and world.nodes[0].ledger.height:
            killed.extend(daemon.workers())
            for process in killed:
                os.kill(process, signal.SIGKILL)

    patient = Retry(attempts=100, base_s=0.05, cap_s=0.5)
    report = run_chain(
        daemon.address,
        pool,
        kill,
        connect=lambda target: connect(target, retry=patient),
        settings=NodeSettings(block_transactions=5, view_timeout_s=10),
        window=10,
    )
    assert killed
    assert report.ok, report.mismatches


def test_a_dead_daemon_is_replaced_by_the_nodes_own_cpu(tmp_path, pool):
    """The daemon is killed after the first block; the nodes verify the rest themselves, with equal verdicts."""
    daemon = DaemonProcess(tmp_path, ["sm2", "ecdsa"], devices=("cpu:0",), cache=None)
    killed = []

    def kill(world):
        if not killed and world.nodes[0].ledger.height:
            daemon.process.kill()
            killed.append(world.nodes[0].ledger.height)

    with LocalVerifier(["sm2", "ecdsa"], trust_any=True) as local:
        local.client()
        quick = Retry(attempts=2, base_s=0.01, cap_s=0.02)
        report = run_chain(
            daemon.address,
            pool,
            kill,
            connect=lambda target: connect(target, retry=quick, fallback=local),
            settings=NodeSettings(block_transactions=5, view_timeout_s=10),
            window=10,
        )
    daemon.stop(None)
    assert killed
    assert report.ok, report.mismatches
    assert {device for _, device in report.served} == {"cpu:0", "cpu"}, "the daemon's, and the nodes' own"
