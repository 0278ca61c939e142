"""The commands as an operator types them, against a daemon in another process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from _daemon_process import ROOT, DaemonProcess


@pytest.fixture(scope="module")
def certificates():
    folder = Path(os.environ.get("VERIFIER_SHARED", ROOT.parent / "shared")) / "real" / "sm2-certs"
    if not folder.is_dir():
        pytest.skip("no real certificates: set VERIFIER_SHARED to the folder that has real/")
    return folder


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    made = DaemonProcess(tmp_path_factory.mktemp("daemon"), ["sm2", "sm3", "ecdsa"], cache=None)
    yield made
    made.stop()


def run(*arguments, **environment):
    command = [sys.executable, "-m", "verifier", *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=300, env={**os.environ, **environment}
    )


def valid(result):
    return {(r["issuer"], r["subject"]) for r in json.loads(result.stdout)["relations"] if r["verdict"] == "VALID"}


def test_who_signed_whom(daemon, certificates):
    files = [path for path in sorted(certificates.iterdir()) if "noza" not in path.name]
    result = run("verify", "--format", "x509", "--json", "--address", daemon.address, *files)
    assert result.returncode == 0, result.stderr
    assert valid(result) == {
        ("sm_ca.crt:1", "sm_ca.crt:1"),
        ("sm_ca.crt:1", "sm_node.crt:2"),
        ("sm_node.crt:2", "sm_node.crt:1"),
        ("sm_node.crt:2", "sm_ennode.crt:1"),
        ("sm2-root-cert.pem:1", "sm2-root-cert.pem:1"),
        ("sm2-root-cert.pem:1", "sm2-cert.pem:1"),
        ("sm2-chain-ca.crt:2", "sm2-chain-ca.crt:2"),
        ("sm2-chain-ca.crt:2", "sm2-chain-ca.crt:1"),
        ("sm2-chain-ca.crt:1", "sm2-leaf.crt:1"),
    }
    assert json.loads(result.stdout)["devices"] == ["cpu"]


def test_without_za(daemon, certificates):
    files = sorted(certificates.glob("sm2-noza*"))
    arguments = ("verify", "--format", "x509", "--json", "--address", daemon.address, *files)
    assert run(*arguments).returncode == 1
    result = run(*arguments, "--sm2-za", "none")
    assert result.returncode == 0, result.stderr
    root = "sm2-noza-root-cert.pem:1"
    assert valid(result) == {(root, root), (root, "sm2-noza-cert.pem:1")}


def test_all_pairs_find_the_key_that_stands_under_two_names(daemon, certificates):
    files = sorted(certificates.iterdir())
    by_name = run("verify", "--format", "x509", "--json", "--address", daemon.address, *files)
    every = run("verify", "--format", "x509", "--json", "--all-pairs", "--address", daemon.address, *files)
    assert len(valid(by_name)) == 9
    # The root without ZA has the other root's key.
    noza = "sm2-noza-root-cert.pem:1"
    assert valid(every) - valid(by_name) == {(noza, "sm2-root-cert.pem:1"), (noza, "sm2-cert.pem:1")}
    assert valid(by_name) <= valid(every)


def test_the_demo(daemon, tmp_path):
    arguments = ("--blocks", 2, "--transactions", 30, "--faults", 0.5, "--seed", 8, "--json")
    result = run("demo", *arguments, "--address", daemon.address, XDG_CACHE_HOME=str(tmp_path))
    assert result.returncode == 0, result.stderr
    figures = json.loads(result.stdout)
    assert figures["ok"]
    assert figures["rejected"] == figures["expected"]
    assert sum(figures["rejected"].values()) == 30 + 5  # and requests that are no transactions
    # Who comes back verifies the certificates of the blocks that it missed, which are P-256.
    served = {(entry["plugin"].split("@")[0], entry["device"]) for entry in figures["served"]}
    assert ("sm2", "cpu") in served
    assert served <= {("sm2", "cpu"), ("ecdsa", "cpu")}


def test_nobody_at_the_address(certificates):
    result = run("demo", "--blocks", 1, "--transactions", 1, "--address", "127.0.0.1:1", "--timeout", 1)
    assert result.returncode == 2
    assert "no daemon answered at 127.0.0.1:1" in result.stderr
