"""Both clients against the mock daemon, over real gRPC."""

import asyncio
import threading

import grpc
import numpy as np
import pytest

import node_adapter.client
from node_adapter.client import (
    Algorithm,
    AsyncVerifierClient,
    Hash,
    InputKind,
    KeyEncoding,
    MockVerifier,
    Priority,
    Retry,
    Scheme,
    SignatureEncoding,
    VerifierClient,
)
from node_adapter.client import _scheme as scheme_module
from node_adapter.errors import (
    AnswerError,
    CapacityError,
    DeadlineError,
    NotServedError,
    RefusedError,
    RequestError,
    UnavailableError,
    UndecidedError,
)
from verifier.model import Code
from verifier.v1 import verifier_pb2 as pb

SCHEME = Scheme(Algorithm.SM2, InputKind.MESSAGE, SignatureEncoding.RAW_RS, KeyEncoding.RAW_XY)
QUICK = Retry(attempts=3, base_s=0.001, cap_s=0.002)


def by_first_byte(items):
    """The message's first byte is the code."""
    return [message[0] for message in items.inputs]


class Blocking:
    """The blocking client behind one call."""

    def __init__(self, target, **options):
        self.client = VerifierClient(target, **options)

    def call(self, method, *arguments, **options):
        return getattr(self.client, method)(*arguments, **options)

    def close(self):
        self.client.close()


class OnLoop:
    """The asyncio client behind the same call, on a loop of its own."""

    def __init__(self, target, **options):
        self.loop = asyncio.new_event_loop()

        async def make():
            return AsyncVerifierClient(target, **options)

        self.client = self.loop.run_until_complete(make())

    def call(self, method, *arguments, **options):
        return self.loop.run_until_complete(getattr(self.client, method)(*arguments, **options))

    def close(self):
        self.loop.run_until_complete(self.client.close())
        self.loop.close()


@pytest.fixture(params=[Blocking, OnLoop])
def connect(request):
    made = []

    def make(target, **options):
        made.append(request.param(target, retry=QUICK, **options))
        return made[-1]

    yield make
    for client in made:
        client.close()


def batch(codes):
    n = len(codes)
    return [bytes([c]) for c in codes], bytes(64 * n), bytes(64 * n)


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


def test_undecided_is_never_invalid(connect):
    with MockVerifier(by_first_byte) as daemon:
        client = connect(daemon.target)
        with pytest.raises(UndecidedError, match="1 of 3 items are undecided") as caught:
            client.call("verify", SCHEME, *batch([1, 0, 2]))
        known = caught.value.result
        assert known.valid.tolist() == [True, False, False]
        assert known.invalid.tolist() == [False, False, True]
        assert known.decided.tolist() == [True, False, True]
        assert client.call("verify", SCHEME, *batch([1, 0, 2]), allow_undecided=True).codes.tolist() == [1, 0, 2]


@pytest.mark.parametrize("code", [grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE])
def test_a_passing_failure_is_tried_again(connect, code):
    with MockVerifier(by_first_byte) as daemon:
        client = connect(daemon.target, chunk_items=2)
        daemon.fail(code, times=2, retry_after_s=0.001)
        assert client.call("verify", SCHEME, *batch([1, 2, 1])).codes.tolist() == [1, 2, 1]
        assert len(daemon.requests) == 4


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (grpc.StatusCode.RESOURCE_EXHAUSTED, CapacityError),
        (grpc.StatusCode.UNAVAILABLE, UnavailableError),
        (grpc.StatusCode.INTERNAL, UndecidedError),
    ],
)
def test_a_lasting_failure_leaves_its_chunk_undecided(connect, code, kind):
    with MockVerifier(by_first_byte) as daemon:
        client = connect(daemon.target, chunk_items=2, in_flight=1)
        client.call("limits")
        attempts = 1 if kind is UndecidedError else 3
        daemon.fail(code, "the reason", times=attempts, when=lambda request: request.items == 2)
        with pytest.raises(kind, match=r"2 of 3 items are undecided: .*the reason") as caught:
            client.call("verify", SCHEME, *batch([1, 1, 2]))
        assert caught.value.result.codes.tolist() == [0, 0, 2]
        assert len(daemon.requests) == attempts + 1


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, RefusedError),
        (grpc.StatusCode.FAILED_PRECONDITION, NotServedError),
        (grpc.StatusCode.PERMISSION_DENIED, RefusedError),
    ],
)
def test_a_refusal_is_not_tried_again(connect, code, kind):
    with MockVerifier(by_first_byte) as daemon:
        client = connect(daemon.target)
        daemon.fail(code, "input.data: too short")
        with pytest.raises(kind, match=r"input\.data: too short") as caught:
            client.call("verify", SCHEME, *batch([1]))
        assert caught.value.code == code.name
        assert len(daemon.requests) == 1


def test_the_daemons_retry_delay_is_honoured(connect):
    with MockVerifier(by_first_byte) as daemon:
        client = connect(daemon.target)
        client.call("limits")
        daemon.fail(grpc.StatusCode.RESOURCE_EXHAUSTED, retry_after_s=60.0)
        # The daemon asks for more time than there is, so the client does not try again.
        with pytest.raises(CapacityError):
            client.call("verify", SCHEME, *batch([1]), timeout_s=20.0)
        assert len(daemon.requests) == 1


def test_the_deadline_ends_the_wait(connect):
    gate = threading.Event()

    def slow(items):
        gate.wait(30)
        return by_first_byte(items)

    with MockVerifier(slow) as daemon:
        client = connect(daemon.target)
        client.call("limits")
        with pytest.raises(DeadlineError) as caught:
            client.call("verify", SCHEME, *batch([2, 2]), timeout_s=0.2)
        gate.set()
        assert not caught.value.result.decided.any()
        assert not caught.value.result.invalid.any()


def test_no_daemon_at_all(connect):
    client = connect("127.0.0.1:1", timeout_s=0.3)
    with pytest.raises(UndecidedError) as caught:
        client.call("verify", SCHEME, *batch([1, 2]))
    assert caught.value.result.codes.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda a: setattr(a, "request_id", 77), "request_id: 77"),
        (lambda a: setattr(a, "items", 8), "items: 8 came back for 9"),
        (lambda a: setattr(a, "valid", b"\1"), "valid: 1 bytes; 9 items are 2"),
        (lambda a: setattr(a, "decided", b"\xff\xff"), "behind the last of 9"),
        (lambda a: setattr(a.problems, "code", b""), "0 codes"),
        (lambda a: setattr(a.problems, "index", b"\x09\0\0\0"), "beyond the last"),
        (lambda a: setattr(a.problems, "index", b"\x00\0\0\0"), "contradict"),
        (lambda a: setattr(a.problems, "code", b"\0"), "contradict"),
        (
            lambda a: (setattr(a.problems, "index", b"\2\0\0\0\1\0\0\0"), setattr(a.problems, "code", b"\5\5")),
            "rising",
        ),
    ],
)
def test_an_answer_that_does_not_fit_is_not_used(connect, change, text):
    with MockVerifier(by_first_byte) as daemon:
        client = connect(daemon.target)
        daemon.alter(change)
        with pytest.raises(AnswerError, match=text):
            client.call("verify", SCHEME, *batch([1, 1, 4, 1, 2, 1, 1, 1, 1]))


def test_a_valid_bit_counts_only_where_it_is_decided(connect):
    with MockVerifier(by_first_byte) as daemon:
        daemon.alter(lambda a: setattr(a, "decided", b"\2"))
        verdicts = connect(daemon.target).call("verify", SCHEME, *batch([1, 1]), allow_undecided=True)
        assert verdicts.codes.tolist() == [Code.UNDECIDED, Code.VALID]


def test_equal_items_are_sent_once(connect):
    with MockVerifier(by_first_byte) as daemon:
        codes = [1, 2, 1, 1, 5, 2]
        verdicts = connect(daemon.target).call("verify", SCHEME, *batch(codes), deduplicate=True)
        assert daemon.requests[0].items == 3
        assert verdicts.codes.tolist() == codes


def test_what_stays_undecided_is_asked_elsewhere(connect):
    codes = [1, 2, 1, 5, 1, 2, 1]
    asked = []

    def half(items):
        return [m[0] if m[0] != 1 else Code.UNDECIDED for m in items.inputs]

    def elsewhere(items):
        asked.extend(items.inputs)
        return by_first_byte(items)

    with (
        MockVerifier(half) as first,
        MockVerifier(elsewhere, served_by="other@0.0.0#1") as second,
        VerifierClient(second.target) as other,
    ):
        client = connect(first.target, chunk_items=3, fallback=lambda: other)
        verdicts = client.call("verify", SCHEME, *batch(codes))
        assert verdicts.codes.tolist() == codes
        assert asked == [b"\1"] * 4
        assert verdicts.served_by == ("mock@0.0.0#1", "other@0.0.0#1")
        again = client.call("verify", SCHEME, *batch(codes), deduplicate=True)
        assert again.codes.tolist() == codes
        assert len(asked) == 5


def test_the_fallback_answers_where_the_daemon_is_away(connect):
    with MockVerifier(by_first_byte) as second, VerifierClient(second.target) as other:
        client = connect("127.0.0.1:1", timeout_s=0.2, fallback=lambda: other)
        assert client.call("verify", SCHEME, *batch([2, 1])).codes.tolist() == [2, 1]
        assert client.call("digest", Hash.SHA256, [b"abc"]).digests[0, 0] == 0xBA


def test_a_fallback_that_fails_leaves_items_undecided(connect):
    with VerifierClient("127.0.0.1:1", timeout_s=0.2) as other:
        client = connect("127.0.0.1:1", timeout_s=0.2, fallback=lambda: other)
        with pytest.raises(UndecidedError) as caught:
            client.call("verify", SCHEME, *batch([2, 1]))
        assert caught.value.result.codes.tolist() == [0, 0]
        assert len(caught.value.result.failures) == 2


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
        with pytest.raises(UnavailableError, match="closed"):
            client.verify(SCHEME, *batch([1]))


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


def test_a_daemon_that_is_not_there_is_named(connect):
    with pytest.raises(DeadlineError, match=r"no daemon answered at 127\.0\.0\.1:1 within 0\.1 s"):
        connect("127.0.0.1:1").call("served", timeout_s=0.1)


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


def test_calls_go_around_a_daemon_that_is_down(connect):
    with MockVerifier(by_first_byte) as daemon:
        client = connect(f"ipv4:127.0.0.1:1,{daemon.target}", chunk_items=1)
        assert client.call("verify", SCHEME, *batch([1, 2, 1, 2])).codes.tolist() == [1, 2, 1, 2]
