"""What the client does when daemons fail, refuse, answer late or answer nonsense: undecided is never invalid."""

import threading

import grpc
import pytest
from _both_clients import SCHEME, batch, by_first_byte

from node_adapter.client import (
    Hash,
    MockVerifier,
    VerifierClient,
)
from node_adapter.client._mock import _Servicer
from node_adapter.errors import (
    AnswerError,
    CapacityError,
    DeadlineError,
    NotServedError,
    RefusedError,
    UnavailableError,
    UndecidedError,
)
from verifier.model import Code


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


@pytest.mark.parametrize("code", [grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE])
def test_a_daemon_that_is_full_at_the_first_question_is_asked_again(connect, monkeypatch, code):
    left = [code, code]
    answer = _Servicer.GetLimits

    def full(self, request, context):
        if left:
            context.abort(left.pop(), "full")
        return answer(self, request, context)

    monkeypatch.setattr(_Servicer, "GetLimits", full)
    with MockVerifier(by_first_byte) as daemon:
        assert connect(daemon.target).call("verify", SCHEME, *batch([1, 2])).codes.tolist() == [1, 2]
        assert not left
        left += [code] * 9
        with pytest.raises(UndecidedError, match="full"):
            connect(daemon.target).call("verify", SCHEME, *batch([1, 2]))
        assert len(left) == 6


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
    with pytest.raises(UndecidedError, match=r"no daemon answered at 127\.0\.0\.1:1 within .* refused") as caught:
        client.call("verify", SCHEME, *batch([1, 2]))
    assert caught.value.result.codes.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda a: setattr(a, "request_id", 77), "request_id: 77"),
        (lambda a: setattr(a, "items", 8), "items: 8 came back for 9"),
        (lambda a: setattr(a, "columns_digest", bytes(8)), "columns_digest: 0000000000000000 came back for"),
        (lambda a: setattr(a, "columns_digest", b""), "columns_digest: nothing came back for"),
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


@pytest.mark.parametrize("items", [1, 7, 8, 9, 16])
def test_where_all_is_valid_the_bitmaps_must_still_fit(connect, items):
    with MockVerifier(by_first_byte) as daemon:
        client = connect(daemon.target)
        assert client.call("verify", SCHEME, *batch([1] * items)).codes.tolist() == [Code.VALID] * items
        longer = b"\xff" * (items // 8 + 1)
        daemon.alter(lambda a: (setattr(a, "valid", longer), setattr(a, "decided", longer)))
        with pytest.raises(AnswerError, match=r"valid: (a bit behind|\d bytes)"):
            client.call("verify", SCHEME, *batch([1] * items))


def test_a_valid_bit_counts_only_where_it_is_decided(connect):
    with MockVerifier(by_first_byte) as daemon:
        daemon.alter(lambda a: setattr(a, "decided", b"\2"))
        verdicts = connect(daemon.target).call("verify", SCHEME, *batch([1, 1]), allow_undecided=True)
        assert verdicts.codes.tolist() == [Code.UNDECIDED, Code.VALID]


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


def test_a_daemon_that_is_not_there_is_named(connect):
    with pytest.raises(DeadlineError, match=r"no daemon answered at 127\.0\.0\.1:1 within 0\.1 s"):
        connect("127.0.0.1:1").call("served", timeout_s=0.1)


def test_calls_go_around_a_daemon_that_is_down(connect):
    with MockVerifier(by_first_byte) as daemon:
        client = connect(f"ipv4:127.0.0.1:1,{daemon.target}", chunk_items=1)
        assert client.call("verify", SCHEME, *batch([1, 2, 1, 2])).codes.tolist() == [1, 2, 1, 2]
