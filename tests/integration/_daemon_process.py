"""A daemon in a process of its own, as an operator has it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

import grpc
import numpy as np

from verifier.bench.processes import children
from verifier.v1 import verifier_pb2 as pb
from verifier.v1 import verifier_pb2_grpc as rpc

ROOT = Path(__file__).parents[2]
PARITY = ROOT / "tests" / "fixtures" / "plugins" / "parity"
READY = "verifier ready on "


class DaemonProcess:
    """`verifier serve` with free ports. Logs are kept, one JSON object a line."""

    def __init__(
        self,
        folder: Path,
        plugins: list[str],
        *settings: str,
        devices: tuple[str, ...] = ("cpu",),
        faults: list[dict] | None = None,
        cache: str | None = "cache",
    ) -> None:
        assignments = [
            'server.listen=["127.0.0.1:0"]',
            'health.listen=["127.0.0.1:0"]',
            "metrics.listen=127.0.0.1:0",
            "plugins.trust=any",
            *settings,
        ]
        if cache is not None:
            assignments.append(f"plugins.cache_folder={folder / cache}")
        command = [sys.executable, "-m", "verifier", "serve", "--log-format", "json"]
        for device in devices:
            command += ["--device", device]
        for plugin in plugins:
            command += ["--plugin", plugin]
        for assignment in assignments:
            command += ["--set", assignment]
        environment = dict(os.environ)
        if faults is not None:
            environment |= {"VERIFIER_FAKE_DEVICES": "2", "VERIFIER_FAKE_FAULTS": json.dumps(faults)}
        self.log_file = folder / f"daemon-{time.monotonic_ns()}.log"
        with self.log_file.open("wb") as log:
            self.process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, cwd=ROOT, text=True, env=environment
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line.startswith(READY):
            self.process.kill()
            self.process.wait()
            self.process.stdout.close()
            raise AssertionError(f"the daemon did not start: {line!r}\n{self.log_file.read_text()}")
        self.address = line.removeprefix(READY).split()[0]
        options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
        self.channel = grpc.insecure_channel(self.address, options)
        self.stub = rpc.VerifierStub(self.channel)

    def logs(self) -> list[dict]:
        lines = self.log_file.read_text().splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    def ready_event(self) -> dict:
        return next(event for event in self.logs() if event["event"] == "ready")

    def metrics(self) -> dict[str, float]:
        """What Prometheus would read."""
        url = f"http://127.0.0.1:{self.ready_event()['metrics_port']}/metrics"
        with urllib.request.urlopen(url, timeout=60) as response:
            lines = response.read().decode().splitlines()
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}

    def workers(self) -> list[int]:
        """Process ids of the device processes: children that run the workers' code."""
        return children(self.process.pid, "verifier.workers")

    def stop(self, number: int | None = signal.SIGTERM, timeout_s: float = 60) -> int:
        """Sends a signal unless it is None, and returns the exit status."""
        if number is not None and self.process.poll() is None:
            self.process.send_signal(number)
        status = self.process.wait(timeout_s)
        self.channel.close()
        assert self.process.stdout is not None
        self.process.stdout.close()
        return status


def parity_scheme(kind: int = pb.INPUT_KIND_DIGEST) -> pb.Scheme:
    """The toy: an item is valid where the sum of its bytes is even."""
    return pb.Scheme(plugin="parity", input_kind=kind)


def digests(items: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (items, 32), dtype=np.uint8)


def parity_request(data: np.ndarray, request_id: int = 1, **fields) -> pb.VerifyRequest:
    return pb.VerifyRequest(
        request_id=request_id,
        items=len(data),
        scheme=parity_scheme(),
        input=pb.Column(data=data.tobytes()),
        **fields,
    )


def bits(data: bytes, items: int) -> np.ndarray:
    return np.unpackbits(np.frombuffer(data, np.uint8), count=items, bitorder="little").astype(bool)


def accepted(daemon: DaemonProcess) -> float:
    """How many items the toy has been given so far, answered or not."""
    counted = daemon.metrics().items()
    names = ('verifier_queue_items{plugin="parity"}', 'verifier_items_total{plugin="parity"')
    return sum(value for name, value in counted if name.startswith(names))


def assert_right(answer: pb.VerifyResponse, data: np.ndarray) -> None:
    assert answer.items == len(data)
    assert bits(answer.decided, len(data)).all()
    np.testing.assert_array_equal(bits(answer.valid, len(data)), data.sum(axis=1) % 2 == 0)


def assert_right_or_undecided(answer: pb.VerifyResponse, data: np.ndarray) -> int:
    """How many items are undecided."""
    decided = bits(answer.decided, len(data))
    np.testing.assert_array_equal(bits(answer.valid, len(data)), decided & (data.sum(axis=1) % 2 == 0))
    return int((~decided).sum())


class Requests:
    """An iterator of requests that a test feeds."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._waiting: list[pb.VerifyRequest | None] = []

    def put(self, request: pb.VerifyRequest | None) -> None:
        with self._condition:
            self._waiting.append(request)
            self._condition.notify()

    def __iter__(self) -> Requests:
        return self

    def __next__(self) -> pb.VerifyRequest:
        with self._condition:
            while not self._waiting:
                self._condition.wait()
            request = self._waiting.pop(0)
        if request is None:
            raise StopIteration
        return request


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
