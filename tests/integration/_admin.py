"""A daemon whose plugins a test changes: its admin socket, and plugins made from the fixtures."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
from _daemon_process import ROOT, DaemonProcess
from grpc_health.v1 import health_pb2, health_pb2_grpc

from verifier.v1 import admin_pb2, admin_pb2_grpc
from verifier.v1 import verifier_pb2 as pb

FIXTURES = ROOT / "tests" / "fixtures" / "plugins"
WAIT_S = 90.0
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING

# Versions of the toy: what they say of an item whose sum is odd. All give the same verdicts.
PLAIN, MARKED = "1.0.0", "1.1.0"
MARKS = {MARKED: pb.PROBLEM_CODE_OUT_OF_RANGE}


class AdminDaemon(DaemonProcess):
    """A daemon with an admin socket and a health channel."""

    def __init__(self, folder: Path, plugins: list[str], *settings: str, **options) -> None:
        self.socket = folder / "admin.sock"
        super().__init__(folder, plugins, f'admin.listen=["unix:{self.socket}"]', *settings, **options)
        self.admin_channel = grpc.insecure_channel(f"unix:{self.socket}")
        self.admin = admin_pb2_grpc.PluginAdminStub(self.admin_channel)
        self.health_channel = grpc.insecure_channel(self.ready_event()["health"][0])
        self._health = health_pb2_grpc.HealthStub(self.health_channel)

    def stop(self, *arguments, **options) -> int:
        self.admin_channel.close()
        self.health_channel.close()
        return super().stop(*arguments, **options)

    def load(self, plugin: Path | str, *, force: bool = False, keep_inactive: bool = False):
        request = admin_pb2.LoadPluginRequest(plugin=str(plugin), force=force, keep_inactive=keep_inactive)
        return self.admin.Load(request, timeout=WAIT_S)

    def instances(self) -> dict[str, admin_pb2.PluginInstance]:
        """By label."""
        listed = self.admin.List(admin_pb2.ListPluginsRequest(), timeout=WAIT_S).instances
        return {instance.label: instance for instance in listed}

    def health(self, service: str) -> int:
        return self._health.Check(health_pb2.HealthCheckRequest(service=service), timeout=WAIT_S).status


@contextmanager
def refused(code: grpc.StatusCode, text: str = "") -> Iterator[None]:
    """The block's call ends with this status, whose text contains `text`."""
    with pytest.raises(grpc.RpcError) as caught:
        yield
    error = caught.value
    assert (error.code(), text in error.details()) == (code, True), f"{error.code()}: {error.details()}"


def copy_plugin(
    folder: Path,
    *,
    of: str = "parity",
    version: str | None = None,
    manifest: Callable[[str], str] | None = None,
    source: Callable[[str], str] | None = None,
    answers: Callable[[dict], None] | None = None,
) -> Path:
    """A copy of a fixture or shipped plugin, edited."""
    origin = FIXTURES / of if (FIXTURES / of).exists() else ROOT / "plugins" / of
    shutil.copytree(origin, folder)
    text = (folder / "plugin.toml").read_text()
    if version is not None:
        text = re.sub(r'(?m)^version = ".*"', f'version = "{version}"', text)
    (folder / "plugin.toml").write_text(manifest(text) if manifest else text)
    if source is not None:
        (path,) = folder.glob("*.cu")
        path.write_text(source(path.read_text()))
    if answers is not None:
        data = json.loads((folder / "vectors.json").read_text())
        answers(data)
        (folder / "vectors.json").write_text(json.dumps(data))
    return folder


def marked_parity(folder: Path) -> Path:
    """Version MARKED of the toy: it gives a reason where version PLAIN says invalid and nothing else."""

    def mark(answers: dict) -> None:
        for group in answers["groups"]:
            for case in group["cases"]:
                case["code"] = case["code"].replace("INVALID", "OUT_OF_RANGE")

    return copy_plugin(
        folder,
        version=MARKED,
        source=lambda text: text.replace("? VALID : INVALID;", "? VALID : OUT_OF_RANGE;"),
        answers=mark,
    )


class Swapper:
    """Changes the active instance of a plugin over and over, each way there is: new version, roll-back, activation
    of a loaded version, reload, and forced load of a version that is loaded."""

    def __init__(self, daemon: AdminDaemon, name: str, plain: Path, other: Path, version: str) -> None:
        """`plain` is the version that serves now, `other` another one, whose number is `version`."""
        self._daemon = daemon
        self._name = name
        self._plain, self._other = plain, other
        self._version = version
        self.spans: list[tuple[float, float]] = []  # of each swap, on the monotonic clock

    def swap(self) -> admin_pb2.PluginInstance:
        """The next swap; returns the instance that is active now."""
        admin, name = self._daemon.admin, self._name
        steps = (
            lambda: self._daemon.load(self._other, force=True),
            lambda: admin.Rollback(admin_pb2.RollbackPluginRequest(plugin=name), timeout=WAIT_S),
            lambda: admin.Activate(admin_pb2.ActivatePluginRequest(plugin=f"{name}@{self._version}"), timeout=WAIT_S),
            lambda: admin.Reload(admin_pb2.ReloadPluginRequest(plugin=name), timeout=WAIT_S),
            lambda: self._daemon.load(self._plain, force=True),
        )
        step = steps[len(self.spans) % len(steps)]
        begun = time.monotonic()
        instance = step()
        self.spans.append((begun, time.monotonic()))
        assert instance.active, f"{instance.label} was not made active"
        return instance
