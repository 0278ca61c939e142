from __future__ import annotations

import random

import pytest
from _cipher_command import invoke, key_file
from _daemon_process import PARITY, DaemonProcess

from node_adapter.client import CipherClient


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    """A daemon on the CPU with the toy."""
    made = DaemonProcess(tmp_path_factory.mktemp("daemon"), [str(PARITY)])
    yield made
    made.stop()


@pytest.fixture(scope="session")
def cipher_daemon(tmp_path_factory):
    """A daemon with some ciphers; SM4 is not loaded. Images are built once a machine, not once a run."""
    made = DaemonProcess(
        tmp_path_factory.mktemp("ciphers"),
        ["aes", "kuznyechik", "hight"],
        "log.level=debug",
        "cipher.max_keys_a_caller=512",
        "cipher.stream_held_bytes=1048576",
        "cipher.held_bytes=1572864",
        cache=None,
    )
    yield made
    made.stop()


@pytest.fixture(scope="module")
def client(cipher_daemon):
    """A client of the daemon with ciphers."""
    with CipherClient(cipher_daemon.address, timeout_s=120) as made:
        yield made


@pytest.fixture
def cipher(cipher_daemon):
    """`verifier cipher` by this daemon: what it says, in one line."""

    def run(*arguments, code: int = 0) -> str:
        result = invoke(*arguments, "--target", cipher_daemon.address)
        assert result.exit_code == code, result.output
        return " ".join(result.output.split())

    return run


@pytest.fixture
def key(tmp_path):
    """A file with an AES key."""
    return key_file(tmp_path / "key", random.Random(7).randbytes(16))


@pytest.fixture
def start(tmp_path):
    """Starts daemons that a test stops or kills as it likes."""
    made = []

    def begin(*settings: str, **options) -> DaemonProcess:
        daemon = DaemonProcess(tmp_path, [str(PARITY)], *settings, **options)
        made.append(daemon)
        return daemon

    yield begin
    for daemon in made:
        daemon.process.kill()
        daemon.stop()
        print(daemon.log_file.read_text())  # pytest shows it where the test failed
