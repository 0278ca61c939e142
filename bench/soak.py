"""Mixed traffic for half an hour, with swaps, faults and overload all the while: 0 wrong, 0 lost, memory flat.

    python bench/soak.py --seconds 1800
    python bench/soak.py --seconds 60 --processes 2

Clients verify in a closed loop, one of them over a stream; bursts offer far more than the daemon can take; clients
are killed in the middle of their calls; hundreds of connections idle. Meanwhile the plugin is swapped, plugins that
crash, answer wrongly or ask for too much memory are loaded, and workers and front ends are killed. Every answer is
compared bit for bit. A call may be refused (RESOURCE_EXHAUSTED), left undecided, or lose its connection where
something was killed, and nothing else. Exit status 1 where something is wrong, lost or leaks.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "integration"), str(ROOT / "bench")]

from _admin import MARKED, AdminDaemon, Swapper, copy_plugin, marked_parity  # noqa: E402
from _front_ends import front_ends  # noqa: E402
from _load import SAMPLES  # noqa: E402
from overload import Watch  # noqa: E402
from overload_client import LOST, REFUSED, RIGHT, WRONG, judge  # noqa: E402

from verifier.bench.records import Record, append_records, load_average  # noqa: E402
from verifier.drivers import DeviceInfo, list_devices  # noqa: E402
from verifier.v1 import verifier_pb2 as pb  # noqa: E402
from verifier.v1 import verifier_pb2_grpc as rpc  # noqa: E402

MIB = 1 << 20
FAULTS = ("faulty-crash", "faulty-answer", "faulty-memory")
SETTLED = 0.3  # of the run: caches and arenas have grown by then


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seconds", type=float, default=1800.0)
    parser.add_argument("--clients", type=int, default=2)
    parser.add_argument("--connections", type=int, default=200, help="that idle")
    parser.add_argument("--items", type=int, default=300)
    parser.add_argument("--processes", type=int, default=2, help="front-end processes of the daemon")
    parser.add_argument("--seed", type=int, default=20261130)
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results" / "soak.jsonl")
    parser.add_argument("--client", help=argparse.SUPPRESS)
    return parser.parse_args()


class Client:
    """Verifies until its input ends, and prints how many calls came to what."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.samples = [SAMPLES["parity"](settings["items"], settings["seed"] + i) for i in range(8)]
        options = [("grpc.use_local_subchannel_pool", 1)]
        self.channel = grpc.insecure_channel(settings["address"], options)
        self.stub = rpc.VerifierStub(self.channel)
        self.counts: Counter[str] = Counter()
        self.lock = threading.Lock()
        self.ended = threading.Event()

    def run(self) -> None:
        """All its threads, until the input ends."""
        work = self.stream if self.settings["stream"] else self.calls
        threads = [threading.Thread(target=work, args=(i,), daemon=True) for i in range(self.settings["threads"])]
        for thread in threads:
            thread.start()
        print("ready", flush=True)
        sys.stdin.read()
        self.ended.set()
        for thread in threads:
            thread.join(90)
        self.counts["stuck"] += sum(thread.is_alive() for thread in threads)
        print(json.dumps(self.counts), flush=True)

    def request(self, number: int) -> tuple[pb.VerifyRequest, Any]:
        """A request and what its answer must be."""
        sample = self.samples[number % len(self.samples)]
        request = pb.VerifyRequest()
        request.CopyFrom(sample.request)
        request.request_id = number
        request.priority = 1 + number % 4
        return request, sample

    def note(self, outcome: int | str) -> None:
        """Counts."""
        names = {RIGHT: "right", REFUSED: "RESOURCE_EXHAUSTED", LOST: "undecided", WRONG: "wrong"}
        with self.lock:
            self.counts[names[outcome] if isinstance(outcome, int) else outcome] += 1

    def calls(self, thread: int) -> None:
        """One call after the other."""
        number = thread
        while not self.ended.is_set():
            request, sample = self.request(number)
            try:
                self.note(judge(sample, self.stub.Verify(request, timeout=60.0)))
            except grpc.RpcError as error:
                self.note(error.code().name)
                self.ended.wait(0.05)
            number += self.settings["threads"]
            self.ended.wait(self.settings["pause_s"])

    def stream(self, _: int) -> None:
        """Streams of a hundred requests each, some in flight."""
        number = 0
        while not self.ended.is_set():
            begin, room, waiting = number, threading.Semaphore(8), {}

            def requests(
                begin: int = begin, room: threading.Semaphore = room, waiting: dict = waiting
            ) -> Iterator[Any]:
                for at in range(begin, begin + 100):
                    room.acquire()
                    if self.ended.is_set():
                        return
                    request, waiting[at] = self.request(at)
                    yield request

            try:
                for answer in self.stub.VerifyStream(requests(), timeout=120.0):
                    sample = waiting.pop(answer.request_id)
                    room.release()
                    if answer.HasField("failure"):
                        code = answer.failure.code
                        self.note("RESOURCE_EXHAUSTED" if code == 8 else f"failure {code} in a stream")
                    else:
                        self.note(judge(sample, answer))
                if waiting:
                    self.note("stream ended early")
            except grpc.RpcError as error:
                self.note(error.code().name)
            finally:
                room.release(1000)
            number += 100


class ClientProcess:
    """One of them, with its input to end it."""

    def __init__(self, options: argparse.Namespace, address: str, **settings: Any) -> None:
        given = {
            "address": address,
            "items": options.items,
            "stream": False,
            "threads": 2,
            "pause_s": 0.02,
            "seed": 1,
        }
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--client", json.dumps(given | settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        )
        assert self.process.stdout.readline() == "ready\n", "a client did not start"

    def stop(self) -> Counter[str]:
        """What its calls came to."""
        told, _ = self.process.communicate()
        return Counter(json.loads(told))

    def kill(self) -> None:
        """As an operator's OOM killer does."""
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


class Trouble:
    """What is done to the daemon, in an order that the seed decides."""

    def __init__(self, options: argparse.Namespace, daemon: AdminDaemon, folder: Path, swapper: Swapper) -> None:
        self.options, self.daemon, self.folder, self.swapper = options, daemon, folder, swapper
        self.random = random.Random(options.seed)
        self.counts: Counter[str] = Counter()
        self.unexpected: list[str] = []

    def steps(self) -> dict[Callable[[], None], int]:
        """Each with its weight."""
        return {
            self.swap: 8,
            self.burst: 3,
            self.lose_a_client: 3,
            self.load_a_faulty_plugin: 2,
            self.kill_a_worker: 1,
            self.kill_a_front_end: 1,
        }

    def step(self) -> None:
        """One of them."""
        steps = self.steps()
        (step,) = self.random.choices(list(steps), list(steps.values()))
        self.counts[step.__name__] += 1
        step()

    def swap(self) -> None:
        """The plugin's next version, and roll-backs, activations and reloads in turn."""
        try:
            self.swapper.swap()
        except grpc.RpcError as error:
            # A worker that was killed takes the load along.
            if error.code() not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.FAILED_PRECONDITION):
                self.unexpected.append(f"swap: {error.code().name}: {error.details()}")

    def burst(self) -> None:
        """Many more callers than the queue has room for."""
        client = ClientProcess(
            self.options,
            self.daemon.address,
            threads=64,
            pause_s=0.0,
            items=4000,
            seed=self.random.randrange(1 << 30),
        )
        time.sleep(2.0)
        self.counts.update({f"burst: {name}": count for name, count in client.stop().items()})

    def lose_a_client(self) -> None:
        """A client that is killed with calls and streams in flight."""
        stream = self.random.random() < 0.5
        client = ClientProcess(self.options, self.daemon.address, stream=stream, threads=8, pause_s=0.0, items=2000)
        time.sleep(self.random.random())
        client.kill()

    def load_a_faulty_plugin(self) -> None:
        """It must be refused, and serve nobody."""
        name = self.random.choice(FAULTS)
        folder = self.folder / f"{name}-{self.counts['load_a_faulty_plugin']}"
        copy_plugin(folder, of=name, manifest=lambda text: text.replace("ALWAYS = 0", "ALWAYS = 1"))
        try:
            self.daemon.load(folder)
            self.unexpected.append(f"{name} was loaded")
        except grpc.RpcError:
            pass

    def kill_a_worker(self) -> None:
        """It is replaced, and what it had is run again."""
        for pid in self.daemon.workers()[:1]:
            os.kill(pid, signal.SIGKILL)

    def kill_a_front_end(self) -> None:
        """Its connections are lost, and nothing else."""
        for pid in front_ends(self.daemon)[:1]:
            os.kill(pid, signal.SIGKILL)


def main() -> None:
    """Runs, prints, records."""
    options = arguments()
    if options.client:
        Client(json.loads(options.client)).run()
        return
    (device,) = (device for device in list_devices() if device.id == options.device)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        plain, other = copy_plugin(folder / "plain"), marked_parity(folder / "other")
        settings = ["server.max_items=20000", "scheduling.queue_items=60000", f"server.processes={options.processes}"]
        daemon = AdminDaemon(folder, [str(plain)], *settings, devices=(options.device,))
        idle = [
            grpc.insecure_channel(daemon.address, [("grpc.use_local_subchannel_pool", 1), ("n", i)])
            for i in range(options.connections)
        ]
        try:
            for channel in idle:
                grpc.channel_ready_future(channel).result(60)
            watch = Watch(daemon.process.pid, 1.0)
            trouble = Trouble(options, daemon, folder, Swapper(daemon, "parity", plain, other, MARKED))
            clients = [ClientProcess(options, daemon.address, seed=i, stream=i == 0) for i in range(options.clients)]
            watch.start()
            until = time.monotonic() + options.seconds
            while time.monotonic() < until:
                trouble.step()
                time.sleep(1.0)
            time.sleep(3.0)
            counts = sum((client.stop() for client in clients), Counter())
            watch.ended.set()
            watch.join()
        finally:
            for channel in idle:
                channel.close()
            status = daemon.stop()
    sys.exit(conclude(options, device, counts, trouble, watch, status))


def rise(values: list[int]) -> float:
    """How much the end is above the time after the first part; medians of a tenth of the run each."""
    settled = values[int(len(values) * SETTLED) :]
    part = max(len(settled) // 10, 3)
    return float(np.median(settled[-part:]) - np.median(settled[:part]))


def conclude(
    options: argparse.Namespace, device: DeviceInfo, counts: Counter[str], trouble: Trouble, watch: Watch, status: int
) -> int:
    """Prints and records; 1 where something is not as it must be."""
    allowed = {"right", "undecided", "RESOURCE_EXHAUSTED", "UNAVAILABLE", "stream ended early"}
    bursts = Counter({n.removeprefix("burst: "): c for n, c in trouble.counts.items() if n.startswith("burst: ")})
    every = counts + bursts
    bad = {name: count for name, count in every.items() if name not in allowed and count}
    found: dict[str, str | int | float] = {
        "memory_rise_bytes": rise(watch.memory),
        "memory_bytes": int(np.median(watch.memory)),
        "files_rise": rise(watch.files),
        "exit_status": status,
        **{f"calls_{name}": count for name, count in sorted(every.items())},
        **{f"did_{name}": count for name, count in sorted(trouble.counts.items()) if not name.startswith("burst: ")},
    }
    for name, value in found.items():
        print(f"{name:32} {value:,.0f}")
    failures = [f"{count} calls came to {name}" for name, count in bad.items()] + trouble.unexpected
    # A worker that was just replaced holds its modules' memory anew: what may differ between two moments.
    failures += ["memory rose"] if found["memory_rise_bytes"] > max(64 * MIB, 0.2 * found["memory_bytes"]) else []
    failures += ["open files rose"] if found["files_rise"] > 16 else []
    failures += [f"the daemon ended with {status}"] if status else []
    failures += [] if every["right"] else ["nothing was verified"]
    for failure in failures:
        print(f"FAILED: {failure}")
    record = Record.of_rates(
        "soak" if device.kind == "cuda" else "soak-cpu",
        device,
        options.items,
        [every["right"] / options.seconds],
        unit="operations/s",
        includes=("gRPC", "transfer", "parsing"),
        settings={**found, "seconds": options.seconds, "failures": "; ".join(failures), **load_average()},
    )
    append_records(options.out, [record])
    return 1 if failures else 0


if __name__ == "__main__":
    main()
