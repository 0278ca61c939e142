"""Both clients against the mock daemon, over real gRPC."""

import asyncio
import threading

import numpy as np
import pytest
from _both_clients import SCHEME, batch, by_first_byte

import node_adapter.client
from node_adapter.client import (
    Algorithm,
    AsyncVerifierClient,
    Hash,
    InputKind,
    KeyEncoding,
    MockVerifier,
    Priority,
    Scheme,
    SignatureEncoding,
    VerifierClient,
)
from node_adapter.client import _scheme as scheme_module
from node_adapter.errors import (
    AnswerError,
    RequestError,
    UnavailableError,
    UndecidedError,
)
from verifier.v1 import verifier_pb2 as pb


def test_verdicts_come_back_in_order_whatever_the_chunks(connect):
    rng = np.random.default_rng(1)
    codes = rng.choice([1, 2, 4, 17, 27], 1000)
    for chunk_items in (None, 1000, 333, 64, 7):
        with MockVerifier(by_first_byte) as daemon:
            verdicts = connect(daemon.target, chunk_items=chunk_items).call("verify", SCHEME, *batch(codes))
            assert len(daemon.requests) == -(-1000 // (chunk_items or 8192))
        assert (verdicts.codes == codes).all()
        assert (verdicts.valid == (codes == 1)).all()
        assert (verdicts.invalid == (codes != 1)).all()
        assert verdicts.decided.all()
        index, code = verdicts.problems
        assert (index == np.flatnonzero(codes > 2)).all()
        assert (code == codes[codes > 2]).all()
        assert verdicts.served_by == ("mock@0.0.0#1",)
        assert verdicts.devices == ("mock",)


def test_chunks_keep_the_daemons_limits(connect):
    with MockVerifier(by_first_byte, max_items=100, max_batch_bytes=20_000, preferred_items=0) as daemon:
        client = connect(daemon.target)
        sizes = np.random.default_rng(2).integers(1, 3000, 400)
        messages = [b"\1" * int(size) for size in sizes]
        assert client.call("verify", SCHEME, messages, bytes(64 * 400), bytes(64 * 400)).valid.all()
        for request in daemon.requests:
            columns = (request.input, request.signature, request.key)
            assert request.items <= 100
            assert sum(len(c.data) + len(c.offsets) for c in columns) <= 20_000
        with pytest.raises(RequestError, match=r"item 1 has 20\d\d\d bytes; the daemon's limit is 20000"):
            client.call("verify", SCHEME, [b"\1", b"\1" * 20_000], bytes(128), bytes(128))


def test_the_scheme_arrives_as_it_was_said(connect):
    scheme = Scheme(
        Algorithm.SM2,
        InputKind.HASH_AS_MESSAGE,
        SignatureEncoding.RAW_RS_KEY,
        KeyEncoding.IN_SIGNATURE,
        sm2_user_id=b"",
        plugin="sm2@1.0.0",
    )
    with MockVerifier() as daemon:
        connect(daemon.target).call("verify", scheme, bytes(32), bytes(128), priority=Priority.CONSENSUS)
        (request,) = daemon.requests
    assert request.scheme == scheme.message()
    assert request.scheme.HasField("sm2_user_id")
    assert not SCHEME.message().HasField("sm2_user_id")
    assert request.priority == pb.PRIORITY_CONSENSUS
    assert request.key == pb.Column()


def test_enums_are_the_contracts():
    for name in ("Algorithm", "InputKind", "SignatureEncoding", "KeyEncoding", "LowS", "Hash", "Priority"):
        ours = {member.name: member.value for member in getattr(scheme_module, name)}
        wrapper = getattr(pb, name)
        prefix = (
            "LOW_S_"
            if name == "LowS"
            else "".join(f"_{c}" if c.isupper() and i else c for i, c in enumerate(name)).upper() + "_"
        )
        theirs = {key.removeprefix(prefix): value for key, value in wrapper.items()}
        assert ours == {key: theirs[key] for key in ours}
        assert set(theirs) - set(ours) <= {"UNSPECIFIED"}


def test_equal_items_are_sent_once(connect):
    with MockVerifier(by_first_byte) as daemon:
        codes = [1, 2, 1, 1, 5, 2]
        verdicts = connect(daemon.target).call("verify", SCHEME, *batch(codes), deduplicate=True)
        assert daemon.requests[0].items == 3
        assert verdicts.codes.tolist() == codes


def test_key_sets_stay_with_their_daemon(connect):
    scheme = Scheme(Algorithm.SM2, InputKind.MESSAGE, SignatureEncoding.RAW_RS, KeyEncoding.INDEX)
    with MockVerifier(lambda items: [0]) as first, MockVerifier() as second, VerifierClient(second.target) as other:
        client = connect(first.target, fallback=lambda: other)
        with pytest.raises(UndecidedError):
            client.call("verify", scheme, [b"a"], bytes(64), np.array([0], np.uint32), key_set=7)
        assert second.requests == []
        assert client.call(
            "verify", scheme, [b"a"], bytes(64), np.array([0], np.uint32), key_table=bytes(64)
        ).valid.all()


def test_recovered_keys_and_addresses(connect):
    scheme = Scheme(Algorithm.ECDSA_SECP256K1, InputKind.DIGEST, SignatureEncoding.RAW_RSV)

    def recover(items):
        codes = [message[0] for message in items.inputs]
        return codes, b"".join(i[:1] * 64 for i in items.inputs), b"".join(i[:1] * 20 for i in items.inputs)

    with MockVerifier(recover=recover) as daemon:
        client = connect(daemon.target, chunk_items=2)
        digests = b"".join(bytes([c]) * 32 for c in (1, 18, 1, 2, 1))
        result = client.call("recover", scheme, digests, bytes(65 * 5), address_hash=Hash.KECCAK256)
        assert result.codes.tolist() == [1, 18, 1, 2, 1]
        assert result.keys.shape == (5, 64)
        assert result.addresses[:, 0].tolist() == [1, 18, 1, 2, 1]
        daemon.alter(lambda a: setattr(a, "addresses", b""))
        with pytest.raises(AnswerError, match="addresses: 0 bytes; 1 items are 20"):
            client.call("recover", scheme, bytes([1] * 32), bytes(65), address_hash=Hash.KECCAK256)
    with pytest.raises(RequestError, match="RAW_RSV"):
        connect("127.0.0.1:1").call("recover", SCHEME, bytes(32), bytes(65))


def test_digests(connect):
    with MockVerifier() as daemon:
        result = connect(daemon.target).call("digest", Hash.SHA256, [b"", b"abc"])
    assert result.decided.all()
    assert result.digests[0].tobytes().hex().startswith("e3b0c442")
    assert result.digests[1].tobytes().hex().startswith("ba7816bf")


def test_submit_answers_later():
    gate = threading.Event()

    def slow(items):
        gate.wait(30)
        return by_first_byte(items)

    with MockVerifier(slow) as daemon, VerifierClient(daemon.target) as client:
        futures = [client.submit(SCHEME, *batch([1, code])) for code in (1, 2, 4)]
        assert not any(future.done() for future in futures)
        gate.set()
        assert [future.result(30).codes.tolist() for future in futures] == [[1, 1], [1, 2], [1, 4]]


def test_a_closed_client_says_so():
    with MockVerifier(by_first_byte) as daemon:
        client = VerifierClient(daemon.target)
        client.limits()
        client.close()
        for ask in (client.verify, client.submit):
            with pytest.raises(UnavailableError, match="closed"):
                ask(SCHEME, *batch([1]))


def test_a_closed_asyncio_client_says_so():
    async def ask(daemon, entered, gate):
        client = AsyncVerifierClient(daemon.target)
        await client.limits()
        pending = asyncio.create_task(client.verify(SCHEME, *batch([1])))
        await asyncio.to_thread(entered.wait, 30)
        await client.close()
        with pytest.raises(UnavailableError, match="closed"):
            await pending
        gate.set()
        with pytest.raises(UnavailableError, match="closed"):
            await client.verify(SCHEME, *batch([1]))

    entered, gate = threading.Event(), threading.Event()

    def slow(items):
        entered.set()
        gate.wait(30)
        return by_first_byte(items)

    with MockVerifier(slow) as daemon:
        asyncio.run(ask(daemon, entered, gate))


def test_a_cancelled_task_stays_cancelled():
    async def ask(daemon, entered):
        async with AsyncVerifierClient(daemon.target) as client:
            await client.limits()
            pending = asyncio.create_task(client.verify(SCHEME, *batch([1])))
            await asyncio.to_thread(entered.wait, 30)
            pending.cancel()
            with pytest.raises(asyncio.CancelledError):
                await pending

    entered, gate = threading.Event(), threading.Event()

    def slow(items):
        entered.set()
        gate.wait(30)
        return by_first_byte(items)

    with MockVerifier(slow) as daemon:
        asyncio.run(ask(daemon, entered))
        gate.set()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (([], b"", b""), "inputs: no items"),
        (([b"m"], bytes(64), None), "keys: missing"),
        (([b"m"], bytes(63), bytes(64)), "signatures: 63 bytes"),
        (([b"m", b"n"], bytes(64), bytes(128)), "signatures: 1 values, but the batch has 2"),
    ],
)
def test_columns_that_do_not_fit(connect, arguments, text):
    with pytest.raises(RequestError, match=text):
        connect("127.0.0.1:1").call("verify", SCHEME, *arguments)


@pytest.mark.parametrize("method", ["verify", "recover"])
def test_an_algorithms_name_is_no_scheme(connect, method):
    with pytest.raises(RequestError, match="scheme: 'SM2' is not a Scheme"):
        connect("127.0.0.1:1").call(method, "SM2", bytes(32), bytes(64))


def test_indices_need_a_table_or_a_set(connect):
    scheme = Scheme(Algorithm.SM2, InputKind.MESSAGE, SignatureEncoding.RAW_RS, KeyEncoding.INDEX)
    index = np.array([0, 1], np.uint32)
    with MockVerifier() as daemon:
        client = connect(daemon.target)
        client.call("verify", scheme, [b"a", b"b"], bytes(128), index, key_table=bytes(128))
        assert daemon.requests[0].key.data == b"\0\0\0\0\1\0\0\0"
        assert daemon.requests[0].key_table == bytes(128)
        with pytest.raises(RequestError, match="either key_table or key_set"):
            client.call("verify", scheme, [b"a", b"b"], bytes(128), index)


def test_a_user_id_over_the_limit():
    with pytest.raises(RequestError, match="8192 bytes; the limit is 8191"):
        Scheme(Algorithm.SM2, InputKind.MESSAGE, SignatureEncoding.RAW_RS, sm2_user_id=bytes(8192))


def test_exports_are_sorted_and_there():
    names = node_adapter.client.__all__
    assert sorted(names, key=lambda n: (not n.isupper(), n[0].islower(), n)) == names
    assert all(hasattr(node_adapter.client, name) for name in names)


def test_calls_go_round_the_daemons_of_a_target(connect):
    with MockVerifier(by_first_byte) as a, MockVerifier(by_first_byte) as b, MockVerifier(by_first_byte) as c:
        daemons = (a, b, c)
        target = "ipv4:" + ",".join(daemon.target for daemon in daemons)
        client = connect(target, chunk_items=10, in_flight=1)
        for _ in range(10):
            assert client.call("verify", SCHEME, *batch([1] * 60)).valid.all()
        counts = [len(daemon.requests) for daemon in daemons]
        assert sum(counts) == 60
        assert min(counts) >= 10
