"""The admin listener that nobody names: there by default, and no obstacle to a second daemon."""

from __future__ import annotations

import grpc
import pytest
from _daemon_process import PARITY

from node_adapter import LocalVerifier
from verifier.config import default_admin_address, load_settings
from verifier.daemon import Daemon
from verifier.errors import ConfigError
from verifier.v1 import admin_pb2, admin_pb2_grpc


def settings(tmp_path, listen):
    return load_settings(
        overrides={
            "server": {"listen": ["127.0.0.1:0"]},
            "health": {"listen": []},
            "metrics": {"listen": ""},
            "admin": {"listen": listen},
            "plugins": {"load": [str(PARITY)], "trust": "any", "cache_folder": str(tmp_path / "cache")},
            "devices": {"use": ["cpu"]},
        }
    )


def test_a_nodes_own_verifier_leaves_the_socket_to_the_daemon(tmp_path, monkeypatch):
    path = tmp_path / "admin.sock"
    monkeypatch.setattr("verifier._admin_listeners.default_admin_address", lambda: f"unix:{path}")
    with LocalVerifier([str(PARITY)], trust_any=True) as local:
        assert local.client().served().operations
        assert not path.exists()


def labels(address: str) -> list[str]:
    with grpc.insecure_channel(address) as channel:
        listed = admin_pb2_grpc.PluginAdminStub(channel).List(admin_pb2.ListPluginsRequest(), timeout=30)
        return [instance.label for instance in listed.instances]


def test_where_the_default_socket_is(monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert default_admin_address() == "unix:/run/verifier/admin.sock"
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/1000")
    assert default_admin_address() == "unix:/run/user/1000/verifier/admin.sock"


def test_the_default_socket_is_the_first_daemons(monkeypatch, tmp_path):
    path = tmp_path / "verifier" / "admin.sock"
    address = f"unix:{path}"
    monkeypatch.setattr("verifier._admin_listeners.default_admin_address", lambda: address)
    with Daemon(settings(tmp_path, ["auto"])):
        assert path.stat().st_mode & 0o777 == 0o600
        assert labels(address) == ["parity@1.0.0#1"]
        with Daemon(settings(tmp_path, ["auto"])):
            pass  # runs without
        assert labels(address) == ["parity@1.0.0#1"]
        with pytest.raises(ConfigError, match="another process answers there"), Daemon(settings(tmp_path, [address])):
            pass
