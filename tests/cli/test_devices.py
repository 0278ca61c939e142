"""`verifier devices`."""

from __future__ import annotations

import json

import pytest
import typer
from typer.testing import CliRunner

from verifier.cli import devices
from verifier.drivers import Device


@pytest.fixture
def run(monkeypatch):
    monkeypatch.setenv("VERIFIER_FAKE_DEVICES", "1")
    app = typer.Typer()
    devices.register(app)
    app.callback()(lambda: None)
    return lambda *arguments: CliRunner().invoke(app, ["devices", *arguments])


def test_json_has_every_device(run):
    result = run("--json")
    assert result.exit_code == 0
    found = {device["id"]: device for device in json.loads(result.stdout)}
    assert {"cpu", "fake:0"} <= set(found)
    assert found["cpu"]["info"]["units"] >= 1
    assert found["cpu"]["compiler"] or found["cpu"]["problem"]
    assert any(name.startswith("cuda") for name in found)
    providers = {entry["plugin"]: entry for entry in found["cpu"]["providers"]}
    assert set(providers) == {"ecdsa", "sm2"}
    for entry in providers.values():
        assert entry["variant"] == "crypto_mb"
        assert bool(entry["library"]) != bool(entry["problem"])
    assert "crypto_mb: " in run().stdout


def test_the_table_names_what_is_missing(run, monkeypatch, tmp_path):
    monkeypatch.setenv("CXX", str(tmp_path / "nothing"))
    result = run()
    assert result.exit_code == 0
    assert "cpu: plugins cannot be built: " in result.stdout
    assert "nothing" in result.stdout


def test_no_device_at_all_is_a_failure(run, monkeypatch):
    monkeypatch.setattr(devices, "probe_devices", lambda: [Device("cuda", None, "cuda: [no] driver")])
    result = run()
    assert result.exit_code == 1
    assert "cuda: [no] driver" in result.stdout
