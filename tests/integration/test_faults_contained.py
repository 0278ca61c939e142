"""Plugins that go wrong in a running daemon, while clients use another plugin: that one's answers are all right."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import threading
from pathlib import Path

import grpc
import pytest
from _admin import FIXTURES, NOT_SERVING, SERVING, AdminDaemon, copy_plugin, refused
from _daemon_process import bits
from _load import Load
from _waiting import until

from verifier.drivers import list_devices, open_driver
from verifier.v1 import admin_pb2
from verifier.v1 import verifier_pb2 as pb

CALL_S = 120
MARKED = b"\xee"  # the fixtures go wrong on items that begin with it
FAULTS_UNTIL_QUARANTINE = 3
GOOD = "parity@1.0.0#1"


@pytest.fixture(scope="module", params=["cpu", pytest.param("cuda:0", marks=pytest.mark.gpu)])
def daemon(request, tmp_path_factory):
    """A daemon with one device and the toy."""
    if request.param not in {device.id for device in list_devices()}:
        pytest.skip(f"there is no {request.param}")
    folder = tmp_path_factory.mktemp("daemon")
    made = AdminDaemon(
        folder,
        [str(copy_plugin(folder / "good"))],
        "devices.batch_limit_s=1",
        "devices.item_limit_s=0.002",
        "plugins.build_timeout_s=20",
        devices=(request.param,),
    )
    yield made
    made.process.kill()
    made.stop()


@pytest.fixture
def traffic(daemon, tmp_path):
    """Clients of the toy all through the test; every answer of theirs must be right."""
    with Load(daemon.address, tmp_path, processes=2, depth=3, items=200) as load:
        yield load
    load.report.assert_all_right()
    assert set(load.report.served_by) == {GOOD}


def request_of(plugin: str, *values: bytes) -> pb.VerifyRequest:
    """Items of one byte."""
    offsets = b"".join(i.to_bytes(4, "little") for i in range(len(values) + 1))
    return pb.VerifyRequest(
        items=len(values),
        scheme=pb.Scheme(plugin=plugin, input_kind=pb.INPUT_KIND_MESSAGE),
        input=pb.Column(data=b"".join(values), offsets=offsets),
    )


def ask(daemon: AdminDaemon, plugin: str, *values: bytes) -> pb.VerifyResponse:
    return daemon.stub.Verify(request_of(plugin, *values), timeout=CALL_S)


def assert_serves(daemon: AdminDaemon, plugin: str) -> None:
    answer = ask(daemon, plugin, b"\x02", b"\x03")
    assert bits(answer.decided, 2).tolist() == [True, True]
    assert bits(answer.valid, 2).tolist() == [True, False]


def always(text: str) -> str:
    return text.replace("ALWAYS = 0", "ALWAYS = 1")


def newest(daemon: AdminDaemon, plugin: str):
    return [instance for instance in daemon.instances().values() if instance.plugin == plugin][-1]


KINDS = ["address", "loop", "crash"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_plugin_that_faults_on_an_item_is_quarantined_and_the_other_serves(daemon, traffic, tmp_path, kind):
    plugin = f"faulty_{kind}"
    operation = f"verify/FAULTY_{kind.upper()}"
    folder = copy_plugin(tmp_path / plugin, of=f"faulty-{kind}")
    loaded = daemon.load(folder)
    assert loaded.active
    until(lambda: daemon.health(operation) == SERVING, "the new plugin is served")
    assert_serves(daemon, plugin)
    # An item that ends the device's process is never decided, and takes nobody else's with it.
    asked = 0
    while newest(daemon, plugin).state != admin_pb2.PLUGIN_STATE_FAILED:
        assert asked < 2 * FAULTS_UNTIL_QUARANTINE, "it is not quarantined"
        asked += 1
        call = daemon.stub.Verify.future(request_of(plugin, b"\x02", MARKED), timeout=CALL_S)
        assert call.code() in (grpc.StatusCode.OK, grpc.StatusCode.FAILED_PRECONDITION)
        if call.code() is grpc.StatusCode.OK:
            assert bits(call.result().decided, 2).tolist() == [False, False]
            assert bits(call.result().valid, 2).tolist() == [False, False]
    assert "quarantined on" in newest(daemon, plugin).reason
    until(lambda: daemon.health(operation) == NOT_SERVING, "health says so")
    with refused(grpc.StatusCode.FAILED_PRECONDITION, f"{plugin} is not served"):
        ask(daemon, plugin, b"\x02")
    records = daemon.admin.Audit(admin_pb2.AuditRequest(), timeout=CALL_S).records
    assert [r.label for r in records if r.operation == "quarantine"][-1] == loaded.label
    assert not [r for r in records if r.operation == "quarantine" and r.label == GOOD]
    # The operator may bring it back.
    until(lambda: daemon.health("verify/PARITY") == SERVING, "the good plugin is served again")
    assert daemon.load(folder).active
    until(lambda: daemon.health(operation) == SERVING, "health says that it is back")
    assert_serves(daemon, plugin)
    daemon.admin.Unload(admin_pb2.UnloadPluginRequest(plugin=plugin, wait=True), timeout=CALL_S)
    until(lambda: daemon.health(operation) == NOT_SERVING, "health says that it was unloaded")


@pytest.mark.parametrize("kind", KINDS)
def test_a_plugin_that_faults_on_its_known_answers_never_serves(daemon, traffic, tmp_path, kind):
    folder = copy_plugin(tmp_path / "bad", of=f"faulty-{kind}", manifest=always)
    with refused(grpc.StatusCode.UNAVAILABLE):
        daemon.load(folder)
    failed = newest(daemon, f"faulty_{kind}")
    assert (failed.state, list(failed.devices)) == (admin_pb2.PLUGIN_STATE_FAILED, [])
    until(lambda: daemon.health("verify/PARITY") == SERVING, "the good plugin is served")


def test_a_wrong_answer_never_serves(daemon, traffic):
    with refused(grpc.StatusCode.FAILED_PRECONDITION, "case wrong"):
        daemon.load(copy_of("answer"))
    assert newest(daemon, "faulty_answer").state == admin_pb2.PLUGIN_STATE_FAILED
    assert daemon.health("verify/PARITY") == SERVING


def test_more_state_than_the_device_may_hold_is_refused(daemon, traffic):
    with refused(grpc.StatusCode.FAILED_PRECONDITION, "bytes of state"):
        daemon.load(copy_of("memory"))
    assert daemon.health("verify/PARITY") == SERVING


@contextlib.contextmanager
def scarce_memory(daemon: AdminDaemon):
    """Leaves the device half a GiB: the rest of a GPU's is held here, a CPU's worker gets a limit of the system."""
    (device_id,) = daemon.ready_event()["devices"]
    if device_id == "cpu":
        (worker,) = daemon.workers()
        before = resource.prlimit(worker, resource.RLIMIT_AS)
        used = int(Path(f"/proc/{worker}/statm").read_text().split()[0]) * resource.getpagesize()
        resource.prlimit(worker, resource.RLIMIT_AS, (used + (1 << 29), before[1]))
        try:
            yield
        finally:
            resource.prlimit(worker, resource.RLIMIT_AS, before)
        return
    with contextlib.ExitStack() as stack:
        driver = stack.enter_context(contextlib.closing(open_driver(device_id)))
        stack.enter_context(contextlib.closing(driver.allocate(driver.memory_free_bytes() - (1 << 29))))
        yield


def test_out_of_memory_at_load_is_contained(daemon, traffic, tmp_path):
    """Within the budget, and yet more than there is: the device says so, and the load has failed."""
    workers = daemon.workers()
    folder = copy_plugin(tmp_path / "big", of="faulty-memory", manifest=lambda text: text.replace("65536", "1"))
    with scarce_memory(daemon), refused(grpc.StatusCode.UNAVAILABLE, "bytes"):
        daemon.load(folder)
    assert newest(daemon, "faulty_memory").state == admin_pb2.PLUGIN_STATE_FAILED
    assert daemon.health("verify/PARITY") == SERVING
    assert daemon.workers() == workers, "it is no reason to end the process"
    assert daemon.load(folder).active, "and with memory it loads"
    daemon.admin.Unload(admin_pb2.UnloadPluginRequest(plugin="faulty_memory", wait=True), timeout=CALL_S)


def copy_of(kind: str) -> Path:
    return FIXTURES / f"faulty-{kind}"


def test_a_slow_compile_holds_up_nobody(daemon, traffic):
    """While it compiles, the other plugin is served and even swapped; then it is given up by its time limit."""
    problems = []

    def load() -> None:
        try:
            daemon.load(copy_of("compile"))
        except grpc.RpcError as error:
            problems.append(error)

    loading = threading.Thread(target=load)
    loading.start()
    until(lambda: "faulty_compile" in {i.plugin for i in daemon.instances().values()}, "the load has begun")
    answered = 0
    while loading.is_alive():
        assert_serves(daemon, "parity")
        answered += 1
    loading.join()
    assert answered > 3
    assert [error.code() for error in problems] == [grpc.StatusCode.FAILED_PRECONDITION]
    assert "the build took more than 20 s" in problems[0].details()


def test_a_killed_worker_costs_no_verdict(daemon, traffic):
    """kill -9 again and again: every call is answered, and right, for the work is run again."""
    for _ in range(3):
        (victim,) = daemon.workers()
        os.kill(victim, signal.SIGKILL)
        until(lambda victim=victim: daemon.workers() not in ([], [victim]), "the worker is replaced")
        until(lambda: newest(daemon, "parity").devices, "the plugin is back on it")
        assert_serves(daemon, "parity")
    until(lambda: daemon.health("verify/PARITY") == SERVING, "health says so")


def test_a_killed_worker_without_time_to_run_again_leaves_items_undecided(daemon, tmp_path):
    """With a deadline shorter than the restart every call still has an answer: right, undecided, or too late."""
    (victim,) = daemon.workers()
    with Load(daemon.address, tmp_path, processes=1, depth=2, items=100, call_s=0.3) as load:
        until(lambda: newest(daemon, "parity").leases, "work is under way")
        os.kill(victim, signal.SIGKILL)
        until(lambda: daemon.workers() not in ([], [victim]), "the worker is replaced")
        until(lambda: newest(daemon, "parity").devices, "the plugin is back on it")
        assert_serves(daemon, "parity")
    load.report.assert_right_or_undecided()
