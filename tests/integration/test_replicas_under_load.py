"""Three daemons behind one client, under load: one is killed, one drains, one swaps its plugin. Nothing is lost."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from _admin import MARKED, PLAIN, AdminDaemon, copy_plugin, marked_parity
from _daemon_process import parity_scheme
from _waiting import until

from node_adapter.client import (
    Algorithm,
    AsyncVerifierClient,
    InputKind,
    KeyEncoding,
    Priority,
    Scheme,
    SignatureEncoding,
    VerifierClient,
)
from node_adapter.client._jobs import verify_job
from node_adapter.errors import ReplicasError
from verifier.v1 import verifier_pb2 as pb

ITEMS, CHUNK = 1200, 300
POOL = 6


def parity_job(data):
    """The toy takes no signatures, which the client's own calls always send."""
    scheme = Scheme(
        Algorithm.UNSPECIFIED, InputKind.DIGEST, SignatureEncoding.RAW_RS, KeyEncoding.IN_SIGNATURE, plugin="parity"
    )
    job = verify_job(scheme, data, bytes(64 * len(data)), None, priority=Priority.POOL, deduplicate=False)
    head = pb.VerifyRequest(scheme=parity_scheme()).SerializeToString()
    return replace(job, columns={"input": job.columns["input"]}, head=head)


class Work:
    """Callers that ask without a pause and compare every verdict."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.errors: list[str] = []
        self.served: list[tuple[float, str]] = []
        self.calls = 0
        self._stop = threading.Event()
        self._lock = threading.Lock()
        rng = np.random.default_rng(17)
        self._batches = [rng.integers(0, 256, (ITEMS, 32), dtype=np.uint8) for _ in range(POOL)]
        self._threads = [
            *(threading.Thread(target=self._blocking, args=(n,)) for n in range(2)),
            threading.Thread(target=lambda: asyncio.run(self._on_loop())),
        ]

    def __enter__(self) -> Work:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(120)

    def more(self, calls: int) -> None:
        """Returns when so many more calls have been answered."""
        wanted = self.calls + calls
        until(lambda: self.calls >= wanted or self.errors, "the load goes on")
        assert not self.errors, self.errors[:3]

    def _note(self, data, result) -> None:
        now = time.monotonic()
        right = (result.codes == 1) == (data.sum(axis=1) % 2 == 0)
        with self._lock:
            self.calls += 1
            self.served += [(now, part.served_by) for part in result.served]
            if not right.all() or not result.decided.all():
                self.errors.append(f"{np.count_nonzero(~right)} wrong, {np.count_nonzero(~result.decided)} undecided")

    def _blocking(self, number: int) -> None:
        with VerifierClient(self.target, chunk_items=CHUNK, timeout_s=30.0) as client:
            turn = number
            while not self._stop.is_set():
                data = self._batches[(turn := turn + 1) % POOL]
                try:
                    self._note(data, client._run(parity_job(data), None, False))
                except Exception as error:
                    self.errors.append(repr(error))

    async def _on_loop(self) -> None:
        async with AsyncVerifierClient(self.target, chunk_items=CHUNK, timeout_s=30.0) as client:
            turn = 0
            while not self._stop.is_set():
                data = self._batches[(turn := turn + 1) % POOL]
                try:
                    self._note(data, await client._run(parity_job(data), None, False))
                except Exception as error:
                    self.errors.append(repr(error))


@pytest.fixture
def daemons(tmp_path):
    plain = copy_plugin(tmp_path / "plain")
    made = []

    def start(number: int) -> None:
        folder = tmp_path / str(number)
        folder.mkdir()
        made.append(AdminDaemon(folder, [str(plain)], f"plugins.cache_folder={tmp_path / 'cache'}", cache=None))

    starts = [threading.Thread(target=start, args=(number,)) for number in range(3)]
    for thread in starts:
        thread.start()
    for thread in starts:
        thread.join()
    assert len(made) == 3
    yield made
    for daemon in made:
        daemon.process.kill()
        daemon.stop()


def requests(daemon: AdminDaemon) -> float:
    return sum(value for name, value in daemon.metrics().items() if name.startswith("verifier_requests_total"))


@pytest.mark.parametrize("calls", [40, pytest.param(1500, marks=pytest.mark.long)])
def test_one_swapped_one_killed_one_drained(daemons, tmp_path, calls):
    """`calls` of each client's callers between one event and the next."""
    swapped, killed, drained = daemons
    target = "ipv4:" + ",".join(daemon.address for daemon in daemons)
    with VerifierClient(target) as client, Work(target) as work:
        work.more(calls)
        assert {label for _, label in work.served} == {f"parity@{PLAIN}#1"}
        counts = [requests(daemon) for daemon in daemons]
        assert min(counts) > max(counts) / 4, f"all three have work: {counts}"
        assert len(client.check_replicas()) == 3

        instance = swapped.load(marked_parity(tmp_path / "other"))
        assert instance.label.startswith(f"parity@{MARKED}")
        with pytest.raises(
            ReplicasError, match=rf"verify PARITY .*parity@{PLAIN} .*parity@{MARKED}|{MARKED}.*{PLAIN}"
        ):
            client.check_replicas()
        work.more(calls)

        killed.process.kill()
        work.more(calls)

        drained.process.send_signal(signal.SIGTERM)
        work.more(calls)
        assert drained.process.wait(60) == 0
        work.more(calls)
        assert list(client.check_replicas()) == [f"ipv4:{swapped.address}"]
    assert work.errors == []
    assert {label for _, label in work.served} == {f"parity@{PLAIN}#1", instance.label}
    assert work.served[-1][1] == instance.label
    print(f"{work.calls} calls of {ITEMS} items")
