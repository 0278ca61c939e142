"""Bad input to a running daemon's admin service, under traffic: a clear status, and what served before serves on."""

from __future__ import annotations

import dataclasses
import io
import os
import subprocess
import sys
import tempfile
import threading
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from _admin import SERVING, AdminDaemon, copy_plugin, refused
from _load import Load
from _waiting import until
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from verifier.registry import bundle_bytes, read_source, sign, write_lock
from verifier.registry._bundle import MAX_BUNDLE_BYTES
from verifier.v1 import admin_pb2, admin_pb2_grpc

CALL_S = 120
BAD = grpc.StatusCode.FAILED_PRECONDITION
DENIED = grpc.StatusCode.PERMISSION_DENIED
FIRST = "parity@1.0.0#1"


@pytest.fixture(scope="module")
def key() -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(bytes(range(32)))


@pytest.fixture(scope="module")
def daemon(tmp_path_factory, key):
    """Loads what is locked or signed. Clients use the toy all the while, and every answer must be right."""
    folder = tmp_path_factory.mktemp("daemon")
    good = copy_plugin(folder / "good")
    write_lock(folder / "plugins.lock", [read_source(good)])
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    (folder / "key.pem").write_bytes(public)
    made = AdminDaemon(
        folder,
        [str(good)],
        "plugins.trust=locked",
        f'plugins.lock_files=["{folder / "plugins.lock"}"]',
        f'plugins.public_key_files=["{folder / "key.pem"}"]',
    )
    try:
        with Load(made.address, folder, processes=2, depth=2, items=100, pause_s=0.01) as load:
            yield made
        load.report.assert_all_right()
    finally:
        made.process.kill()
        made.stop()


@pytest.fixture(autouse=True)
def still_serves(daemon):
    """After each test the toy's first instance is active and served."""
    yield
    active = [label for label, instance in daemon.instances().items() if instance.active]
    assert active == [FIRST]
    assert daemon.health("verify/PARITY") == SERVING


def bundle_of(path: Path, source) -> Path:
    path.write_bytes(bundle_bytes(source))
    return path


def rewritten(data: bytes, change) -> bytes:
    """The archive with every (name, bytes) replaced by what `change` gives."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            new.writestr(*change(name, old.read(name)))
    return out.getvalue()


@pytest.fixture
def signed(tmp_path, key):
    """A bundle of another version that may load."""
    folder = copy_plugin(tmp_path / "signed", version="2.0.0")
    return bundle_bytes(sign(read_source(folder), key))


CORRUPT = {
    "no archive": lambda data: b"this is not an archive",
    "empty": lambda data: b"",
    "cut short": lambda data: data[: len(data) // 2],
    "a flipped bit": lambda data: data.replace(b"PLUGIN_INFO", b"PLUGIN_INFo", 1),
    "another member's bytes": lambda data: rewritten(
        data, lambda name, old: (name, b"x" * len(old) if name == "source/parity.cu" else old)
    ),
    "a member that the index lacks": lambda data: rewritten(
        data, lambda name, old: (name.replace("source/sums.cuh", "source/other.cuh"), old)
    ),
    "a path that leads out": lambda data: rewritten(
        data, lambda name, old: (name.replace("source/sums.cuh", "source/../../sums.cuh"), old)
    ),
    "an absolute path": lambda data: rewritten(
        data, lambda name, old: (name.replace("source/sums.cuh", "/etc/sums.cuh"), old)
    ),
}


@pytest.mark.parametrize("kind", CORRUPT)
def test_a_corrupt_bundle(daemon, tmp_path, signed, kind):
    path = tmp_path / "bad.bundle"
    path.write_bytes(CORRUPT[kind](signed))
    with refused(BAD, "bad.bundle"):
        daemon.load(path)


def test_an_oversized_bundle(daemon, tmp_path):
    path = tmp_path / "big.bundle"
    with path.open("wb") as file:
        file.truncate(MAX_BUNDLE_BYTES + 1)
    with refused(BAD, str(MAX_BUNDLE_BYTES)):
        daemon.load(path)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('source = "parity.cu"', 'source = "../good/parity.cu"'),
        ('source = "parity.cu"', 'source = "/etc/passwd"'),
        ('vectors = "vectors.json"', 'vectors = "../../vectors.json"'),
    ],
)
def test_a_manifest_whose_path_leads_out(daemon, tmp_path, old, new):
    folder = copy_plugin(tmp_path / "bad", version="2.0.0", manifest=lambda text: text.replace(old, new))
    with refused(BAD, "plugin.toml"):
        daemon.load(folder)


def test_an_include_that_leads_out(daemon, tmp_path):
    folder = copy_plugin(
        tmp_path / "bad", version="2.0.0", source=lambda text: text.replace('"sums.cuh"', '"../good/sums.cuh"')
    )
    with refused(BAD, "not a plain file name"):
        daemon.load(folder)


def test_a_link_that_leads_out(daemon, tmp_path):
    folder = copy_plugin(tmp_path / "bad", version="2.0.0")
    (folder / "sums.cuh").unlink()
    (folder / "sums.cuh").symlink_to("/etc/passwd")
    with refused(BAD, "symbolic links are refused"):
        daemon.load(folder)


def test_another_abi(daemon, tmp_path, key):
    folder = copy_plugin(tmp_path / "bad", version="2.0.0", manifest=lambda text: text.replace("abi = 1", "abi = 2"))
    with refused(BAD, "abi"):
        daemon.load(bundle_of(tmp_path / "abi.bundle", sign(read_source(folder), key)))


def test_a_source_with_a_thousand_errors(daemon, tmp_path, key):
    """The compiler's log is longer than a status may be; the status comes all the same."""
    folder = copy_plugin(
        tmp_path / "bad",
        version="2.0.0",
        source=lambda text: text + "".join(f"int wrong_{n} = missing_{n};\n" for n in range(1000)),
    )
    with refused(BAD, "characters are in the daemon's log"):
        daemon.load(bundle_of(tmp_path / "bad.bundle", sign(read_source(folder), key)))


def test_signatures(daemon, tmp_path, key):
    source = read_source(copy_plugin(tmp_path / "two", version="2.0.0"))
    other = Ed25519PrivateKey.from_private_bytes(bytes(32))
    signatures = {"none": None, "another's": sign(source, other).signature, "zeros": bytes(64), "short": b"short"}
    for name, signature in signatures.items():
        with refused(DENIED, f"{source.label} with digest {source.digest}"):
            daemon.load(bundle_of(tmp_path / f"{name}.bundle", _with(source, signature)))
    # The signature of other bytes.
    third = read_source(copy_plugin(tmp_path / "three", version="3.0.0"))
    with refused(DENIED, "signed by none of the configured keys"):
        daemon.load(bundle_of(tmp_path / "swapped.bundle", _with(third, sign(source, key).signature)))
    with refused(DENIED, "verifier plugin lock"):
        daemon.load(tmp_path / "two")
    right = daemon.load(bundle_of(tmp_path / "right.bundle", sign(source, key)), keep_inactive=True)
    assert right.state == admin_pb2.PLUGIN_STATE_WARM
    daemon.admin.Unload(admin_pb2.UnloadPluginRequest(plugin=right.label, wait=True), timeout=CALL_S)


def _with(source, signature: bytes | None):
    return dataclasses.replace(source, signature=signature)


def test_loads_of_one_version_at_once(daemon, tmp_path, key):
    """The newest wins; the others are told so, or had finished before."""
    source = read_source(copy_plugin(tmp_path / "four", version="4.0.0"))
    path = bundle_of(tmp_path / "four.bundle", sign(source, key))

    def load(_: int) -> grpc.StatusCode:
        request = admin_pb2.LoadPluginRequest(plugin=str(path), force=True, keep_inactive=True)
        return daemon.admin.Load.future(request, timeout=CALL_S).code()

    with ThreadPoolExecutor(4) as pool:
        codes = list(pool.map(load, range(4)))
    assert set(codes) <= {grpc.StatusCode.OK, grpc.StatusCode.ABORTED}
    assert codes.count(grpc.StatusCode.OK) >= 1
    until(lambda: len(_live(daemon, "4.0.0")) == 1, "one of them stays")
    daemon.admin.Unload(admin_pb2.UnloadPluginRequest(plugin="parity@4.0.0", wait=True), timeout=CALL_S)
    assert _live(daemon, "4.0.0") == []


def _live(daemon: AdminDaemon, version: str) -> list[str]:
    gone = (admin_pb2.PLUGIN_STATE_UNLOADED, admin_pb2.PLUGIN_STATE_FAILED)
    return [i.label for i in daemon.instances().values() if i.version == version and i.state not in gone]


def test_unload_while_loading(daemon, tmp_path, key):
    """The unload is the newer operation: the load is told so and leaves nothing."""
    folder = copy_plugin(
        tmp_path / "slow", of="faulty-compile", manifest=lambda text: text.replace("SIZE = 600", "SIZE = 200")
    )
    path = bundle_of(tmp_path / "slow.bundle", sign(read_source(folder), key))
    ended = []

    def load() -> None:
        call = daemon.admin.Load.future(admin_pb2.LoadPluginRequest(plugin=str(path)), timeout=CALL_S)
        ended.append((call.code(), call.details()))

    loading = threading.Thread(target=load)
    loading.start()
    until(lambda: "faulty_compile" in {i.plugin for i in daemon.instances().values()}, "the load has begun")
    daemon.admin.Unload(admin_pb2.UnloadPluginRequest(plugin="faulty_compile"), timeout=CALL_S)
    loading.join()
    ((code, text),) = ended
    assert code is grpc.StatusCode.ABORTED
    assert "a newer one was accepted: unload of faulty_compile" in text
    assert {i.state for i in daemon.instances().values() if i.plugin == "faulty_compile"} == {
        admin_pb2.PLUGIN_STATE_FAILED
    }


def test_the_work_listener_has_no_admin_service(daemon):
    admin = admin_pb2_grpc.PluginAdminStub(daemon.channel)
    with refused(grpc.StatusCode.UNIMPLEMENTED):
        admin.Unload(admin_pb2.UnloadPluginRequest(plugin="parity"), timeout=CALL_S)


AS_ANOTHER = """
import os, socket, sys
os.setgid(65534), os.setuid(65534)
connection = socket.socket(socket.AF_UNIX)
try:
    connection.connect(sys.argv[1])
except PermissionError:
    sys.exit(13)
"""


def test_another_user_does_not_reach_the_admin_socket(daemon):
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)  # anyone may look for the socket here
        link = Path(folder) / "admin.sock"
        other = AdminDaemonSocket(daemon, link)
        assert other.as_root() == 0
        assert other.as_another() == 13


class AdminDaemonSocket:
    """The daemon's socket under a path that everyone can reach."""

    def __init__(self, daemon: AdminDaemon, path: Path) -> None:
        os.link(daemon.socket, path)
        self._path = path

    def as_root(self) -> int:
        return self._connect(AS_ANOTHER.replace("os.setgid(65534), os.setuid(65534)", ""))

    def as_another(self) -> int:
        return self._connect(AS_ANOTHER)

    def _connect(self, program: str) -> int:
        return subprocess.run([sys.executable, "-c", program, str(self._path)], check=False).returncode
