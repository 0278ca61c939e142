"""Which devices a daemon takes."""

from __future__ import annotations

from verifier.core import devices_in_use
from verifier.drivers import list_devices


def test_auto_is_every_device_that_plugins_can_be_built_for(monkeypatch):
    monkeypatch.setenv("VERIFIER_FAKE_DEVICES", "2")
    found = devices_in_use(["auto"])
    assert set(found) <= {device.id for device in list_devices()}
    assert {"cpu", "fake:0", "fake:1"} <= set(found)
    assert found == sorted(found, key=_rank)


def _rank(device_id: str) -> int:
    return ["cuda", "cpu", "fake"].index(device_id.partition(":")[0])


def test_named_devices_are_taken_as_they_are_named():
    assert devices_in_use(["cuda:3", "cpu", "cuda:3"]) == ["cuda:3", "cpu"]
    assert devices_in_use(["auto", "fake:9"])[-1] == "fake:9"
