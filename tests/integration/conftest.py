from __future__ import annotations

import pytest
from _daemon_process import PARITY, DaemonProcess


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    """A daemon on the CPU with the toy."""
    made = DaemonProcess(tmp_path_factory.mktemp("daemon"), [str(PARITY)])
    yield made
    made.stop()


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
