"""Plugins that go wrong, and workers that die: what served before still serves."""

from __future__ import annotations

import dataclasses
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from _clock import Clock
from _waiting import until

from verifier.errors import BackendError, BuildError, PluginError, SelfTestError
from verifier.model import Batch, Code, Column
from verifier.registry import Registry, State
from verifier.registry._faults import FaultCounter
from verifier.workers import Fleet, WorkerOptions

WAIT_S = 60
MARKED = 0xEE  # the fixtures go wrong on items that begin with it


@pytest.fixture
def fleet(worker_options: WorkerOptions):
    """One's own, since its processes are to die."""
    fleet = Fleet(["cpu:0", "cpu:1"], dataclasses.replace(worker_options, batch_limit_s=0.5))
    fleet.start()
    yield fleet
    fleet.close()


def run(registry: Registry, algorithm: str, first: int, device: str = "cpu:0"):
    """Verifies one item on one of the workers."""
    resolved = registry.resolve("verify", algorithm)
    key = resolved.key({})
    batch = Batch(key, 1, (Column(np.array([first], np.uint8), 1),))
    with registry.lease(key) as lease:
        (worker,) = [worker for worker in lease.workers if worker.device.id == device]
        (result,) = worker.run(lease.instance.id, lease.operation_index, key, [batch]).result(WAIT_S)
        return lease.instance.label, Code(int(result.codes[0]))


def always(text: str) -> str:
    return text.replace("ALWAYS = 0", "ALWAYS = 1")


def status(registry: Registry, label: str):
    (found,) = [status for status in registry.index() if status.label == label]
    return found


@pytest.fixture
def break_down(registry, fleet):
    """break_down(label, algorithm, device) runs a marked item until the instance is quarantined there."""

    def break_down(label, algorithm, device):
        for _ in range(registry.options.quarantine_faults):
            until(lambda: device in status(registry, label).devices, "the plugin is on the device")
            restarts = fleet[device].restarts
            with pytest.raises(BackendError):
                run(registry, algorithm, MARKED, device)
            until(lambda n=restarts: fleet[device].restarts > n, "the worker is replaced")
        until(lambda: f"quarantined on {device}" in status(registry, label).reason, "the plugin is quarantined")

    return break_down


@pytest.fixture
def served(registry, make):
    """The toy plugin, which has to serve whatever happens."""
    return registry.load(make("good"))


@pytest.fixture
def still_serves(registry, fleet, served):
    """still_serves() waits until both workers, which a fault may have ended, answer for the good plugin."""

    def answers(device):
        try:
            return run(registry, "PARITY", 2, device) == (served.label, Code.VALID)
        except (BackendError, ValueError):  # it is down, or the plugin is not back on it
            return False

    def still_serves():
        for device in ("cpu:0", "cpu:1"):
            until(lambda d=device: answers(d), f"the good plugin serves on {device}")

    return still_serves


@pytest.mark.parametrize("kind", ["address", "crash", "loop"])
def test_a_fault_in_the_known_answers_fails_the_load(registry, fleet, make, still_serves, kind):
    with pytest.raises(BackendError):
        registry.load(make("bad", of=f"faulty-{kind}", manifest=always))
    failed = registry.index()[-1]
    assert (failed.state, failed.devices) == (State.FAILED, ())
    still_serves()
    good = {registry.resolve("verify", "PARITY").instance.id}
    until(lambda: all(worker.instances == good for worker in fleet.workers), "nothing of the bad one is left")


@pytest.mark.parametrize("kind", ["address", "crash", "loop"])
def test_a_plugin_that_keeps_faulting_is_quarantined(registry, make, still_serves, break_down, kind):
    algorithm = f"FAULTY_{kind.upper()}"
    bad = registry.load(make("bad", of=f"faulty-{kind}"))
    assert run(registry, algorithm, 2) == (bad.label, Code.VALID)
    for device in ("cpu:0", "cpu:1"):
        break_down(bad.label, algorithm, device)
    assert status(registry, bad.label).state is State.FAILED
    assert [(r.operation, r.label) for r in registry.audit() if r.operation == "quarantine"] == [
        ("quarantine", bad.label)
    ] * 2
    still_serves()


def test_a_fault_that_several_may_have_done_is_counted_for_none(registry, fleet, make, served, still_serves):
    other = registry.load(make("other", of="faulty-crash"))
    lost = BackendError("cpu:0: illegal address", sticky=True)
    for _ in range(2 * registry.options.quarantine_faults):
        registry._supervision._faulted(fleet["cpu:0"], [served.id, other.id], lost)
    assert status(registry, other.label).devices == ("cpu:0", "cpu:1")
    still_serves()
    for _ in range(registry.options.quarantine_faults):
        registry._supervision._faulted(fleet["cpu:0"], [other.id], lost)
    assert status(registry, other.label).devices == ("cpu:1",)
    still_serves()


def test_faults_are_counted_within_a_window_and_forgotten_after_it():
    clock = Clock()
    counter = FaultCounter(2, 10.0, clock)
    assert [counter.count((1, "cpu:0")), counter.count((1, "cpu:1"))] == [False, False]
    clock.now += 10.0
    assert counter.count((1, "cpu:0"))
    clock.now += 10.1
    assert not counter.count((1, "cpu:0"))
    for instance in range(2, 1000):  # swaps of a plugin that faults now and then, for years
        clock.now += 10.1
        assert not counter.count((instance, "cpu:0"))
    assert len(counter._times) == 1


def test_an_audit_on_a_full_disk_keeps_nobody_from_quarantine(registry, fleet, make, served, monkeypatch):
    other = registry.load(make("new", version="1.1.0"))
    lost = BackendError("illegal address", sticky=True)
    full = os.open("/dev/full", os.O_WRONLY)
    with monkeypatch.context() as patch:
        patch.setattr(registry._audit, "_file", full)
        for worker in fleet.workers:
            for _ in range(registry.options.quarantine_faults):
                registry._supervision._faulted(worker, [other.id], lost)
        registry.denied("somebody", "Load", "needs the role admin")
    os.close(full)
    assert status(registry, other.label).state is State.FAILED
    assert status(registry, served.label).active
    assert [r.operation for r in registry.audit()][-4:] == ["quarantine", "quarantine", "rollback", "Load"]


def test_a_quarantined_version_gives_way_to_the_one_before(registry, make, served, still_serves, break_down):
    crash = "if (batch.inputs[0].offsets == 0 && value(batch.inputs[0], item).data[0] == 0xee) __builtin_trap();"
    folder = make(
        "new",
        version="1.1.0",
        source=lambda text: text.replace("if (!lane.live) return;", crash + "\n    if (!lane.live) return;", 1),
    )
    new = registry.load(folder)
    assert run(registry, "PARITY", 2) == (new.label, Code.VALID)
    for device in ("cpu:0", "cpu:1"):
        break_down(new.label, "PARITY", device)
    until(lambda: status(registry, served.label).active, "the version before is active again")
    assert status(registry, new.label).state is State.FAILED
    assert registry.audit()[-1].operation == "rollback"
    still_serves()


def test_faults_in_one_place_leave_the_other_devices(registry, make, still_serves, break_down):
    bad = registry.load(make("bad", of="faulty-crash"))
    break_down(bad.label, "FAULTY_CRASH", "cpu:0")
    found = status(registry, bad.label)
    assert (found.state, found.devices) == (State.ACTIVE, ("cpu:1",))
    assert run(registry, "FAULTY_CRASH", 2, "cpu:1") == (bad.label, Code.VALID)
    still_serves()


def test_a_wrong_answer_fails_the_load(registry, make, still_serves):
    with pytest.raises(SelfTestError, match=r"FAULTY_ANSWER: case wrong .* expected VALID, got INVALID"):
        registry.load(make("bad", of="faulty-answer"))
    still_serves()


def test_a_state_over_the_budget_is_refused_before_it_is_loaded(registry, make, still_serves):
    with pytest.raises(
        PluginError, match=r"needs 70368744177664 bytes of state on cpu:0, \d+ are left of 80% of its"
    ):
        registry.load(make("bad", of="faulty-memory"))
    assert "LOADING" not in [step.state for step in registry.history("faulty_memory")]
    still_serves()


def test_out_of_memory_at_load(registry, make, monkeypatch, still_serves):
    monkeypatch.setattr(registry._loader, "check_budget", lambda *_: None)
    with pytest.raises((BackendError, PluginError)):
        registry.load(make("bad", of="faulty-memory"))
    assert registry.index()[-1].state is State.FAILED
    still_serves()


def test_a_slow_compile_is_given_up_and_nobody_waits_for_it(registry, make, monkeypatch, served, still_serves):
    monkeypatch.setattr(registry._loader, "options", dataclasses.replace(registry.options, build_timeout_s=1.0))
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(registry.load, make("slow", of="faulty-compile"))
        while not slow.done():
            assert run(registry, "PARITY", 2) == (served.label, Code.VALID)
        with pytest.raises(BuildError, match="the build took more than 1 s"):
            slow.result(WAIT_S)
    still_serves()


def test_a_slow_compile_ends_well(registry, make, still_serves):
    loaded = registry.load(
        make("slow", of="faulty-compile", manifest=lambda text: text.replace("SIZE = 600", "SIZE = 60"))
    )
    assert run(registry, "FAULTY_COMPILE", 2) == (loaded.label, Code.VALID)
    still_serves()


def test_a_killed_worker_degrades_and_comes_back_tested(registry, fleet, served, still_serves):
    heard = []
    registry.subscribe(heard.append)
    os.kill(fleet["cpu:1"].pid, signal.SIGKILL)
    until(lambda: [s for s in heard if s.devices == ("cpu:0",)], "the loss is told")
    lost = next(s for s in heard if s.devices == ("cpu:0",))
    assert (lost.state, lost.missing_devices) == (State.DEGRADED, ("cpu:1",))
    still_serves()
    assert status(registry, served.label).state is State.ACTIVE


def test_what_is_loaded_while_a_worker_is_down_comes_to_it_later(registry, fleet, make, still_serves):
    os.kill(fleet["cpu:1"].pid, signal.SIGKILL)
    until(lambda: fleet["cpu:1"].state.value != "up" or fleet["cpu:1"].restarts, "the loss is noticed")
    loaded = registry.load(make("other", of="faulty-crash"))
    until(lambda: status(registry, loaded.label).devices == ("cpu:0", "cpu:1"), "it is on both")
    assert run(registry, "FAULTY_CRASH", 2, "cpu:1") == (loaded.label, Code.VALID)
    still_serves()


def test_a_restarted_worker_that_answers_wrongly_gets_nothing(registry, fleet, served, monkeypatch):
    def wrong(*_args, **_kwargs):
        raise SelfTestError("case x: expected VALID, got INVALID")

    monkeypatch.setattr(registry._loader, "test", wrong)
    os.kill(fleet["cpu:1"].pid, signal.SIGKILL)
    until(lambda: "quarantined on cpu:1" in status(registry, served.label).reason, "it is kept off the device")
    assert status(registry, served.label).devices == ("cpu:0",)
    assert run(registry, "PARITY", 2) == (served.label, Code.VALID)


def test_a_process_that_took_over_during_a_load_is_asked_before_it_serves(
    registry, fleet, make, monkeypatch, still_serves
):
    """The worker dies after its known answers and before the switch: its successor has to give them again."""
    test, tested = registry._loader.test, []

    def die_after(instance, workers, **options):
        test(instance, workers, **options)
        tested.append([worker.device.id for worker in workers])
        if len(tested) == 1:
            restarts = fleet["cpu:1"].restarts
            os.kill(fleet["cpu:1"].pid, signal.SIGKILL)
            until(
                lambda: fleet["cpu:1"].restarts > restarts and fleet["cpu:1"].state.value == "up", "another took over"
            )

    monkeypatch.setattr(registry._loader, "test", die_after)
    loaded = registry.load(make("other", of="faulty-crash"))
    until(lambda: status(registry, loaded.label).devices == ("cpu:0", "cpu:1"), "it is on both")
    assert tested[0] == ["cpu:0", "cpu:1"]
    assert ["cpu:1"] in tested[1:]
    still_serves()


def test_a_batch_may_run_again_on_an_instance_that_drains(registry, fleet, served):
    """Its worker died under it: what holds a lease finds its instance on the successor."""
    key = registry.resolve("verify", "PARITY").key({})
    lease = registry.lease(key)
    registry.unload("parity")
    worker = fleet["cpu:0"]
    batch = Batch(key, 1, (Column(np.array([2], np.uint8), 1),))
    restarts = worker.restarts
    os.kill(worker.pid, signal.SIGSTOP)  # so that the batch is on it when it dies
    lost = worker.run(lease.instance.id, lease.operation_index, key, [batch])
    os.kill(worker.pid, signal.SIGKILL)
    with pytest.raises(BackendError):
        lost.result(WAIT_S)
    until(lambda: worker.restarts > restarts and worker.state.value == "up", "another took over")
    (result,) = worker.run(lease.instance.id, lease.operation_index, key, [batch]).result(WAIT_S)
    assert result.codes.tolist() == [Code.VALID]
    lease.release()
    until(lambda: status(registry, served.label).state is State.UNLOADED, "it is freed then")


def test_an_unload_during_the_test_of_a_restart_holds_up_no_other(registry, fleet, make, monkeypatch):
    gone = registry.load(make("gone"))
    other = registry.load(make("other", manifest=lambda text: text.replace('name = "parity"', 'name = "other"')))
    worker = fleet["cpu:0"]
    run, begun, go_on = worker.run, threading.Event(), threading.Event()

    def held(instance_id, *arguments):
        if instance_id == gone.id:
            begun.set()
            assert go_on.wait(WAIT_S)
        return run(instance_id, *arguments)

    monkeypatch.setattr(worker, "run", held)
    os.kill(worker.pid, signal.SIGKILL)
    assert begun.wait(WAIT_S)
    registry.unload(gone.label)
    registry.unload(gone.label, wait=True, timeout_s=0.2)  # whatever can be freed is freed by now
    go_on.set()
    until(lambda: "cpu:0" in status(registry, other.label).devices, "the other plugin is back")
    until(lambda: status(registry, gone.label).state is State.UNLOADED, "the unloaded one is freed")
    assert worker.instances == {other.id}


def test_an_instance_that_is_missing_on_a_worker_is_brought_there_once(registry, fleet, served, monkeypatch):
    """A worker comes up while a load ends: both would bring it there, and a second load leaks the first."""
    worker, instance = fleet["cpu:0"], registry.resolve("verify", "PARITY").instance
    with registry._book.lock:
        instance.workers = tuple(other for other in instance.workers if other is not worker)
    worker.unload(instance.id)
    load, loads, second = worker.load, [], threading.Event()

    def slow(*arguments):
        loads.append(arguments)
        if len(loads) == 2:
            second.set()
        second.wait(1.0)
        load(*arguments)

    monkeypatch.setattr(worker, "load", slow)
    registry._supervision._changed(worker)
    registry._supervision.check_all(instance)
    until(lambda: worker in instance.workers, "it is back")
    with ThreadPoolExecutor(1) as pool:  # whatever else was begun is over when this is
        pool.submit(registry._supervision._restore, worker, None).result(WAIT_S)
    assert len(loads) == 1
