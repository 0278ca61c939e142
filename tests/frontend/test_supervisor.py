"""A front end that cannot be started now is tried again."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from verifier.errors import BackendError
from verifier.frontend import _supervisor
from verifier.frontend._supervisor import _FrontEnd
from verifier.regions import Region


class Owner:
    """What a front end needs of its owner until there is a process."""

    def __init__(self):
        self.settings = SimpleNamespace(server=SimpleNamespace(region_bytes=1 << 16))
        self.core = self.operations = None
        self.totals = SimpleNamespace(lost=lambda _: None)
        self.stopping = threading.Event()
        self.lost = 0
        self.metrics = SimpleNamespace(front_end_lost=self.one_more)
        self.unmapped = []

    def one_more(self):
        self.lost += 1
        if self.lost == 3:
            self.stopping.set()

    def unmap(self, number):
        self.unmapped.append(number)

    def greet(self, session):
        """There is nothing to tell."""

    def changed(self, number, *, up):
        """Nobody counts."""


def test_a_process_that_cannot_be_made_is_tried_again_and_leaves_nothing(monkeypatch):
    def no_process(*_args, **_options):
        raise OSError(11, os.strerror(11))

    monkeypatch.setattr(_supervisor.subprocess, "Popen", no_process)
    monkeypatch.setattr(_supervisor, "_BACK_OFF_S", 0.001)
    gc.collect()  # what earlier tests left is not counted, for it may go meanwhile
    before = len(list(Path("/proc/self/fd").iterdir()))
    owner = Owner()
    front_end = _FrontEnd(owner, 0, "server.listen", ())
    front_end.start()
    assert owner.stopping.wait(30)
    front_end.join(1)
    assert owner.lost == 3
    assert len(set(owner.unmapped)) == 3
    with pytest.raises(BackendError, match=r"front end 0 cannot be started: .*Resource temporarily unavailable"):
        front_end.first.result(0)
    assert len(list(Path("/proc/self/fd").iterdir())) <= before


RUBBISH = """
import time
from multiprocessing.connection import Connection
core = Connection({fd})
core.recv_bytes()
core.send_bytes(bytes([255]))
time.sleep(600)
"""


def test_one_that_sends_rubbish_and_lives_on_is_replaced(monkeypatch):
    """It would go on accepting calls that nobody reads."""
    started = []

    def spawn(_module, _title, fds, **_environment):
        started.append(subprocess.Popen([sys.executable, "-c", RUBBISH.format(fd=fds[0])], pass_fds=fds))
        return started[-1]

    monkeypatch.setattr(_supervisor, "spawn", spawn)
    monkeypatch.setattr(_supervisor, "_BACK_OFF_S", 0.001)
    owner = Owner()
    front_end = _FrontEnd(owner, 0, "server.listen", ())
    front_end.start()
    try:
        assert owner.stopping.wait(30)
    finally:
        for process in started:
            process.kill()
        owner.stopping.set()
        front_end.join(10)
    assert owner.lost == len(started) == 3


def test_a_region_cannot_be_made_smaller_or_larger():
    region = Region.create(1 << 16)
    for nbytes in (1 << 12, 1 << 20):
        with pytest.raises(PermissionError):
            os.truncate(region.fd, nbytes)
    region.memory[:] = 1
    region.retire()
