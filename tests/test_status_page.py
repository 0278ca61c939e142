"""The status page of a daemon: where it listens, and that it is no obstacle to a second daemon."""

from __future__ import annotations

import http.client
import json
import socket
from types import SimpleNamespace

import pytest
from structlog.testing import capture_logs

from verifier import _status_page
from verifier._status_page import StatusPage
from verifier.errors import ConfigError
from verifier.registry import InstanceStatus, State
from verifier.scheduling import Held
from verifier.telemetry import Metrics


def instance(label: str, generation: int, state: State, *, active: bool = False, reason: str = "") -> InstanceStatus:
    return InstanceStatus(
        generation, label, "1.0.0", generation, "d", state, reason, active, 0, ("cpu",), (), "/secret/path", 5.0
    )


class Registry:
    def __init__(self, statuses=()) -> None:
        self.statuses = list(statuses)

    def index(self):
        return self.statuses

    def active(self):
        operations = [SimpleNamespace(id="verify/A", role="call"), SimpleNamespace(id="enroll/A", role="enroll")]
        manifest = SimpleNamespace(operations=operations)
        return [SimpleNamespace(label=s.label, manifest=manifest) for s in self.statuses if s.active]


@pytest.fixture
def page():
    made = []

    def make(statuses=()) -> StatusPage:
        worker = SimpleNamespace(
            device_id="cpu",
            device=SimpleNamespace(name="a processor"),
            state=SimpleNamespace(value="up"),
            errors={"died": 2, "watchdog": 1},
        )
        scheduler = SimpleNamespace(held=lambda: {"a": Held(1, 10, 100), "b": Held(1, 5, 50)})
        fleet = SimpleNamespace(workers=[worker])
        made.append(StatusPage(fleet, Registry(statuses), scheduler, Metrics(), ("127.0.0.1:1",), lambda: "serving"))
        return made[-1]

    yield make
    for one in made:
        one.close()


def look(port: int) -> dict:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", "/status.json")
    status = json.load(connection.getresponse())
    connection.close()
    return status


def test_a_taken_default_port_is_no_obstacle_and_a_named_one_is(page, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        monkeypatch.setattr(_status_page, "DEFAULT_ADDRESS", address)
        with capture_logs() as logs:
            assert page().open("auto", any_host=False) is None
        assert [event["event"] for event in logs] == ["status_page_missing"]
        with pytest.raises(ConfigError, match=rf"status\.listen: {address}"):
            page().open(address, any_host=False)
    assert page().open("auto", any_host=False) == int(address.rpartition(":")[2])


def test_what_is_said_of_devices_and_plugins(page):
    statuses = [
        instance("b", 1, State.UNLOADED),
        instance("b", 2, State.ACTIVE, active=True),
        instance("a", 3, State.FAILED, reason="does not compile: " + "x" * 500 + "\nsecond line"),
    ]
    status = look(page(statuses).open("127.0.0.1:0", any_host=False))
    assert status["devices"] == [{"id": "cpu", "name": "a processor", "state": "up", "faults": 3, "items_per_s": 0.0}]
    assert [(p["label"], p["state"], p["operations"]) for p in status["plugins"]] == [
        ("a@1.0.0#3", "failed", []),
        ("b@1.0.0#2", "active", ["verify/A"]),
    ]
    assert len(status["plugins"][0]["reason"]) == 203
    assert status["queue"] == {"items": 15, "bytes": 150, "calls": 0}
    assert "/secret/path" not in json.dumps(status)
