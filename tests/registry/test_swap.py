"""Loading, switching, rolling back and letting go, on real workers."""

from __future__ import annotations

import dataclasses
import gc
import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from _asking import WAIT_S, Gate, memory, served_by, state, states
from _waiting import until

from verifier.errors import (
    BuildError,
    ConflictError,
    ManifestError,
    NotFoundError,
    NotServedError,
    PluginError,
    SelfTestError,
    VerifierError,
)
from verifier.registry import Registry, State, load_all
from verifier.registry import _book as book_module
from verifier.registry._startup import reachable


def test_a_load_goes_through_all_states(registry, make):
    status = registry.load(make("p"))
    assert status.active
    assert status.devices == ("cpu:0", "cpu:1")
    assert status.label == f"parity@1.0.0#{status.generation}"
    assert states(registry, status.label) == ["VERIFYING", "LOADING", "SELFTEST", "WARM", "ACTIVE"]
    assert served_by(registry) == status.label


def test_nothing_is_served_before_a_load(registry):
    with pytest.raises(NotServedError, match="no plugin serves verify for PARITY; served are nothing"):
        registry.resolve("verify", "PARITY")
    with pytest.raises(NotServedError, match="parity is not served; served are none"):
        registry.resolve("verify", "PARITY", "parity")


def test_errors_name_what_is_served(registry, make):
    registry.load(make("p"))
    with pytest.raises(NotServedError, match="verify for SM2; served are digest for PARITY, verify for PARITY"):
        registry.resolve("verify", "SM2")
    with pytest.raises(NotServedError, match=r"parity@2\.0\.0 is not served; served are parity@1\.0\.0"):
        registry.resolve("verify", "PARITY", "parity@2.0.0")
    with pytest.raises(NotServedError, match=r"does not serve recover/PARITY; it has verify/PARITY, digest/PARITY"):
        registry.resolve("recover", "PARITY", "parity")
    with pytest.raises(NotServedError, match=r"scheme\.input_kind: 3 is not served by .* which has MESSAGE, DIGEST"):
        registry.resolve("verify", "PARITY").key({"input_kind": 3})
    with pytest.raises(NotServedError, match=r"scheme\.low_s: parity has no such parameter"):
        registry.resolve("verify", "PARITY").key({"low_s": 1})


def test_an_algorithm_may_be_left_out_where_it_is_plain(registry, make):
    registry.load(make("p"))
    assert registry.resolve("verify", None, "parity").operation.algorithm == "PARITY"
    with pytest.raises(NotServedError):
        registry.resolve("verify", None)


def test_a_failed_load_changes_nothing(registry, make):
    good = registry.load(make("good"))
    bad = make("bad", version="1.1.0", manifest=lambda text: text.replace("VALID_PARITY = 0", "VALID_PARITY = 1"))
    for _ in range(2):  # the outcome is the real one each time
        with pytest.raises(
            SelfTestError,
            match=r"parity@1\.1\.0 on cpu:\d: verify/PARITY: case one_even_byte \(item 0 of 1\): code: "
            "expected VALID, got INVALID",
        ):
            registry.load(bad)
        assert served_by(registry) == good.label
        failed = registry.index()[-1]
        assert (failed.state, failed.active, failed.devices) == (State.FAILED, False, ())
        assert "one_even_byte" in failed.reason
    with pytest.raises(NotServedError):
        registry.resolve("verify", "PARITY", "parity@1.1.0")


def test_outputs_are_compared(registry, make):
    def wrong(data):
        data["groups"][-1]["cases"][3]["outputs"]["digest"] = "0400000000000001"

    with pytest.raises(
        SelfTestError,
        match=r"digest/PARITY: case two_odd_bytes .* digest: expected 0400000000000001, got 0400000000000000",
    ):
        registry.load(make("p", answers=wrong))


def test_a_failed_load_leaves_nothing_on_the_workers(registry, fleet, make):
    with pytest.raises(SelfTestError):
        registry.load(make("p", manifest=lambda text: text.replace("VALID_PARITY = 0", "VALID_PARITY = 1")))
    until(lambda: not any(worker.instances for worker in fleet.workers), "the failed instance is unloaded")


def test_a_good_load_follows_a_failed_one(registry, make):
    folder = make("p", source=lambda text: text + "this does not compile")
    with pytest.raises(BuildError, match="does not compile"):
        registry.load(folder)
    (folder / "parity.cu").write_text((folder / "parity.cu").read_text().replace("this does not compile", ""))
    loaded = registry.load(folder)
    assert served_by(registry) == loaded.label


def test_versions_stand_side_by_side(registry, make):
    old = registry.load(make("old"))
    new = registry.load(make("new", version="1.1.0"), activate=False)
    assert (old.state, new.state) == (State.ACTIVE, State.WARM)
    assert served_by(registry) == old.label
    assert served_by(registry, "parity@1.1.0") == new.label
    registry.activate("parity@1.1.0")
    assert served_by(registry) == new.label
    assert served_by(registry, "parity@1.0.0") == old.label
    assert state(registry, old.label) is State.WARM


def test_roll_back_and_forth(registry, make):
    old, new = registry.load(make("old")), registry.load(make("new", version="1.1.0"))
    assert registry.rollback("parity").label == old.label
    assert served_by(registry) == old.label
    assert registry.rollback("parity").label == new.label
    assert served_by(registry) == new.label


def test_roll_back_needs_something_to_return_to(registry, make):
    registry.load(make("old"))
    with pytest.raises(NotFoundError, match="no previous instance is at hand"):
        registry.rollback("parity")
    registry.load(make("new", version="1.1.0"))
    registry.confirm("parity")
    with pytest.raises(NotFoundError, match="no previous instance is at hand"):
        registry.rollback("parity")


def test_a_superseded_instance_is_let_go_in_time(fleet, options, make):
    registry = Registry(fleet, dataclasses.replace(options, keep_previous_s=0.05))
    old, new = registry.load(make("old")), registry.load(make("new", version="1.1.0"))
    until(lambda: state(registry, old.label) is State.UNLOADED, "the old instance is freed")
    assert served_by(registry) == new.label
    registry.unload("parity", wait=True)
    registry.close()


def test_the_same_bytes_are_not_loaded_twice(registry, make):
    folder = make("p")
    first = registry.load(folder)
    assert registry.load(folder).label == first.label
    forced = registry.load(folder, force=True)
    assert forced.generation > first.generation
    assert served_by(registry) == forced.label


def test_other_bytes_under_one_version_need_force(registry, make):
    first = registry.load(make("a"))
    other = make("b", source=lambda text: text + "// changed\n")
    with pytest.raises(PluginError, match=rf"digest {first.digest}, this one has .* load it with force"):
        registry.load(other)
    assert served_by(registry) == first.label
    assert served_by(registry) == first.label
    assert registry.load(other, force=True).digest != first.digest


def test_reload_keeps_one_previous_instance(registry, fleet, make):
    labels = [registry.load(make("p")).label]
    labels += [registry.reload("parity").label for _ in range(3)]
    until(lambda: state(registry, labels[1]) is State.UNLOADED, "what is two reloads old is freed")
    assert [state(registry, label) for label in labels] == ["UNLOADED", "UNLOADED", "WARM", "ACTIVE"]
    assert all(len(worker.instances) == 2 for worker in fleet.workers)


def test_reload_of_an_inactive_version_leaves_the_default(registry, make):
    old = registry.load(make("old"))
    pinned = registry.load(make("new", version="1.1.0"), activate=False)
    again = registry.reload("parity@1.1.0")
    assert served_by(registry) == old.label
    assert served_by(registry, "parity@1.1.0") == again.label != pinned.label


def test_an_activated_version_replaces_its_inactive_twin(registry, fleet, make):
    registry.load(make("first"))
    registry.load(make("twin", version="1.1.0"), activate=False)
    active = registry.load(make("second", version="1.1.0"), force=True)
    assert served_by(registry, "parity@1.1.0") == active.label
    until(lambda: state(registry, "parity@1.1.0#2") is State.UNLOADED, "the twin, which no pin leads to, is freed")
    assert all(worker.instances == {1, 3} for worker in fleet.workers)


def test_of_two_loads_at_once_the_newest_wins(registry, fleet, make, monkeypatch):
    folder = make("p")
    gate = Gate(registry, monkeypatch)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(registry.load, folder)
        gate.wait()
        second = pool.submit(registry.load, folder)
        gate.wait()
        gate.open.set()
        with pytest.raises(ConflictError, match=r"load of parity@1\.0\.0 .* is given up: a newer one was accepted"):
            first.result(WAIT_S)
        won = second.result(WAIT_S)
    assert served_by(registry) == won.label
    until(lambda: all(len(worker.instances) == 1 for worker in fleet.workers), "the loser is freed")


def test_a_newer_activation_beats_a_slow_load(registry, make, monkeypatch):
    old = registry.load(make("old"))
    with monkeypatch.context() as patch, ThreadPoolExecutor(1) as pool:
        gate = Gate(registry, patch)
        slow = pool.submit(registry.load, make("slow", version="1.1.0"))
        gate.wait()
        registry.activate(old.label)
        gate.open.set()
        with pytest.raises(ConflictError):
            slow.result(WAIT_S)
    assert served_by(registry) == old.label


@pytest.mark.parametrize("what", ["parity", "parity@1.0.0"])
def test_activate_what_is_not_loaded(registry, make, what):
    registry.load(make("p"))
    registry.unload("parity", wait=True)
    with pytest.raises(NotFoundError, match="is not loaded"):
        registry.activate(what)
    with pytest.raises(NotServedError):
        registry.reload(what)


def test_listeners_hear_of_every_step(registry, make):
    heard = []
    registry.subscribe(heard.append)
    status = registry.load(make("p"))
    assert [seen.state for seen in heard] == ["VERIFYING", "LOADING", "SELFTEST", "WARM", "ACTIVE"]
    assert {seen.label for seen in heard} == {status.label}


def test_load_all_reports_each(registry, make, tmp_path):
    good, bad = make("good"), make("bad", version="1.1.0", manifest=lambda _: "nothing")
    outcome = load_all(registry, [str(good), str(bad), "missing"])
    assert outcome[str(good)].state is State.ACTIVE
    assert isinstance(outcome[str(bad)], ManifestError)
    assert isinstance(outcome["missing"], NotFoundError)


def test_operations_are_audited(registry, make):
    registry.load(make("p"), actor="alice")
    with pytest.raises(VerifierError):
        registry.load(Path("/nowhere"), actor="bob")
    registry.unload("parity", wait=True, actor="carol")
    records = registry.audit()
    assert [(r.actor, r.operation, r.outcome) for r in records] == [
        ("alice", "load", "OK"),
        ("bob", "load", "NotFoundError"),
        ("carol", "unload", "OK"),
    ]
    assert records[0].label.startswith("parity@1.0.0#")
    assert len(records[0].digest) == 64
    assert "/nowhere" in records[1].detail


def test_two_hundred_reloads_leave_everything_flat(registry, fleet, make):
    registry.load(make("p"))

    def settled() -> bool:
        return all(len(worker.instances) == 2 for worker in fleet.workers)

    def reload(times: int) -> tuple[list[int], int, int]:
        for _ in range(times):
            registry.reload("parity")
        until(settled, "old instances are freed")
        return memory(fleet), len(list(Path("/proc/self/fd").iterdir())), threading.active_count()

    early = reload(5)
    late = reload(195)
    for before, after in zip(early[0], late[0], strict=True):
        assert after <= before + 4096, f"kB resident in a worker: {before} after 5 reloads, {after} after 200"
    assert late[1] <= early[1] + 2
    assert late[2] <= early[2] + 4  # the pool of jobs grows to its limit
    assert served_by(registry) == registry.index()[-1].label


def test_a_reload_keeps_next_to_nothing_in_python(registry, fleet, make, monkeypatch):
    """A leaked source, image or set of known answers would be tens of kB a reload."""
    monkeypatch.setattr(book_module, "MAX_GONE", 3)
    registry.load(make("p"))

    def traced(reloads: int) -> int:
        for _ in range(reloads):
            registry.reload("parity")
        until(lambda: all(len(worker.instances) == 2 for worker in fleet.workers), "old instances are freed")
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        before = traced(10)
        after = traced(40)
    finally:
        tracemalloc.stop()
    assert (after - before) / 40 < 6000, f"{before} bytes, then {after} after 40 reloads"


def test_a_daemon_starts_with_what_callers_can_reach():
    assert sorted(reachable()) == ["ecdsa", "keccak", "sha256", "sm2", "sm3"]
