"""PluginAdmin over its own socket: statuses, roles, audit."""

from __future__ import annotations

import dataclasses
import json
import os
import socket
import stat

import grpc
import pytest

from verifier.api import Access, CallInterceptor
from verifier.api._rates import Rates
from verifier.api._roles import Roles
from verifier.api.admin import MAX_REQUEST_BYTES, admin_server, socket_owner
from verifier.errors import ConfigError
from verifier.registry import AuditLog, Registry
from verifier.v1 import admin_pb2, admin_pb2_grpc

WAIT_S = 60


@pytest.fixture
def serve(tmp_path):
    """serve(registry, ...) gives a stub of a server on a Unix socket, and the socket's path."""
    started = []

    def serve(registry, **options):
        path = tmp_path / f"admin-{len(started)}.sock"
        server = admin_server(registry, f"unix:{path}", **options)
        server.start()
        channel = grpc.insecure_channel(f"unix:{path}")
        started.append((server, channel))
        return admin_pb2_grpc.PluginAdminStub(channel), path

    yield serve
    for server, channel in started:
        channel.close()
        server.stop(None).wait()


@pytest.fixture
def admin(serve, registry):
    return serve(registry)[0]


def refused(call, *arguments, **keywords) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as error:
        call(*arguments, **keywords, timeout=WAIT_S)
    return error.value.code(), error.value.details()


def load(admin, plugin, **options):
    return admin.Load(admin_pb2.LoadPluginRequest(plugin=str(plugin), **options), timeout=WAIT_S)


def test_a_plugin_s_life(admin, make):
    old = load(admin, make("old"))
    assert (old.state, old.active, list(old.devices)) == (admin_pb2.PLUGIN_STATE_ACTIVE, True, ["cpu:0", "cpu:1"])
    assert (old.label, len(old.digest)) == (f"parity@1.0.0#{old.generation}", 64)
    new = load(admin, make("new", version="1.1.0"), keep_inactive=True)
    assert (new.state, new.active) == (admin_pb2.PLUGIN_STATE_WARM, False)
    assert admin.Activate(admin_pb2.ActivatePluginRequest(plugin="parity@1.1.0")).active
    assert admin.Rollback(admin_pb2.RollbackPluginRequest(plugin="parity")).label == old.label
    assert admin.Reload(admin_pb2.ReloadPluginRequest(plugin="parity")).generation > new.generation
    assert admin.Confirm(admin_pb2.ConfirmPluginRequest(plugin="parity")).active
    gone = admin.Unload(admin_pb2.UnloadPluginRequest(plugin="parity", wait=True, timeout_s=30))
    assert gone.state == admin_pb2.PLUGIN_STATE_UNLOADED
    listed = admin.List(admin_pb2.ListPluginsRequest()).instances
    assert [i.state for i in listed] == [admin_pb2.PLUGIN_STATE_UNLOADED] * 3
    history = admin.History(admin_pb2.PluginHistoryRequest(plugin="parity@1.1.0")).transitions
    assert {t.label for t in history} == {new.label}
    assert history[0].state == admin_pb2.PLUGIN_STATE_VERIFYING
    operations = [r.operation for r in admin.Audit(admin_pb2.AuditRequest()).records]
    assert operations == ["load", "load", "activate", "rollback", "reload", "confirm", "unload"]
    assert [r.operation for r in admin.Audit(admin_pb2.AuditRequest(limit=2)).records] == operations[-2:]


@pytest.mark.parametrize(
    ("method", "request_", "code", "text"),
    [
        ("Load", admin_pb2.LoadPluginRequest(), grpc.StatusCode.INVALID_ARGUMENT, "plugin: is empty"),
        ("Load", admin_pb2.LoadPluginRequest(plugin="/nowhere"), grpc.StatusCode.NOT_FOUND, "/nowhere"),
        ("Load", admin_pb2.LoadPluginRequest(plugin="sm9"), grpc.StatusCode.NOT_FOUND, "sm9 is not in"),
        ("Load", admin_pb2.LoadPluginRequest(plugin="Sm 9"), grpc.StatusCode.NOT_FOUND, "neither name"),
        ("Load", admin_pb2.LoadPluginRequest(plugin="../x.bundle"), grpc.StatusCode.NOT_FOUND, "x.bundle"),
        (
            "Load",
            admin_pb2.LoadPluginRequest(plugin="/dev/null"),
            grpc.StatusCode.FAILED_PRECONDITION,
            "not a folder",
        ),
        ("Load", admin_pb2.LoadPluginRequest(plugin="a\0/b.bundle"), grpc.StatusCode.NOT_FOUND, "no such folder"),
        ("Load", admin_pb2.LoadPluginRequest(plugin="/" + "x" * 9000), grpc.StatusCode.NOT_FOUND, "no such folder"),
        ("Load", admin_pb2.LoadPluginRequest(plugin="x" * 9000), grpc.StatusCode.NOT_FOUND, "neither name"),
        ("Unload", admin_pb2.UnloadPluginRequest(plugin="sm9"), grpc.StatusCode.NOT_FOUND, "sm9 is not known"),
        (
            "Unload",
            admin_pb2.UnloadPluginRequest(plugin="sm9", timeout_s=-1),
            grpc.StatusCode.INVALID_ARGUMENT,
            "timeout_s: -1.0 is not between",
        ),
        (
            "Unload",
            admin_pb2.UnloadPluginRequest(plugin="sm9", timeout_s=float("nan")),
            grpc.StatusCode.INVALID_ARGUMENT,
            "timeout_s: nan",
        ),
        ("Reload", admin_pb2.ReloadPluginRequest(plugin="sm9"), grpc.StatusCode.FAILED_PRECONDITION, "not served"),
        ("Activate", admin_pb2.ActivatePluginRequest(plugin="sm9"), grpc.StatusCode.NOT_FOUND, "sm9"),
        ("Rollback", admin_pb2.RollbackPluginRequest(plugin="sm9"), grpc.StatusCode.NOT_FOUND, "no previous"),
        ("Confirm", admin_pb2.ConfirmPluginRequest(plugin="sm9"), grpc.StatusCode.NOT_FOUND, "no active"),
    ],
)
def test_refusals(admin, method, request_, code, text):
    got, details = refused(getattr(admin, method), request_)
    assert got is code
    assert text in details


def test_a_failed_load_tells_why(admin, make):
    folder = make("bad", manifest=lambda text: text.replace("VALID_PARITY = 0", "VALID_PARITY = 1"))
    code, text = refused(admin.Load, admin_pb2.LoadPluginRequest(plugin=str(folder)))
    assert code is grpc.StatusCode.FAILED_PRECONDITION
    assert "one_even_byte" in text
    (failed,) = admin.List(admin_pb2.ListPluginsRequest()).instances
    assert failed.state == admin_pb2.PLUGIN_STATE_FAILED
    assert "one_even_byte" in failed.reason


def test_what_is_not_trusted_is_denied(serve, fleet, options, make):
    registry = Registry(fleet, dataclasses.replace(options, trust="locked"))
    admin, _ = serve(registry)
    folder = make("p")
    code, text = refused(admin.Load, admin_pb2.LoadPluginRequest(plugin=str(folder)))
    assert code is grpc.StatusCode.PERMISSION_DENIED
    assert f"verifier plugin lock {folder}" in text
    registry.close()


def test_calls_without_the_role_are_denied_and_change_nothing(serve, registry, make):
    registry.load(make("p"))
    nobody = Access(Roles({}), Rates({}), on_denied=lambda d: registry.denied(d.caller, d.method, str(d.role)))
    admin, _ = serve(registry, interceptors=[CallInterceptor(nobody)])
    for method, request in (
        ("List", admin_pb2.ListPluginsRequest()),
        ("Unload", admin_pb2.UnloadPluginRequest(plugin="parity")),
        ("Audit", admin_pb2.AuditRequest()),
    ):
        code, text = refused(getattr(admin, method), request)
        assert (code, "needs the role admin" in text) == (grpc.StatusCode.PERMISSION_DENIED, True)
    assert registry.resolve("verify", "PARITY").instance.state == "ACTIVE"
    denied = [record for record in registry.audit() if record.outcome == "DeniedError"]
    assert [record.operation.rpartition("/")[2] for record in denied] == ["List", "Unload", "Audit"]


def test_the_audit_says_who(serve, registry, make):
    admin, _ = serve(registry, actor=lambda context: "certificate of alice")
    request = admin_pb2.LoadPluginRequest(plugin=str(make("p")))
    admin.Load(request, metadata=(("verifier-actor", "bob"),), timeout=WAIT_S)
    admin.Unload(admin_pb2.UnloadPluginRequest(plugin="parity"), timeout=WAIT_S)
    assert [r.actor for r in registry.audit()] == ["certificate of alice, says bob", "certificate of alice"]


def test_the_socket_is_its_owner_s(serve, registry):
    mask = os.umask(0)
    try:
        _, path = serve(registry)
    finally:
        os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_port_needs_mutual_tls(registry):
    for options in ({}, {"actor": lambda context: "anyone"}):
        with pytest.raises(ConfigError, match=r"without mutual TLS .* only unix:/path is allowed"):
            admin_server(registry, "127.0.0.1:0", **options)


def test_an_address_that_cannot_be_bound(registry, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="admin address unix:"):
        admin_server(registry, f"unix:{tmp_path}/file/admin.sock")


def test_bytes_that_are_no_request(serve, registry):
    _, path = serve(registry)
    with grpc.insecure_channel(f"unix:{path}") as channel:
        for method in ("List", "Load", "Audit"):
            code, text = refused(channel.unary_unary(f"/verifier.v1.PluginAdmin/{method}"), b"\xff\xff")
            assert (code, "these bytes are not a" in text) == (grpc.StatusCode.INVALID_ARGUMENT, True)


def test_a_request_that_is_too_large(serve, registry):
    admin, _ = serve(registry)
    code, _ = refused(admin.Load, admin_pb2.LoadPluginRequest(plugin="x" * (MAX_REQUEST_BYTES + 1)))
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_a_living_daemon_s_socket_is_left_to_it(serve, registry):
    admin, path = serve(registry)
    with pytest.raises(ConfigError, match="another process answers there"):
        admin_server(registry, f"unix:{path}")
    admin.List(admin_pb2.ListPluginsRequest(), timeout=WAIT_S)


def test_a_dead_daemon_s_socket_is_replaced(serve, registry, tmp_path):
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "admin-0.sock"))
    admin, _ = serve(registry)
    admin.List(admin_pb2.ListPluginsRequest(), timeout=WAIT_S)


def test_owner_needs_no_context():
    assert str(os.geteuid()) in socket_owner(None)


def test_the_audit_file_outlives_the_daemon(fleet, options, make, tmp_path):
    path = tmp_path / "audit.jsonl"
    for _ in range(2):
        registry = Registry(fleet, dataclasses.replace(options, audit=path))
        registry.load(make(f"p{len(list(tmp_path.iterdir()))}"))
        registry.unload("parity", wait=True)
        registry.close()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["operation"] for line in lines] == ["load", "unload"] * 2
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with path.open("a") as file:
        file.write('{"at": 1')  # a crash cut this line short
    log = AuditLog(path)
    assert [record.operation for record in log.records()] == ["load", "unload"] * 2
    with log.operation("daemon", "confirm", "parity"):
        pass
    log.close()
    log = AuditLog(path)  # the record after the cut line is a line of its own
    assert [record.operation for record in log.records()] == [*["load", "unload"] * 2, "confirm"]
    log.close()


def test_a_record_that_a_full_disk_cut_short_takes_no_other_with_it(tmp_path, monkeypatch):
    log, write = AuditLog(tmp_path / "audit.jsonl"), os.write

    def short(file, data):
        return write(file, data[:10] if file == log._file else data)

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", short)
        with pytest.raises(OSError, match="No space left"), log.operation("daemon", "load", "parity"):
            pass
    for operation in ("unload", "confirm"):
        with log.operation("daemon", operation, "parity"):
            pass
    log.close()
    log = AuditLog(tmp_path / "audit.jsonl")
    assert [record.operation for record in log.records()] == ["unload", "confirm"]
    log.close()


def test_an_audit_file_that_cannot_be_written_is_an_error_at_start(fleet, options, tmp_path):
    with pytest.raises(ConfigError, match="audit file"):
        Registry(fleet, dataclasses.replace(options, audit=tmp_path / "missing" / "audit.jsonl"))
