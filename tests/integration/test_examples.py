"""The guide's examples in Python and in Node.js against a daemon in another process."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import grpc
import pytest
from _authority import Authority
from _daemon_process import ROOT, DaemonProcess
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from node_adapter.chain import SigningKey
from node_adapter.client import MockVerifier
from verifier.model import Code

EXAMPLES = ROOT / "docs" / "examples"
KEY = SigningKey.derive(31, "nodejs", 0)
GOOD = (0, 2, 5)


PYTHON = [sys.executable, str(EXAMPLES / "python" / "verify.py")]


@pytest.fixture(scope="module")
def node():
    found = shutil.which("node")
    if found is None:
        pytest.skip("no node: install Node.js 18.3 or newer")
    if not (EXAMPLES / "nodejs" / "node_modules" / "hash-wasm").is_dir():
        pytest.skip("no packages: script/test installs them with npm ci in docs/examples/nodejs")
    return [found, str(EXAMPLES / "nodejs" / "verify.js")]


@pytest.fixture(params=["python", "nodejs"])
def example(request):
    """The command of an example."""
    return PYTHON if request.param == "python" else request.getfixturevalue("node")


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


def verify(command, items, *arguments):
    return subprocess.run(
        [*command, *map(str, arguments)],
        cwd=ROOT,
        input=json.dumps(items),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


EXPECTED = ["valid" if number in GOOD else "invalid" for number in range(6)]


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    made = DaemonProcess(tmp_path_factory.mktemp("plain"), ["sm2"], cache=None)
    yield made
    made.stop()


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """Files of an authority, a daemon and a node."""
    folder = tmp_path_factory.mktemp("certificates")
    authority = Authority()
    contents = {"ca": authority.pem()}
    contents["server-key"], contents["server"] = authority.issue("CN=daemon")
    contents["key"], contents["cert"] = authority.issue("CN=node-1")
    for name, content in contents.items():
        (folder / f"{name}.pem").write_bytes(content)
    return {name: str(folder / f"{name}.pem") for name in contents}


@pytest.fixture(scope="module")
def tls_daemon(tmp_path_factory, certificates):
    made = DaemonProcess(
        tmp_path_factory.mktemp("tls"),
        ["sm2"],
        f"server.tls_certificate_file={certificates['server']}",
        f"server.tls_key_file={certificates['server-key']}",
        f"server.tls_client_ca_file={certificates['ca']}",
        cache=None,
    )
    yield made
    made.stop()


def test_an_example_gives_the_verdicts(example, items, daemon):
    result = verify(example, items, daemon.address)
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == EXPECTED
    assert "served by sm2@" in result.stderr


def test_the_items_that_come_with_the_guide(example, daemon):
    result = verify(example, json.loads((EXAMPLES / "items.json").read_text()), daemon.address)
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == ["valid", "valid", "invalid"]


def test_with_certificates_on_both_sides(example, items, tls_daemon, certificates):
    own = ("--cert", certificates["cert"], "--key", certificates["key"])
    trusted = ("--ca", certificates["ca"], "--server-name", "localhost", tls_daemon.address)
    result = verify(example, items, *own, *trusted)
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == EXPECTED


def test_verify_reads_files_through_the_same_daemon(items, tls_daemon, certificates, tmp_path):
    spki = "3059301306072a8648ce3d020106082a811ccf5501822d03420004"
    lines = [{"message": i["message"], "signature": i["signature"], "signer": spki + i["key"]} for i in items]
    path = tmp_path / "lines"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    tls = [
        "--tls-ca",
        certificates["ca"],
        "--tls-certificate",
        certificates["cert"],
        "--tls-key",
        certificates["key"],
    ]
    address = f"localhost:{tls_daemon.address.rpartition(':')[2]}"
    command = [sys.executable, "-m", "verifier", "verify", "--format", "chainmaker", "--json", "--address", address]
    result = subprocess.run([*command, *tls, str(path)], capture_output=True, text=True, check=False, timeout=120)
    assert result.returncode == 1, result.stderr
    (record,) = json.loads(result.stdout)["files"][0]["records"]
    assert [signature["verdict"].lower() for signature in record["signatures"]] == EXPECTED


def test_a_stranger_gets_no_verdicts(node, items, tls_daemon, certificates):
    stranger = verify(node, items, "--ca", certificates["ca"], "--server-name", "localhost", tls_daemon.address)
    assert stranger.returncode == 1
    assert stranger.stdout == ""
    assert "no verdicts:" in stranger.stderr


def test_what_is_undecided_is_not_invalid(example, items):
    with MockVerifier(lambda asked: [Code.UNDECIDED] * len(asked.inputs)) as daemon:
        result = verify(example, items, daemon.target)
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
