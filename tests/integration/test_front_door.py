"""The front door of a daemon in a process of its own: certificates, roles, rates, and what is written down."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
from pathlib import Path

import grpc
import pytest
from _authority import Authority, settings
from _daemon_process import PARITY, DaemonProcess, assert_right, digests, parity_request
from _ports import free_port
from _waiting import until
from google.rpc import error_details_pb2, status_pb2

from verifier.v1 import admin_pb2, admin_pb2_grpc, cipher_pb2, cipher_pb2_grpc
from verifier.v1 import verifier_pb2 as pb
from verifier.v1 import verifier_pb2_grpc as rpc

TIMEOUT_S = 60
DENIED, EXHAUSTED = grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.RESOURCE_EXHAUSTED


def code_of(call, request, **options) -> grpc.StatusCode:
    try:
        call(request, timeout=TIMEOUT_S, **options)
    except grpc.RpcError as error:
        return error.code()
    return grpc.StatusCode.OK


def events(daemon: DaemonProcess, name: str) -> list[dict]:
    return [event for event in daemon.logs() if event["event"] == name]


class Guarded(DaemonProcess):
    """A daemon under mutual TLS: validators verify, CN=vault has the ciphers, CN=root administers."""

    def __init__(self, folder: Path, processes: int) -> None:
        self.authority = Authority()
        self.audit_file = folder / "audit.jsonl"
        self.admin_address = f"localhost:{free_port()}"
        super().__init__(
            folder,
            [str(PARITY)],
            *settings(self.authority.write(folder)),
            'roles.verify=["OU=validators"]',
            'roles.cipher=["CN=vault"]',
            'roles.admin=["CN=root"]',
            f'admin.listen=["{self.admin_address.replace("localhost", "127.0.0.1")}"]',
            f"plugins.audit_file={self.audit_file}",
            f"server.processes={processes}",
        )
        self.address = "localhost:" + self.address.rpartition(":")[2]
        self.channels: list[grpc.Channel] = []

    def connect(self, subject: str, address: str = "") -> grpc.Channel:
        channel = grpc.secure_channel(address or self.address, self.authority.credentials(subject))
        self.channels.append(channel)
        return channel

    def audit(self) -> list[dict]:
        return [json.loads(line) for line in self.audit_file.read_text().splitlines()]

    def stop(self, *arguments, **options) -> int:
        for channel in self.channels:
            channel.close()
        return super().stop(*arguments, **options)


@pytest.fixture(scope="module", params=[1, 2], ids=["itself", "front-ends"])
def guarded(tmp_path_factory, request):
    """By itself, and behind front ends, which then end TLS and check roles: they tell the daemon once a second."""
    daemon = Guarded(tmp_path_factory.mktemp("guarded"), request.param)
    yield daemon
    daemon.stop()


def test_each_role_has_its_calls_and_no_other(guarded):
    request = parity_request(digests(100, seed=1))
    ciphers = cipher_pb2.CreateKeyRequest(algorithm=cipher_pb2.CIPHER_ALGORITHM_AES, key=bytes(16))
    found = {}
    for subject in ("CN=a,OU=validators", "CN=vault", "CN=root", "CN=nobody"):
        channel = guarded.connect(subject)
        found[subject] = (
            code_of(rpc.VerifierStub(channel).Verify, request) is not DENIED,
            code_of(cipher_pb2_grpc.CipherServiceStub(channel).CreateKey, ciphers) is not DENIED,
            code_of(rpc.VerifierStub(channel).GetLimits, pb.GetLimitsRequest()) is not DENIED,
        )
    assert found == {
        "CN=a,OU=validators": (True, False, True),
        "CN=vault": (False, True, True),
        "CN=root": (False, False, True),
        "CN=nobody": (False, False, False),
    }


def test_a_stream_without_the_role_ends_at_once(guarded):
    stream = rpc.VerifierStub(guarded.connect("CN=nobody")).VerifyStream(
        iter([parity_request(digests(1, seed=1))]), timeout=TIMEOUT_S
    )
    with pytest.raises(grpc.RpcError) as caught:
        list(stream)
    assert caught.value.code() is DENIED


def test_administration_over_mutual_tls(guarded, tmp_path):
    root = admin_pb2_grpc.PluginAdminStub(guarded.connect("CN=root", guarded.admin_address))
    (instance,) = root.List(admin_pb2.ListPluginsRequest(), timeout=TIMEOUT_S).instances
    assert instance.plugin == "parity"
    load = admin_pb2.LoadPluginRequest(plugin=str(tmp_path / "none"))
    assert code_of(root.Load, load, metadata=(("verifier-actor", "alice"),)) is grpc.StatusCode.NOT_FOUND
    intruder = admin_pb2_grpc.PluginAdminStub(guarded.connect("CN=a,OU=validators", guarded.admin_address))
    assert code_of(intruder.Unload, admin_pb2.UnloadPluginRequest(plugin="parity")) is DENIED
    until(lambda: any(r["outcome"] == "DeniedError" and "Unload" in r["operation"] for r in guarded.audit()), "it")
    records = [(r["actor"], r["operation"].rpartition("/")[2], r["outcome"]) for r in guarded.audit()]
    assert ("CN=root, says alice", "load") in {record[:2] for record in records}
    assert ("OU=validators,CN=a", "Unload", "DeniedError") in records


def test_the_command_line_administers_over_mutual_tls(guarded, tmp_path, capfd):
    def plugins(subject: str, *more: str) -> tuple[int, str]:
        files = guarded.authority.write(tmp_path, subject)
        tls = (f"--tls-ca={files['tls_client_ca_file']}", f"--tls-certificate={files['tls_certificate_file']}")
        command = [sys.executable, "-m", "verifier", "plugin", "list", f"--address={guarded.admin_address}", "--json"]
        done = subprocess.run([*command, *tls, *more], check=False, timeout=TIMEOUT_S)
        captured = capfd.readouterr()
        return done.returncode, captured.out + captured.err

    key = f"--tls-key={tmp_path / 'key.pem'}"
    status, text = plugins("CN=root", key)
    assert status == 0
    assert json.loads(text)["instances"][0]["label"].startswith("parity@")
    status, text = plugins("CN=nobody", key)
    assert status == 1
    assert text.startswith("PERMISSION_DENIED: this call needs the role admin")
    status, text = plugins("CN=root", "--tls-key=none")
    assert (status, text) == (1, "none: No such file or directory\n")
    assert plugins("CN=root")[0] == 2  # a certificate without its key


def test_a_denied_call_is_counted_logged_under_its_name_and_audited(guarded):
    channel = guarded.connect("CN=mallory")
    request = parity_request(digests(1, seed=1))
    for _ in range(5):
        assert code_of(rpc.VerifierStub(channel).Verify, request, metadata=(("x-request-id", "call-77"),)) is DENIED
    for series in (
        'verifier_denied_total{reason="role",role="verify"}',
        'verifier_requests_total{code="PERMISSION_DENIED",rpc="Verify"}',
    ):
        until(lambda name=series: guarded.metrics().get(name, 0) >= 5, series)
    (event,) = [event for event in events(guarded, "call_denied") if event["caller"] == "CN=mallory"]
    assert (event["call_id"], event["method"], event["role"]) == ("call-77", "/verifier.v1.Verifier/Verify", "verify")

    def audited() -> list[str]:
        return [record["operation"] for record in guarded.audit() if record["actor"] == "CN=mallory"]

    until(audited, "the audit has it")
    assert audited() == ["/verifier.v1.Verifier/Verify"]


@pytest.mark.parametrize("name", ["x" * 65, "two words", ""])
def test_a_name_of_a_call_that_is_none_does_not_reach_the_log(guarded, name):
    channel = guarded.connect(f"CN=who-{len(name)}-{name[:1].strip()}")
    code_of(rpc.VerifierStub(channel).Verify, parity_request(digests(1, seed=1)), metadata=(("x-request-id", name),))

    def told() -> list[dict]:
        return [e for e in events(guarded, "call_denied") if e["caller"] == f"CN=who-{len(name)}-{name[:1].strip()}"]

    until(told, "the log has it")
    (event,) = told()
    assert len(bytes.fromhex(event["call_id"])) == 8


@pytest.fixture(scope="module")
def limited(tmp_path_factory):
    """A daemon with rates, whose sockets have modes of their own."""
    folder = tmp_path_factory.mktemp("limited")
    old = os.umask(0)  # what protects a socket is not the mask
    try:
        daemon = DaemonProcess(
            folder,
            [str(PARITY)],
            f'server.listen=["127.0.0.1:0", "unix:{folder}/work.sock"]',
            "server.socket_mode=0600",
            f'admin.listen=["unix:{folder}/admin.sock"]',
            "admin.socket_mode=0660",
            "rates.verify_calls_per_s=10",
            "rates.verify_items_per_s=2000",
            "rates.burst_s=0.5",
        )
    finally:
        os.umask(old)
    daemon.folder = folder
    yield daemon
    daemon.stop()


def test_sockets_have_the_modes_that_were_asked_for(limited):
    modes = {name: (limited.folder / name).stat().st_mode & 0o777 for name in ("work.sock", "admin.sock")}
    assert modes == {"work.sock": 0o600, "admin.sock": 0o660}


def test_a_caller_beyond_its_rate_is_told_when_to_come_again(limited):
    data = digests(10, seed=2)
    calls = [limited.stub.Verify.future(parity_request(data), timeout=TIMEOUT_S) for _ in range(60)]
    errors = [error for error in (call.exception() for call in calls) if error is not None]
    for call in calls:
        if call.exception() is None:
            assert_right(call.result(), data)
    assert 0 < len(errors) <= 55, "a bucket has five, and ten a second come in"
    assert {error.code() for error in errors} == {EXHAUSTED}
    assert all(0 < retry_delay_s(error) <= 0.1 for error in errors)
    assert limited.metrics()['verifier_denied_total{reason="rate",role="verify"}'] == len(errors)


def retry_delay_s(error: grpc.RpcError) -> float:
    details = dict(error.trailing_metadata())["grpc-status-details-bin"]
    retry = error_details_pb2.RetryInfo()
    (packed,) = status_pb2.Status.FromString(details).details
    assert packed.Unpack(retry)
    return retry.retry_delay.ToNanoseconds() / 1e9


def test_a_stream_beyond_its_rate_is_slowed_and_loses_nothing(limited):
    batches = [digests(200, seed=seed) for seed in range(12)]
    series = 'verifier_denied_total{reason="rate",role="verify"}'
    waits = limited.metrics().get(series, 0)
    requests = (parity_request(data, request_id=number) for number, data in enumerate(batches))
    # By the socket: another caller, whose bucket is full.
    with grpc.insecure_channel(f"unix:{limited.folder}/work.sock") as channel:
        stream = rpc.VerifierStub(channel).VerifyStream(requests, timeout=TIMEOUT_S)
        answers = {answer.request_id: answer for answer in stream}
    assert len(answers) == 12
    for number, data in enumerate(batches):
        assert answers[number].failure.code == 0
        assert_right(answers[number], data)
    # A bucket has 1,000 of the 2,400: the stream was told to wait for the others.
    assert limited.metrics()[series] > waits


class Files:
    """A daemon and its certificate files, which tests replace, and what a new connection is shown."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority()
        self.daemon = DaemonProcess(folder, [str(PARITY)], *settings(self.authority.write(folder)))
        self.address = "localhost:" + self.daemon.address.rpartition(":")[2]

    def shown(self, authority: Authority | None = None) -> bytes:
        """The daemon's certificate as a new client of an authority sees it."""
        authority = authority or self.authority
        context = ssl.create_default_context(cadata=authority.pem().decode())
        key, certificate = authority.issue("CN=node")
        pem = self.folder / "client.pem"
        pem.write_bytes(key + certificate)
        context.load_cert_chain(pem)
        context.set_alpn_protocols(["h2"])
        with (
            socket.create_connection(("127.0.0.1", int(self.address.rpartition(":")[2])), TIMEOUT_S) as raw,
            context.wrap_socket(raw, server_hostname="localhost") as connection,
        ):
            connection.recv(1)  # a client certificate is refused after the handshake, so far as TLS 1.3 goes
            shown = connection.getpeercert(True)
            assert shown is not None
            return shown

    def reloads(self, result: str) -> float:
        return self.daemon.metrics().get(f'verifier_tls_reloads_total{{result="{result}"}}', 0)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    made = Files(tmp_path_factory.mktemp("files"))
    yield made
    made.daemon.stop()


def test_new_certificates_without_a_restart(files):
    data = digests(100, seed=3)
    with grpc.secure_channel(files.address, files.authority.credentials("CN=node")) as channel:
        stub = rpc.VerifierStub(channel)
        assert_right(stub.Verify(parity_request(data), timeout=TIMEOUT_S), data)
        first, expires = files.shown(), files.daemon.metrics()["verifier_tls_expiry_timestamp_seconds"]
        assert files.shown() == first
        taken = files.reloads("taken")
        files.authority.write(files.folder, hours=5)
        assert files.shown() != first, "a new connection has the new certificate"
        assert_right(stub.Verify(parity_request(data), timeout=TIMEOUT_S), data)
    assert files.daemon.metrics()["verifier_tls_expiry_timestamp_seconds"] > expires + 3600
    assert files.reloads("taken") == taken + 1


def test_broken_certificate_files_keep_the_old(files):
    first, path = files.shown(), files.folder / "certificate.pem"
    good = path.read_bytes()
    path.write_bytes(good[: len(good) // 2])
    assert [files.shown() for _ in range(3)] == [first] * 3
    (event,) = events(files.daemon, "tls_files_refused")
    assert str(path) in event["problem"]
    assert "cut short" in event["problem"]
    assert files.reloads("refused") == 1
    files.authority.write(files.folder)
    assert files.shown() != first
    assert len(events(files.daemon, "tls_files_refused")) == 1


def test_a_new_client_authority_without_a_restart(files):
    """Clients of the old authority stay where they are connected, and come in no more."""
    successor = Authority("successor")
    successor.write(files.folder)
    with pytest.raises((ssl.SSLError, ConnectionError)):
        files.shown()
    files.authority = successor
    files.shown()


def test_a_service_manager_is_told(tmp_path, monkeypatch):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(TIMEOUT_S)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        daemon = DaemonProcess(tmp_path, [str(PARITY)])
        assert manager.recv(64) == b"READY=1"
        assert daemon.stop(signal.SIGTERM) == 0
        assert manager.recv(64) == b"STOPPING=1"
