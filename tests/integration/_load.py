"""Load on a daemon from processes of its own.

Each process keeps a number of calls in flight, compares every bit of every answer with what it must be, and writes
down when each call began and how long it took. Times are CLOCK_MONOTONIC, which all processes of a host share.

    with Load(daemon.address, folder) as load:
        ...
    load.report.assert_all_right()
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import grpc
import numpy as np

from verifier.v1 import verifier_pb2 as pb
from verifier.v1 import verifier_pb2_grpc as rpc

ROOT = Path(__file__).parents[2]
RIGHT, UNDECIDED, WRONG, REFUSED, TOO_LATE = range(5)
POOL = 8  # different batches of one process
CALL_S = 120.0


@dataclass(frozen=True)
class Sample:
    """A batch and its answer: which items are valid."""

    request: pb.VerifyRequest
    valid: np.ndarray


def parity_sample(items: int, seed: int) -> Sample:
    """Of the toy: an item is valid where the sum of its bytes is even."""
    data = np.random.default_rng(seed).integers(0, 256, (items, 32), dtype=np.uint8)
    scheme = pb.Scheme(plugin="parity", input_kind=pb.INPUT_KIND_DIGEST)
    request = pb.VerifyRequest(items=items, scheme=scheme, input=pb.Column(data=data.tobytes()))
    return Sample(request, data.sum(axis=1) % 2 == 0)


def sm2_sample(items: int, seed: int) -> Sample:
    """Signatures of SM2, about one in eight of them bad."""
    from verifier.bench.signatures import make_signatures

    made = make_signatures("SM2", items, seed=seed, keys=64, fault_share=0.125)
    scheme = pb.Scheme(
        algorithm=pb.ALGORITHM_SM2,
        input_kind=pb.INPUT_KIND_DIGEST,
        signature_encoding=pb.SIGNATURE_ENCODING_RAW_RS,
        key_encoding=pb.KEY_ENCODING_RAW_XY,
    )
    request = pb.VerifyRequest(
        items=items,
        scheme=scheme,
        input=pb.Column(data=made.digests.tobytes()),
        signature=pb.Column(data=made.signatures.tobytes()),
        key=pb.Column(data=made.keys.tobytes()),
    )
    return Sample(request, made.valid)


SAMPLES = {"parity": parity_sample, "sm2": sm2_sample}


@dataclass(frozen=True)
class Report:
    """What became of every call: its start, its seconds, one of the outcomes above, and who served it."""

    starts: np.ndarray
    seconds: np.ndarray
    outcomes: np.ndarray
    served_by: Counter[str]
    problems: tuple[str, ...]  # the first of what was not right

    @property
    def calls(self) -> int:
        return len(self.starts)

    def count(self, outcome: int) -> int:
        return int((self.outcomes == outcome).sum())

    def assert_all_right(self) -> None:
        """Every call was answered, decided and right."""
        assert self.calls > 0
        assert self.count(RIGHT) == self.calls, self.problems

    def assert_right_or_undecided(self) -> None:
        """Every call was answered, or told that its deadline had passed, and no decided bit is wrong."""
        assert self.calls > 0
        assert self.count(WRONG) == self.count(REFUSED) == 0, self.problems

    def within(self, spans: Iterable[tuple[float, float]]) -> np.ndarray:
        """Which calls overlap one of the spans of time."""
        ends = self.starts + self.seconds
        hit = np.zeros(self.calls, np.bool_)
        for begin, end in spans:
            hit |= (self.starts < end) & (ends > begin)
        return hit

    def quantile(self, q: float, chosen: np.ndarray) -> float:
        """Seconds, of the chosen calls that were answered right."""
        return float(np.quantile(self.seconds[chosen & (self.outcomes == RIGHT)], q))


class Load:
    """Client processes. `marks` names versions whose invalid items carry a reason; others must give none."""

    def __init__(
        self,
        address: str,
        folder: Path,
        *,
        plugin: str = "parity",
        processes: int = 4,
        depth: int = 4,
        items: int = 500,
        pause_s: float = 0.0,
        call_s: float = CALL_S,
        seed: int = 20260730,
        marks: Mapping[str, int] | None = None,
    ) -> None:
        self._clients = []
        self._report: Report | None = None
        for number in range(processes):
            settings = {
                "address": address,
                "plugin": plugin,
                "depth": depth,
                "items": items,
                "pause_s": pause_s,
                "call_s": call_s,
                "seed": seed + 1000 * number,
                "marks": dict(marks or {}),
                "path": str(folder / f"load-{time.monotonic_ns()}.npz"),
            }
            client = subprocess.Popen(
                [sys.executable, __file__, json.dumps(settings)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                cwd=ROOT,
                text=True,
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]),
                    "OPENBLAS_NUM_THREADS": "1",
                },
            )
            self._clients.append((client, Path(settings["path"])))
        for client, _ in self._clients:
            line = client.stdout.readline()
            if line != "loading\n":
                self.stop()
                raise AssertionError(f"a client did not start: {line!r}")

    def __enter__(self) -> Load:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> Report:
        """Lets every call in flight end and gathers what the processes wrote down. Idempotent."""
        if self._report is not None:
            return self._report
        for client, _ in self._clients:
            client.stdin.close()
        parts, served, problems = [], Counter(), []
        for client, path in self._clients:
            client.wait(CALL_S + 60)
            client.stdout.close()
            if client.returncode:
                continue
            with np.load(path) as file:
                parts.append([file["starts"], file["seconds"], file["outcomes"]])
                told = json.loads(str(file["told"]))
            path.unlink()
            served.update(told["served_by"])
            problems += told["problems"]
        assert len(parts) == len(self._clients), "a client process failed"
        starts, seconds, outcomes = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        self._report = Report(starts, seconds, outcomes, served, tuple(problems[:10]))
        return self._report

    @property
    def report(self) -> Report:
        """After `stop`."""
        assert self._report is not None
        return self._report


class _Client:
    def __init__(self, settings: dict) -> None:
        self._settings = settings
        self._marks: dict[str, int] = settings["marks"]
        make = SAMPLES[settings["plugin"]]
        self._samples = [make(settings["items"], settings["seed"] + i) for i in range(POOL)]
        self._stop = threading.Event()
        self._channels = [
            grpc.insecure_channel(settings["address"], [("grpc.use_local_subchannel_pool", 1)]) for _ in range(2)
        ]
        self._rows: list[list[tuple[float, float, int]]] = []
        self._served: Counter[str] = Counter()
        self._problems: list[str] = []
        self._lock = threading.Lock()

    def run(self) -> None:
        workers = [threading.Thread(target=self._work, args=(i,)) for i in range(self._settings["depth"])]
        for worker in workers:
            worker.start()
        print("loading", flush=True)
        sys.stdin.read()
        self._stop.set()
        for worker in workers:
            worker.join()
        rows = np.array([row for rows in self._rows for row in rows], np.float64).reshape(-1, 3)
        told = json.dumps({"served_by": self._served, "problems": self._problems[:10]})
        np.savez(self._settings["path"], starts=rows[:, 0], seconds=rows[:, 1], outcomes=rows[:, 2], told=told)

    def _work(self, worker: int) -> None:
        stub = rpc.VerifierStub(self._channels[worker % len(self._channels)])
        rows: list[tuple[float, float, int]] = []
        served: Counter[str] = Counter()
        number = worker
        while not self._stop.is_set():
            sample = self._samples[number % POOL]
            request = pb.VerifyRequest()
            request.CopyFrom(sample.request)
            request.request_id = number * self._settings["depth"] + worker
            begun = time.monotonic()
            try:
                answer = stub.Verify(request, timeout=self._settings["call_s"])
                seconds = time.monotonic() - begun
                outcome, problem = self._judge(sample, request, answer)
                served[answer.served_by] += 1
            except grpc.RpcError as error:
                seconds = time.monotonic() - begun
                late = error.code() is grpc.StatusCode.DEADLINE_EXCEEDED and self._settings["call_s"] < CALL_S
                outcome = TOO_LATE if late else REFUSED
                problem = f"{error.code().name}: {error.details()}"
            rows.append((begun, seconds, outcome))
            if problem:
                with self._lock:
                    self._problems.append(problem)
            number += 1
            if self._settings["pause_s"] and self._stop.wait(self._settings["pause_s"]):
                break
        with self._lock:
            self._rows.append(rows)
            self._served += served

    def _judge(self, sample: Sample, request: pb.VerifyRequest, answer: pb.VerifyResponse) -> tuple[int, str]:
        items = request.items
        where = f"request {request.request_id} by {answer.served_by} on {answer.device}"
        if answer.request_id != request.request_id or answer.items != items:
            return WRONG, f"{where}: the answer is another request's"
        decided, valid = _bits(answer.decided, items), _bits(answer.valid, items)
        if (valid != (sample.valid & decided)).any():
            return WRONG, f"{where}: {int((valid != (sample.valid & decided)).sum())} bits of valid are wrong"
        # One batch runs on one instance, the one that the answer names: versions differ in what they say of invalid.
        code = self._marks.get(answer.served_by.partition("@")[2].partition("#")[0])
        index = np.frombuffer(answer.problems.index, "<u4")
        codes = np.frombuffer(answer.problems.code, np.uint8)
        told = codes != pb.PROBLEM_CODE_UNDETERMINED
        expected = np.flatnonzero(decided & ~sample.valid) if code is not None else np.zeros(0, int)
        if self._marks and (not np.array_equal(index[told], expected) or (codes[told] != code).any()):
            return WRONG, f"{where}: the reasons are another version's"
        if not decided.all():
            return UNDECIDED, f"{where}: {int((~decided).sum())} of {items} items are not decided"
        return RIGHT, ""


def _bits(data: bytes, items: int) -> np.ndarray:
    return np.unpackbits(np.frombuffer(data, np.uint8), count=items, bitorder="little").astype(bool)


if __name__ == "__main__":
    _Client(json.loads(sys.argv[1])).run()
