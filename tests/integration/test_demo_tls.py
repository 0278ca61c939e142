"""`verifier demo` against a daemon that is trusted and trusts by certificate."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from _authority import Authority, settings
from _daemon_process import DaemonProcess

SMALL = ("--blocks", "1", "--transactions", "20", "--faults", "0.5", "--seed", "4", "--json")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    """The daemon's address, and a node's options."""
    folder = tmp_path_factory.mktemp("guarded")
    authority = Authority()
    daemon = DaemonProcess(folder, ["sm2", "ecdsa"], *settings(authority.write(folder)), cache=None)
    key, certificate = authority.issue("CN=node-1")
    files = {"ca": authority.pem(), "key": key, "certificate": certificate}
    options = []
    for name, data in files.items():
        path = folder / f"node-{name}.pem"
        path.write_bytes(data)
        options.append(f"--tls-{name}={path}")
    yield "localhost:" + daemon.address.rpartition(":")[2], options
    daemon.stop()


def demo(address, *options):
    command = [sys.executable, "-m", "verifier", "demo", *SMALL, "--address", address, *options]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, env=os.environ)


def test_its_nodes_show_their_certificate(guarded):
    address, options = guarded
    result = demo(address, *options)
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["ok"]


def test_without_a_certificate_it_ends_with_2(guarded):
    address, options = guarded
    result = demo(address, options[0])
    assert result.returncode == 2
    assert "no daemon answered" in result.stderr


@pytest.mark.parametrize(
    ("options", "problem"),
    [(["--tls-key=/nowhere"], "--tls-certificate"), (["--tls-ca=/nowhere.pem"], "/nowhere.pem")],
)
def test_files_that_are_missing_are_named(options, problem):
    result = demo("localhost:1", *options)
    assert result.returncode == 2
    assert problem in result.stderr
