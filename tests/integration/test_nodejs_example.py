"""The guide's Node.js example against a daemon in another process."""

from __future__ import annotations

import json
import shutil
import subprocess

import grpc
import pytest
from _authority import Authority
from _daemon_process import ROOT, DaemonProcess
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from node_adapter.chain import SigningKey
from node_adapter.client import MockVerifier
from verifier.model import Code

EXAMPLE = ROOT / "docs" / "examples" / "nodejs"
KEY = SigningKey.derive(31, "nodejs", 0)
GOOD = (0, 2, 5)


@pytest.fixture(scope="module")
def node():
    found = shutil.which("node")
    if found is None:
        pytest.skip("no node: install Node.js 18.3 or newer")
    if not (EXAMPLE / "node_modules" / "hash-wasm").is_dir():
        pytest.skip(f"no packages: script/test installs them with npm ci in {EXAMPLE.relative_to(ROOT)}")
    return found


@pytest.fixture(scope="module")
def items():
    """Six transactions, of which three are signed by somebody else over something else."""
    entries = []
    for number in range(6):
        message = b"transaction %d" % number
        signed = message if number in GOOD else b"another"
        entries.append({"message": message.hex(), "signature": der(KEY.sign(signed)).hex(), "key": KEY.public.hex()})
    return entries


def der(signature):
    return encode_dss_signature(int.from_bytes(signature[:32], "big"), int.from_bytes(signature[32:], "big"))


def verify(node, items, *arguments):
    return subprocess.run(
        [node, "verify.js", *map(str, arguments)],
        cwd=EXAMPLE,
        input=json.dumps(items),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


EXPECTED = ["valid" if number in GOOD else "invalid" for number in range(6)]


def test_the_example_gives_the_verdicts(node, items, tmp_path):
    daemon = DaemonProcess(tmp_path, ["sm2"], cache=None)
    try:
        result = verify(node, items, daemon.address)
    finally:
        daemon.stop()
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == EXPECTED
    assert "served by sm2@" in result.stderr


def test_with_certificates_on_both_sides(node, items, tmp_path):
    authority = Authority()
    files = {"ca": authority.pem()}
    files["server-key"], files["server"] = authority.issue("CN=daemon")
    files["key"], files["cert"] = authority.issue("CN=node-1")
    for name, content in files.items():
        (tmp_path / f"{name}.pem").write_bytes(content)
    path = {name: str(tmp_path / f"{name}.pem") for name in files}
    daemon = DaemonProcess(
        tmp_path,
        ["sm2"],
        f"server.tls_certificate_file={path['server']}",
        f"server.tls_key_file={path['server-key']}",
        f"server.tls_client_ca_file={path['ca']}",
        cache=None,
    )
    try:
        own = ("--cert", path["cert"], "--key", path["key"])
        trusted = ("--ca", path["ca"], "--server-name", "localhost", daemon.address)
        result = verify(node, items, *own, *trusted)
        stranger = verify(node, items, *trusted)
    finally:
        daemon.stop()
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == EXPECTED
    assert stranger.returncode == 1
    assert stranger.stdout == ""
    assert "no verdicts:" in stranger.stderr


def test_what_is_undecided_is_not_invalid(node, items):
    with MockVerifier(lambda asked: [Code.UNDECIDED] * len(asked.inputs)) as daemon:
        result = verify(node, items, daemon.target)
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == ["undecided"] * 6


def test_batches_are_cut_and_refusals_pass(node, items):
    with MockVerifier(max_items=4, preferred_items=4) as daemon:
        daemon.fail(grpc.StatusCode.RESOURCE_EXHAUSTED, times=2)
        result = verify(node, items, daemon.target)
        assert sorted(request.items for request in daemon.requests[2:]) == [2, 4]
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == ["valid"] * 6


@pytest.mark.parametrize("change", [{"columns_digest": bytes(8)}, {"items": 5}, {"request_id": 99}])
def test_an_answer_to_another_request_is_none(node, items, change):
    with MockVerifier() as daemon:
        for name, value in change.items():
            daemon.alter(lambda answer, name=name, value=value: setattr(answer, name, value))
        result = verify(node, items, daemon.target)
    assert (result.returncode, result.stdout) == (1, "")
    assert "another request" in result.stderr
