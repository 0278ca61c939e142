"""Where a daemon listens: TLS and client certificates, Unix sockets, ports that are taken, plugins by its socket."""

from __future__ import annotations

import stat
import subprocess
import sys
import threading
from pathlib import Path

import grpc
import pytest
from _authority import Authority
from _daemon_process import PARITY, ROOT, assert_right, digests, parity_request

from verifier.v1 import admin_pb2, admin_pb2_grpc
from verifier.v1 import verifier_pb2 as pb
from verifier.v1 import verifier_pb2_grpc as rpc

TIMEOUT_S = 60


def _ask(address: str, credentials: grpc.ChannelCredentials | None, data) -> pb.VerifyResponse:
    channel = grpc.secure_channel(address, credentials) if credentials else grpc.insecure_channel(address)
    with channel:
        return rpc.VerifierStub(channel).Verify(parity_request(data), timeout=TIMEOUT_S)


def test_mutual_tls(start, tmp_path: Path):
    ours, theirs = Authority("ours"), Authority("theirs")
    key, certificate = ours.issue("CN=daemon")
    for name, data in (("key.pem", key), ("certificate.pem", certificate), ("ca.pem", ours.pem())):
        (tmp_path / name).write_bytes(data)
    daemon = start(
        f"server.tls_key_file={tmp_path / 'key.pem'}",
        f"server.tls_certificate_file={tmp_path / 'certificate.pem'}",
        f"server.tls_client_ca_file={tmp_path / 'ca.pem'}",
    )
    address = "localhost:" + daemon.address.rpartition(":")[2]
    data = digests(10, seed=1)
    known = grpc.ssl_channel_credentials(ours.pem(), *ours.issue("CN=node"))
    assert_right(_ask(address, known, data), data)
    for stranger in (
        None,
        grpc.ssl_channel_credentials(ours.pem()),
        grpc.ssl_channel_credentials(ours.pem(), *theirs.issue("CN=node")),
    ):
        with pytest.raises(grpc.RpcError) as caught:
            _ask(address, stranger, data)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


def test_a_unix_socket(start, tmp_path: Path):
    address = f"unix:{tmp_path / 'sockets' / 'work.sock'}"
    daemon = start(f'server.listen=["{address}"]')
    assert daemon.address == address
    assert stat.S_IMODE((tmp_path / "sockets" / "work.sock").stat().st_mode) == 0o660
    data = digests(10, seed=1)
    assert_right(_ask(address, None, data), data)


def _serve(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "verifier", "serve"]
    quiet = ("plugins.trust=any", "health.listen=[]", "metrics.listen=", 'devices.use=["cpu"]')
    for assignment in (*quiet, f'plugins.load=["{PARITY}"]', *arguments):
        command += ["--set", assignment]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)


def test_a_port_that_is_taken(daemon):
    result = _serve(f'server.listen=["{daemon.address}"]')
    assert result.returncode == 2
    assert f"server.listen: {daemon.address} cannot be opened: Address already in use" in result.stderr


def test_the_check_of_settings_refuses_open_listeners():
    command = [sys.executable, "-m", "verifier", "config", "--check", "--set"]
    checks = {
        address: subprocess.run(
            [*command, f'server.listen=["{address}"]'], cwd=ROOT, capture_output=True, text=True, check=False
        )
        for address in ("0.0.0.0:0", "127.0.0.1:0")
    }
    assert [check.returncode for check in checks.values()] == [2, 0]
    assert "server.insecure = true" in checks["0.0.0.0:0"].stderr
    assert "the configuration is right" in checks["127.0.0.1:0"].stdout


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ('server.listen=["0.0.0.0:0"]', "server.insecure = true"),
        ('devices.use=["cuda:77"]', "cuda"),
        ('plugins.load=["/nowhere/at/all"]', "/nowhere/at/all"),
        ("server.tls_key_file=/nowhere", "belong together"),
    ],
)
def test_a_daemon_that_cannot_start_says_why_and_leaves_nothing(setting, words):
    result = _serve('server.listen=["127.0.0.1:0"]', setting)
    assert result.returncode == 2
    assert words in result.stderr.splitlines()[-1]
    assert "Traceback" not in result.stderr


def test_swaps_under_load_fail_no_call(start, tmp_path: Path):
    socket = f"unix:{tmp_path / 'admin' / 'admin.sock'}"
    daemon = start(f'admin.listen=["{socket}"]')
    data = digests(200, seed=5)
    stop = threading.Event()
    served: list[str] = []
    errors: list[Exception] = []

    def load():
        while not stop.is_set():
            try:
                answer = daemon.stub.Verify(parity_request(data), timeout=TIMEOUT_S)
                assert_right(answer, data)
                served.append(answer.served_by)
            except Exception as error:
                errors.append(error)
                return

    threads = [threading.Thread(target=load) for _ in range(4)]
    for thread in threads:
        thread.start()
    with grpc.insecure_channel(socket) as channel:
        admin = admin_pb2_grpc.PluginAdminStub(channel)
        labels = [
            admin.Reload(admin_pb2.ReloadPluginRequest(plugin="parity"), timeout=TIMEOUT_S).label for _ in range(5)
        ]
    stop.set()
    for thread in threads:
        thread.join()
    assert not errors
    assert len(set(labels)) == 5
    after = daemon.stub.Verify(parity_request(data), timeout=TIMEOUT_S)
    assert after.served_by == labels[-1]
    assert len(set(served)) > 1, "calls ran while plugins were swapped"
