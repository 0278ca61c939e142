"""Fakes fail when and how they are told to."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import numpy as np
import pytest

from verifier.drivers import BatchStruct, list_devices, open_driver
from verifier.drivers.build import build_image, host_target
from verifier.drivers.fake import Fault, faults_json
from verifier.errors import BackendError, ConfigError, DeviceUnavailableError


@pytest.fixture(autouse=True)
def two_fakes(monkeypatch):
    monkeypatch.setenv("VERIFIER_FAKE_DEVICES", "2")
    monkeypatch.delenv("VERIFIER_FAKE_FAULTS", raising=False)


@pytest.fixture
def image(parity_files, image_cache):
    return build_image(parity_files, "parity.cu", host_target(), {}, cache=image_cache)


def open_with(*faults: Fault, device: str = "fake:0", **options):
    return open_driver(device, faults=faults, **options)


def test_fakes_exist_only_where_they_are_enabled(monkeypatch):
    assert {"fake:0", "fake:1"} <= {info.id for info in list_devices()}
    with pytest.raises(DeviceUnavailableError, match="VERIFIER_FAKE_DEVICES"):
        open_driver("fake:2")
    monkeypatch.delenv("VERIFIER_FAKE_DEVICES")
    assert not [info for info in list_devices() if info.kind == "fake"]
    with pytest.raises(DeviceUnavailableError, match="VERIFIER_FAKE_DEVICES"):
        open_driver("fake:0")


@pytest.mark.parametrize("number", ["x", "-1", "65"])
def test_the_number_of_fakes_is_checked(monkeypatch, number):
    monkeypatch.setenv("VERIFIER_FAKE_DEVICES", number)
    with pytest.raises(ConfigError, match="VERIFIER_FAKE_DEVICES"):
        open_driver("fake:0")


def test_calls_are_recorded(image):
    driver = open_with()
    module, stream = driver.load(image), driver.stream()
    stream.launch(module.function("publish"), BatchStruct())
    stream.synchronize()
    assert driver.calls == ["load", "stream", "launch publish"]
    for child in (stream, module, driver):
        child.close()


def test_the_host_does_not_see_device_memory():
    driver = open_with()
    buffer, stream, back = driver.allocate(100), driver.stream(), np.zeros(100, np.uint8)
    assert buffer.array is None
    stream.copy_out(back, buffer.address)
    stream.synchronize()
    assert (back == 0xCD).all()
    assert driver.allocate_managed(8).array is not None


def test_memory_is_bounded():
    driver = open_with(memory_bytes=1000)
    first = driver.allocate(600)
    with pytest.raises(BackendError, match="401 bytes, 400 are free"):
        driver.allocate(401)
    second = driver.allocate_managed(400)
    first.close()
    first.close()
    assert driver.memory_free_bytes() == 600
    second.close()
    driver.close()


@pytest.mark.parametrize("call", ["load", "allocate", "allocate_managed", "allocate_pinned", "register", "stream"])
def test_calls_of_the_device_fail_at_once(image, call):
    driver = open_with(Fault(call, error="told to"))
    arguments = {"load": (image,), "register": (np.zeros(8, np.uint8),), "stream": ()}.get(call, (8,))
    with pytest.raises(BackendError, match="told to"):
        getattr(driver, call)(*arguments)
    getattr(driver, call)(*arguments).close()
    driver.close()


@pytest.mark.parametrize("call", ["launch", "launch publish", "copy_in", "copy_out", "fill", "wait"])
def test_calls_of_a_stream_fail_when_it_is_waited_for(image, call):
    driver = open_with(Fault(call, error="told to"))
    module, stream = driver.load(image), driver.stream()
    buffer, array = driver.allocate(8), np.zeros(8, np.uint8)
    event = stream.record()
    stream.launch(module.function("publish"), BatchStruct())
    stream.copy_in(buffer.address, array)
    stream.copy_out(array, buffer.address)
    stream.fill(buffer.address, 0, 8)
    stream.wait(event)
    event.synchronize()
    with pytest.raises(BackendError, match="told to"):
        stream.record().synchronize()
    with pytest.raises(BackendError, match="told to"):
        stream.synchronize()
    stream.synchronize()
    for child in (buffer, stream, module, driver):
        child.close()


def test_what_follows_a_failure_is_skipped():
    driver = open_with(Fault("fill", error="told to"))
    stream, buffer = driver.stream(), driver.allocate_managed(4)
    buffer.array[:] = 1
    stream.fill(buffer.address, 2, 4)
    stream.fill(buffer.address, 3, 4)
    with pytest.raises(BackendError):
        driver.synchronize()
    assert buffer.array.tolist() == [1, 1, 1, 1]
    stream.fill(buffer.address, 4, 4)
    driver.synchronize()
    assert buffer.array.tolist() == [4, 4, 4, 4]


def test_a_stream_that_waits_for_a_failed_one_fails():
    driver = open_with(Fault("fill", error="told to"))
    first, second, buffer = driver.stream(), driver.stream(), driver.allocate_managed(4)
    first.fill(buffer.address, 2, 4)
    second.wait(first.record())
    second.fill(buffer.address, 3, 4)
    with pytest.raises(BackendError, match="told to"):
        second.synchronize()
    assert buffer.array.tolist() == [0xCD] * 4


def test_after_and_times():
    driver = open_with(Fault("allocate", after=2, times=2, error="told to"))
    outcomes = []
    for _ in range(6):
        try:
            driver.allocate(1)
            outcomes.append(True)
        except BackendError:
            outcomes.append(False)
    assert outcomes == [True, True, False, False, True, True]


def test_without_end():
    driver = open_with(Fault("allocate", after=1, times=0, error="told to"))
    driver.allocate(1)
    for _ in range(5):
        with pytest.raises(BackendError):
            driver.allocate(1)


def test_a_sticky_error_loses_the_device():
    driver = open_with(Fault("fill", error="illegal address", sticky=True))
    stream, buffer = driver.stream(), driver.allocate(8)
    stream.fill(buffer.address, 0, 8)
    for call in (stream.synchronize, lambda: driver.allocate(8), driver.stream):
        with pytest.raises(BackendError, match="illegal address") as caught:
            call()
        assert caught.value.sticky
    stream.fill(buffer.address, 0, 8)
    with pytest.raises(BackendError, match="illegal address"):
        stream.synchronize()


def test_errors_keep_their_stickiness_between_processes():
    error = pickle.loads(pickle.dumps(BackendError("x", sticky=True)))
    assert (str(error), error.sticky) == ("x", True)


def test_only_the_named_device_fails():
    fault = Fault("allocate", device="fake:1", times=0, error="told to")
    open_with(fault).allocate(1)
    with pytest.raises(BackendError):
        open_with(fault, device="fake:1").allocate(1)


def test_a_fault_fires_once_over_restarts(tmp_path):
    fault = Fault("allocate", error="told to", once=str(tmp_path / "fired"))
    with pytest.raises(BackendError):
        open_with(fault).allocate(1)
    open_with(fault).allocate(1)


def test_faults_come_from_the_environment(monkeypatch):
    monkeypatch.setenv("VERIFIER_FAKE_FAULTS", faults_json([Fault("allocate", error="told to", sticky=True)]))
    with pytest.raises(BackendError, match="told to") as caught:
        open_driver("fake:0").allocate(1)
    assert caught.value.sticky


@pytest.mark.parametrize("text", ["{", "[1]", '[{"call": "x", "sort": 1}]', '[{"error": "x"}]'])
def test_faults_from_the_environment_are_checked(monkeypatch, text):
    monkeypatch.setenv("VERIFIER_FAKE_FAULTS", text)
    with pytest.raises(ConfigError, match="VERIFIER_FAKE_FAULTS"):
        open_driver("fake:0")


def test_a_module_with_work_is_not_unloaded(image):
    driver = open_with(Fault("wait", hang=True))
    module, stream = driver.load(image), driver.stream()
    gate = driver.stream()
    gate.wait(gate.record())  # hangs: what waits for it does too
    stream.wait(gate.record())
    stream.launch(module.function("publish"), BatchStruct())
    with pytest.raises(BackendError, match="1 launches of it are not done"):
        module.close()


def test_a_hang_holds_the_stream_and_nothing_else():
    driver = open_with(Fault("fill", hang=True))
    stuck, well, buffer = driver.stream(), driver.stream(), driver.allocate(8)
    stuck.fill(buffer.address, 0, 8)
    event = stuck.record()
    assert not event.reached()
    waiter = threading.Thread(target=event.synchronize, daemon=True)
    waiter.start()
    well.fill(buffer.address, 0, 8)
    well.synchronize()
    assert waiter.is_alive()


def test_a_delay_waits_and_goes_on():
    driver = open_with(Fault("fill", delay_s=0.05))
    stream, buffer = driver.stream(), driver.allocate_managed(1)
    first = stream.record()
    stream.fill(buffer.address, 5, 1)
    last = stream.record()
    last.synchronize()
    assert last.elapsed_ns(first) >= 50_000_000
    assert buffer.array[0] == 5


def test_what_is_held_waits_for_its_file_to_go(tmp_path):
    gate = tmp_path / "gate"
    driver = open_with(Fault("fill", held=str(gate), times=0))
    stream, buffer = driver.stream(), driver.allocate_managed(2)
    stream.fill(buffer.address, 5, 1)
    stream.synchronize()
    gate.touch()
    stream.fill(buffer.address + 1, 7, 1)
    last = stream.record()
    assert not last.reached()
    gate.unlink()
    last.synchronize()
    assert buffer.array[:2].tolist() == [5, 7]


def test_a_crash_ends_the_process(tmp_path):
    program = """
        from verifier.drivers import open_driver
        open_driver("fake:0").allocate(8)
        print("alive")
    """
    environment = os.environ | {
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "VERIFIER_FAKE_FAULTS": faults_json([Fault("allocate", crash=True)]),
    }
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        check=False,
    )
    assert done.returncode == -signal.SIGSEGV
