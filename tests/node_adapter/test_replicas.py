"""Several daemons behind one client: which is asked, which is left alone, and what is asked again elsewhere."""

import socket
import threading

import grpc
import numpy as np
import pytest
from _both_clients import SCHEME, batch, by_first_byte
from _clock import Clock
from _waiting import until

from node_adapter.client import Algorithm, InputKind, KeyEncoding, MockVerifier, Scheme, SignatureEncoding, _replicas
from node_adapter.client._replicas import Address, Lookup, Replica, Replicas, addresses, is_one
from node_adapter.errors import CapacityError, ReplicasError, RequestError, UnavailableError, UndecidedError
from verifier.model import Code
from verifier.v1 import verifier_pb2 as pb

INDEXED = Scheme(Algorithm.SM2, InputKind.MESSAGE, SignatureEncoding.RAW_RS, KeyEncoding.INDEX)


def replicas(count, clock=None, away=()):
    made = Replicas(
        lambda address: Replica(address, None, None, lambda: address.target not in away), clock or Clock()
    )
    made.update([Address(str(n)) for n in range(count)])
    return made


def names(made, count, avoid=()):
    return [made.pick(avoid).address.target for _ in range(count)]


@pytest.mark.parametrize(
    ("target", "found"),
    [
        ("host:1", [Address("host:1")]),
        ("unix:/run/verifier.sock", [Address("unix:/run/verifier.sock")]),
        ("ipv4:10.0.0.1:5, 10.0.0.2:6", [Address("ipv4:10.0.0.1:5"), Address("ipv4:10.0.0.2:6")]),
        ("ipv6:[::1]:5,[::2]:5", [Address("ipv6:[::1]:5"), Address("ipv6:[::2]:5")]),
    ],
)
def test_targets_and_their_daemons(target, found):
    assert addresses(target) == found


def test_every_address_of_a_name_is_a_daemon(monkeypatch):
    known = ["10.0.0.2", "10.0.0.1", "fe80::1", "10.0.0.2"]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [(0, 0, 0, "", (a, 9)) for a in known])
    assert addresses("dns:///verifier:9") == [
        Address("ipv4:10.0.0.1:9", "verifier"),
        Address("ipv4:10.0.0.2:9", "verifier"),
        Address("ipv6:[fe80::1]:9", "verifier"),
    ]


@pytest.mark.parametrize("target", ["ipv4:", "dns:///verifier", "dns:///:9"])
def test_targets_that_name_none(target):
    with pytest.raises(RequestError, match="target"):
        addresses(target)


def test_only_lists_and_looked_up_names_may_be_several():
    assert [
        is_one(t) for t in ("host:1", "ipv4:1.2.3.4:5", "unix:a,b", "ipv4:1.2.3.4:5,1.2.3.5:5", "dns:///h:1")
    ] == [
        True,
        True,
        True,
        False,
        False,
    ]


def test_they_are_asked_in_turn():
    assert sorted(names(replicas(3), 3)) == ["0", "1", "2"]
    assert names(replicas(3), 6)[:3] == names(replicas(3), 6)[3:]


def test_one_that_is_not_ready_is_asked_only_if_there_is_no_other():
    assert set(names(replicas(3, away={"1"}), 6)) == {"0", "2"}
    assert set(names(replicas(2, away={"0", "1"}), 6)) == {"0", "1"}


def test_one_that_failed_is_left_alone_for_a_growing_time():
    clock = Clock()
    made = replicas(2, clock)
    first = made.all[0]
    pauses = []
    for _ in range(9):
        made.failed(first, "told to")
        begun = clock.now
        while "0" not in names(made, 2):
            clock.now += 0.25
        pauses.append(clock.now - begun)
    assert pauses == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]
    made.failed(first, "told to")
    made.answered(first)
    assert set(names(made, 2)) == {"0", "1"}


def test_what_is_to_be_avoided_comes_last():
    made = replicas(3, away={"2"})
    assert set(names(made, 4, {made.all[0]})) == {"1"}
    assert made.elsewhere({made.all[0]})
    assert not made.elsewhere(set(made.all[:2]))
    assert set(names(made, 4, set(made.all[:2]))) == {"2"}
    alone = replicas(1)
    assert names(alone, 2, set(alone.all)) == ["0", "0"]
    assert not alone.elsewhere(set(alone.all))


def test_a_name_is_looked_up_again(monkeypatch):
    found = ["10.0.0.1", "10.0.0.2"]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [(0, 0, 0, "", (a, 9)) for a in found])
    clock, closed = Clock(), []
    made = replicas(0, clock)
    lookup = Lookup("dns:///verifier:9", made, closed.append, every_s=30, clock=clock)
    kept, gone = made.all
    assert not lookup.due()
    clock.now += 30
    assert lookup.due()
    assert not lookup.due()
    found[1] = "10.0.0.3"
    lookup.take(lookup.find())
    assert made.all[0] is kept
    assert [replica.address.target for replica in made.all] == ["ipv4:10.0.0.1:9", "ipv4:10.0.0.3:9"]
    assert closed == [], "calls to it may still be under way"
    lookup.take([])  # the name service does not answer: they stay
    assert closed == [gone]
    assert len(made.all) == 2


def test_a_name_that_is_not_known_yet_is_left_to_grpc(monkeypatch):
    def fail(*_, **__):
        raise OSError("unknown")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    made = replicas(0)
    lookup = Lookup("dns:///verifier:9", made, lambda _: None)
    assert [replica.address for replica in made.all] == [Address("dns:///verifier:9")]
    assert lookup.find() == []


def several(*daemons):
    return "ipv4:" + ",".join(daemon.target for daemon in daemons)


def ready(client, count):
    """Waits until every channel is connected."""
    inner = client.client._connections.replicas

    def connected():
        client.call("served")
        return sum(replica.ready() for replica in inner.all) >= count

    until(connected)


def test_every_daemon_gets_its_share(connect):
    with MockVerifier(by_first_byte) as one, MockVerifier(by_first_byte) as two, MockVerifier(by_first_byte) as three:
        client = connect(several(one, two, three))
        ready(client, 3)
        for _ in range(30):
            assert client.call("verify", SCHEME, *batch([1, 2])).codes.tolist() == [1, 2]
        assert [len(daemon.requests) for daemon in (one, two, three)] == [10, 10, 10]


def test_what_one_leaves_undecided_is_asked_elsewhere_and_that_one_left_alone(connect, caplog, monkeypatch):
    monkeypatch.setattr(_replicas, "_FIRST_PAUSE_S", 30.0)  # or a slow machine asks it again
    caplog.set_level("WARNING")  # whatever commands of other tests have set
    with MockVerifier(lambda items: [0] * len(items.inputs)) as bad, MockVerifier(by_first_byte) as good:
        client = connect(several(bad, good))
        ready(client, 2)
        for _ in range(8):
            assert client.call("verify", SCHEME, *batch([1, 2, 5])).codes.tolist() == [1, 2, 5]
        assert len(bad.requests) == 1
        assert len(good.requests) == 8
        assert f"{bad.target} is left alone for 30 s: it left items undecided" in caplog.text


def test_only_the_undecided_items_are_asked_again(connect):
    def half(items):
        return [code if code == 1 else 0 for code in by_first_byte(items)]

    with MockVerifier(half) as bad, MockVerifier(by_first_byte) as good:
        client = connect(several(bad, good))
        ready(client, 2)
        while not bad.requests:
            assert client.call("verify", SCHEME, *batch([1, 2, 1, 5])).codes.tolist() == [1, 2, 1, 5]
        assert good.requests[-1].items == 2


def test_where_nobody_decides_items_stay_undecided(connect):
    with MockVerifier(lambda items: [0] * len(items.inputs)) as one, MockVerifier(lambda _: [0, 0]) as two:
        client = connect(several(one, two))
        ready(client, 2)
        with pytest.raises(UndecidedError) as caught:
            client.call("verify", SCHEME, *batch([1, 2]))
        assert caught.value.result.codes.tolist() == [Code.UNDECIDED] * 2
        assert (len(one.requests), len(two.requests)) == (1, 1)


@pytest.mark.parametrize("code", [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED])
def test_a_refusal_is_asked_elsewhere_at_once(connect, code):
    with MockVerifier(by_first_byte) as full, MockVerifier(by_first_byte) as free:
        client = connect(several(full, free))
        ready(client, 2)
        # The daemon asks to be left alone for an hour: only elsewhere is there an answer in time.
        full.fail(code, times=100, retry_after_s=3600.0)
        for _ in range(6):
            assert client.call("verify", SCHEME, *batch([1, 2]), timeout_s=20.0).codes.tolist() == [1, 2]
        assert len(free.requests) == 6
        assert len(full.requests) == 1


def test_one_that_does_not_serve_is_not_asked(connect):
    with MockVerifier(by_first_byte) as draining, MockVerifier(by_first_byte) as serving:
        client = connect(several(draining, serving))
        ready(client, 2)
        draining.serving(False)
        inner = client.client._connections.replicas

        def left_alone():
            client.call("served")
            return not inner.all[0].ready()

        until(left_alone)
        for _ in range(6):
            assert client.call("verify", SCHEME, *batch([1, 2])).codes.tolist() == [1, 2]
        assert (len(draining.requests), len(serving.requests)) == (0, 6)
        draining.serving(True)
        ready(client, 2)
        for _ in range(6):
            client.call("verify", SCHEME, *batch([1, 2]))
        assert len(draining.requests) == 3


def test_one_that_hangs_takes_half_of_the_time(connect):
    gate = threading.Event()

    def hang(items):
        gate.wait(60)
        return by_first_byte(items)

    with MockVerifier(hang) as hanging, MockVerifier(by_first_byte) as good:
        client = connect(several(hanging, good))
        ready(client, 2)
        while not hanging.requests:
            assert client.call("verify", SCHEME, *batch([1, 2]), timeout_s=4.0).codes.tolist() == [1, 2]
        asked = len(good.requests)
        for _ in range(3):
            assert client.call("verify", SCHEME, *batch([1, 2]), timeout_s=4.0).codes.tolist() == [1, 2]
        assert len(hanging.requests) == 1
        assert len(good.requests) == asked + 3
        gate.set()


def test_where_all_are_full_the_call_waits_and_ends(connect):
    with MockVerifier(by_first_byte) as one, MockVerifier(by_first_byte) as two:
        client = connect(several(one, two))
        ready(client, 2)
        for daemon in (one, two):
            daemon.fail(grpc.StatusCode.RESOURCE_EXHAUSTED, times=100)
        with pytest.raises(CapacityError):
            client.call("verify", SCHEME, *batch([1]))
        assert len(one.requests) + len(two.requests) == 3  # the attempts of the tests' policy


def test_a_daemon_that_is_down_costs_nothing(connect):
    with MockVerifier(by_first_byte) as daemon:
        client = connect(f"ipv4:127.0.0.1:1,{daemon.target}", chunk_items=1)
        assert client.call("verify", SCHEME, *batch([1, 2, 1, 2])).codes.tolist() == [1, 2, 1, 2]


def test_a_name_that_is_looked_up(connect):
    with MockVerifier(by_first_byte) as daemon:
        client = connect(f"dns:///localhost:{daemon.target.rpartition(':')[2]}")
        assert client.call("verify", SCHEME, *batch([1, 2])).codes.tolist() == [1, 2]


def test_handles_belong_to_one_daemon(connect):
    with MockVerifier() as one, MockVerifier() as two:
        client = connect(several(one, two))
        with pytest.raises(RequestError, match="key_set: a handle belongs to one daemon"):
            client.call("verify", INDEXED, [b"a"], bytes(64), np.array([0], np.uint32), key_set=7)
        with pytest.raises(RequestError, match="keys: a handle belongs to one daemon"):
            client.call("register_keys", Algorithm.SM2, KeyEncoding.RAW_XY, bytes(64))


def serve(daemon, *served):
    for operation, algorithm, label, digest in served:
        daemon._limits.operations.append(
            pb.ServedOperation(operation=operation, algorithm=algorithm, served_by=label, digest=digest)
        )


def test_daemons_must_serve_the_same_plugins(connect):
    with MockVerifier(by_first_byte) as one, MockVerifier(by_first_byte) as two:
        serve(one, ("verify", "SM2", "sm2@1.0.0#3", "aa" * 32))
        serve(two, ("verify", "SM2", "sm2@1.0.0#8", "aa" * 32))
        client = connect(several(one, two), same_plugins=True)
        assert client.call("verify", SCHEME, *batch([1])).valid.all()
        assert set(client.call("check_replicas")) == {f"ipv4:{one.target}", f"ipv4:{two.target}"}
        serve(two, ("verify", "ECDSA_P256", "ecdsa@1.0.0#1", "bb" * 32))
        with pytest.raises(ReplicasError, match=r"verify ECDSA_P256 .* ecdsa@1.0.0 \(bbbbbbbbbbbb\) at .*; none at"):
            client.call("check_replicas")
        two._limits.operations[0].digest = "cc" * 32
        with pytest.raises(ReplicasError, match="verify SM2 is served by different plugins"):
            connect(several(one, two), same_plugins=True).call("verify", SCHEME, *batch([1]))
        # Nobody asked for the check: answers are taken from both.
        assert connect(several(one, two)).call("verify", SCHEME, *batch([1])).valid.all()


def test_no_daemon_to_check(connect):
    with pytest.raises(UnavailableError, match="no daemon answered"):
        connect("ipv4:127.0.0.1:1,127.0.0.1:2").call("check_replicas", timeout_s=5.0)
