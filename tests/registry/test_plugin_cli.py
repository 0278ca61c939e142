"""`verifier plugin` as its user meets it: from new to hot-loaded, and every file command."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from verifier.api.admin import admin_server
from verifier.cli.plugin import app
from verifier.drivers.build import host_target
from verifier.registry import (
    Registry,
    RegistryOptions,
    plugin_paths,
    read_bundle,
    read_lock,
    read_source,
    shipped_folder,
)
from verifier.telemetry import set_up_logs


@pytest.fixture
def cli(tmp_path, monkeypatch):
    """cli("pack", ...) runs a command in an empty folder; it has to end with `status`."""
    monkeypatch.chdir(tmp_path)

    def cli(*arguments, status=0):
        set_up_logs("warning")  # as the command line does before any command
        result = CliRunner().invoke(app, list(map(str, arguments)))
        assert result.exit_code == status, result.output
        return result.output

    return cli


@pytest.fixture
def daemon(registry, tmp_path, monkeypatch):
    address = f"unix:{tmp_path}/admin.sock"
    server = admin_server(registry, address)
    server.start()
    monkeypatch.setenv("VERIFIER_ADMIN_ADDRESS", address)
    yield
    server.stop(None).wait()


def test_from_new_to_hot_loaded(cli, daemon, registry):
    cli("new", "checksum")
    report = json.loads(cli("check", "checksum", "--target", host_target(), "--device", "cpu", "--json"))
    assert [build["problem"] for build in report["builds"]] == [""]
    assert report["runs"] == [{"device": "cpu", "choice": "default", "answers": 20, "problem": ""}]
    assert re.fullmatch(r"checksum@1\.0\.0#\d+ is ACTIVE, digest [0-9a-f]{64}\n", cli("load", "checksum"))
    assert registry.resolve("verify", "CHECKSUM").instance.plugin == "checksum"
    (listed,) = json.loads(cli("list", "--json"))["instances"]
    assert (listed["state"], listed["active"]) == ("PLUGIN_STATE_ACTIVE", True)
    assert "checksum@1.0.0" in cli("list")
    cli("reload", "checksum")
    cli("rollback", "checksum")
    cli("activate", "checksum@1.0.0")
    cli("confirm", "checksum")
    assert "UNLOADED" in cli("unload", "checksum", "--wait")
    assert "SELFTEST" in cli("history", "checksum")
    records = json.loads(cli("audit", "--json"))["records"]
    assert [r["operation"] for r in records] == ["load", "reload", "rollback", "activate", "confirm", "unload"]
    assert all("says" in r["actor"] for r in records)
    assert "OK" in cli("audit", "--limit", 1)


def test_the_scaffold_s_own_test_passes(cli, tmp_path):
    cli("new", "checksum")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "checksum"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_check_reports_registers_and_spills(cli):
    cli("new", "checksum")
    report = json.loads(cli("check", "checksum", "--target", "sm_90", "--no-run", "--json"))
    (build,) = report["builds"]
    assert {kernel["name"] for kernel in build["kernels"]} == {"checksum_verify", "checksum_digest", "publish"}
    assert all(kernel["registers"] > 0 and kernel["spill_stores"] == 0 for kernel in build["kernels"])
    assert "registers" in cli("check", "checksum", "--target", "sm_90", "--no-run")


def test_check_fails_where_something_is_wrong(cli, make):
    text = cli("check", make("a", source=lambda text: text + "oops"), "--target", host_target(), "--no-run", status=1)
    assert "does not compile" in text
    text = cli("check", make("b", of="faulty-answer"), "--target", host_target(), "--device", "cpu", status=1)
    assert "case wrong" in text
    text = cli("check", make("c"), "--target", "sm_1", "--no-run", status=1)
    assert "sm_1" in text


@pytest.mark.parametrize("name", ["Checksum", "2sum", "a-b", "../x", "", "x" * 65])
def test_new_refuses_a_bad_name(cli, name):
    assert "small letters" in cli("new", name, status=1)


def test_new_leaves_what_is_there(cli):
    cli("new", "checksum")
    before = Path("checksum/plugin.toml").read_bytes()
    assert "exists" in cli("new", "checksum", status=1)
    assert Path("checksum/plugin.toml").read_bytes() == before


def test_two_packs_are_equal_and_load(cli, registry, make):
    folder = make("p")
    targets = ["--target", host_target(), "--target", "sm_90", "--target", "compute_80"]
    for name in ("a.bundle", "b.bundle"):
        cli("pack", folder, *targets, "-o", name)
    assert Path("a.bundle").read_bytes() == Path("b.bundle").read_bytes()
    bundle = read_bundle(Path("a.bundle"))
    assert set(bundle.images) == {host_target(), "sm_90", "compute_80"}
    assert b".target sm_80" in bundle.images["compute_80"].data
    assert registry.load(Path("a.bundle")).active


def test_pack_fails_where_a_target_does_not_build(cli, make):
    assert "sm_1" in cli("pack", make("p"), "--target", "sm_1", status=1)
    assert not list(Path().glob("*.bundle"))


def test_a_signed_bundle_loads_by_its_key(cli, fleet, options, make):
    cli("pack", make("p"), "--target", host_target())
    assert "site.key is secret" in cli("keygen", "site.key")
    assert stat.S_IMODE(Path("site.key").stat().st_mode) == 0o600
    unsigned = Path("parity-1.0.0.bundle").read_bytes()
    cli("sign", "parity-1.0.0.bundle", "--key", "site.key", "-o", "signed.bundle")
    assert Path("parity-1.0.0.bundle").read_bytes() == unsigned
    cli("sign", "parity-1.0.0.bundle", "--key", "site.key")
    assert Path("parity-1.0.0.bundle").read_bytes() == Path("signed.bundle").read_bytes()
    registry = Registry(fleet, RegistryOptions(public_keys=(Path("site.key.pub"),), cache=options.cache))
    assert registry.load(Path("signed.bundle")).active
    registry.unload("parity", wait=True)
    registry.close()


def test_a_folder_is_not_signed_and_nothing_is_left(cli, tmp_path):
    cli("new", "checksum")
    cli("keygen", "key")
    text = cli("sign", "checksum", "--key", "key", status=1)
    assert text == "checksum: a folder is not signed but its bundle: verifier plugin pack checksum\n"
    assert cli("sign", "checksum", "--key", "none", status=1) == "none: No such file or directory\n"
    cli("pack", "checksum", "--target", host_target(), "--output", "nowhere/a.bundle", status=1)
    assert "checksum: Is a directory" in cli(
        "pack", "checksum", "--target", host_target(), "-o", "checksum", status=1
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checksum", "key", "key.pub"]


def test_pack_without_any_compiler_makes_no_empty_bundle(cli, tmp_path, monkeypatch):
    cli("new", "checksum")
    monkeypatch.setattr("verifier.cli._plugin_check._has_compiler", lambda target: False)
    assert "neither a C++ compiler nor NVRTC" in cli("pack", "checksum", status=1)
    assert [path.name for path in tmp_path.iterdir()] == ["checksum"]


def test_a_shipped_plugin_is_checked_and_packed_by_its_name(cli):
    report = json.loads(cli("check", "sm3", "--target", host_target(), "--device", "cpu", "--json"))
    assert report["runs"][0]["problem"] == ""
    assert cli("pack", "sm3", "--target", host_target()).startswith("sm3-1.0.0.bundle: sm3@1.0.0 for ")
    assert "where there are aes, aria," in cli("check", "sm9", status=1)


def test_keygen_never_replaces(cli):
    cli("keygen", "site.key")
    before = Path("site.key").read_bytes()
    assert "File exists" in cli("keygen", "site.key", status=1)
    assert Path("site.key").read_bytes() == before


def test_sign_refuses_what_is_no_key(cli, make):
    Path("key").write_text("nothing")
    cli("pack", make("p"), "--target", host_target())
    assert "not a private key" in cli("sign", "parity-1.0.0.bundle", "--key", "key", status=1)
    cli("keygen", "site.key")
    assert "not a private key" in cli("sign", "parity-1.0.0.bundle", "--key", "site.key.pub", status=1)


def test_lock(cli, make):
    folder = make("p")
    assert "--lock-file" in cli("lock", folder, status=1)
    cli("lock", folder, "--lock-file", "site.lock")
    assert read_lock(Path("site.lock")) == {"parity@1.0.0": (read_source(folder).digest,)}
    assert "nowhere" in cli("lock", "nowhere", "--lock-file", "site.lock", status=1)


def test_the_command_of_a_refusal_works(cli, daemon, fleet, options, make, tmp_path):
    folder, lock = make("p"), tmp_path / "site.lock"
    lock.write_text("[plugins]\n")
    registry = Registry(fleet, RegistryOptions(lock_files=(lock,), cache=options.cache))
    server = admin_server(registry, f"unix:{tmp_path}/locked.sock")
    server.start()
    address = ("--address", f"unix:{tmp_path}/locked.sock")
    text = cli("load", folder, *address, status=1)
    assert text.startswith("PERMISSION_DENIED")
    (command,) = re.findall(r"verifier plugin (lock .*)", text)
    cli(*command.split())
    assert "ACTIVE" in cli("load", folder, *address)
    cli("unload", "parity", "--wait", *address)
    server.stop(None).wait()
    registry.close()


def test_no_daemon(cli, tmp_path):
    text = cli("list", "--address", f"unix:{tmp_path}/none.sock", status=1)
    assert "UNAVAILABLE: no daemon answers at unix:" in text


def test_a_user_without_a_name(cli, daemon, monkeypatch):
    """Containers run as numbers that no file of users has."""

    def nameless():
        raise KeyError("getpwuid(): uid not found: 12345")

    monkeypatch.setattr("getpass.getuser", nameless)
    cli("list")
    cli("rollback", "sm9", status=1)
    assert f"says {os.getuid()}@" in cli("audit")


def test_errors_are_one_line_and_status_1(cli, daemon):
    assert cli("rollback", "sm9", status=1) == "NOT_FOUND: plugin: sm9: no previous instance is at hand\n"


@pytest.mark.parametrize(
    "command",
    [
        "list",
        "load",
        "unload",
        "reload",
        "activate",
        "rollback",
        "confirm",
        "history",
        "audit",
        "new",
        "check",
        "pack",
        "keygen",
        "sign",
        "lock",
    ],
)
def test_help_has_an_example(cli, command):
    assert f"Example: verifier plugin {command}" in cli(command, "--help")


def test_the_shipped_plugins_are_locked():
    """Fails after an edit of a shipped plugin or a common header: `verifier plugin lock --shipped` writes it anew."""
    locked = read_lock(shipped_folder() / "plugins.lock")
    shipped = [read_source(path) for path in plugin_paths(shipped_folder())]
    assert locked == {source.label: (source.digest,) for source in shipped}


def test_check_of_every_variant(make):
    def check(*arguments):
        return CliRunner().invoke(app, ["check", str(folder), "--target", host_target(), *arguments])

    folder = make("p")
    done = check("--variant", "all", "--device", "cpu", "--json")
    report = json.loads(done.stdout)
    assert [build["choice"] for build in report["builds"]] == ["default", "wide_groups"]
    assert [(run["choice"], run["problem"]) for run in report["runs"]] == [("default", ""), ("wide_groups", "")]
    assert done.exit_code == 0
    done = check("--variant", "tall", "--no-run")
    assert (done.exit_code, "variant tall: there is none; it has default, wide_groups" in done.output) == (1, True)
    done = check("--tunable", "GROUP", "--no-run")
    assert (done.exit_code, "--tunable GROUP: must be NAME=VALUE" in done.output) == (1, True)
