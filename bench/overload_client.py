"""One client of bench/overload.py: a process that sends, judges every answer bit for bit, and keeps what came of it.

    python bench/overload_client.py SETTINGS

bench/overload.py starts it with its settings as JSON. When its channels are warm it prints "ready", waits for a line,
sends, and leaves a row a call: start, seconds, outcome, and of the seconds those in the core, in its queue and on the
device.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import numpy as np

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "integration")]

from _load import SAMPLES, Sample  # noqa: E402

from node_adapter.client import CHANNEL_OPTIONS, SharedMemory  # noqa: E402
from verifier.collector import keep_what_is_there  # noqa: E402
from verifier.model import bits_of  # noqa: E402
from verifier.v1 import verifier_pb2 as pb  # noqa: E402
from verifier.v1 import verifier_pb2_grpc as rpc  # noqa: E402

RIGHT, REFUSED, LOST, WRONG, DROPPED = range(5)
OUTCOMES = ("served", "refused", "lost", "wrong", "dropped")
# The text with which gRPC drops calls that the daemon has not taken, where many wait for it. A call that the daemon
# has taken and cancels has another text, and is lost.
DROPPED_TEXT = "CANCELLED"


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("settings", type=json.loads, help="a JSON object, as Clients in bench/overload.py gives it")
    return parser.parse_args()


class Client:
    """Sends for a while from a process of its own, waiting for each answer or at a fixed rate."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.samples = [SAMPLES[settings["plugin"]](settings["items"], settings["seed"] + i) for i in range(4)]
        self.requests = [sample.request for sample in self.samples]
        self.memory: SharedMemory | None = None
        if settings["memory"]:
            self.share(settings["memory"])
        options = [*CHANNEL_OPTIONS, ("grpc.use_local_subchannel_pool", 1)]
        channels = [grpc.insecure_channel(settings["address"], options) for _ in range(settings["connections"])]
        self.stubs = [rpc.VerifierStub(channel) for channel in channels]
        self.rows: list[tuple[float, float, int, float, float, float]] = []
        self.problems: list[str] = []

    def share(self, address: str) -> None:
        """Puts the columns into memory that is registered with the daemon."""
        fields = ("input", "signature", "key")
        columns = [getattr(request, name) for request in self.requests for name in fields if request.HasField(name)]
        self.memory = SharedMemory(address, sum(len(column.data) for column in columns))
        at = 0
        for column in columns:
            place = self.memory.array[at : at + len(column.data)]
            place[:] = np.frombuffer(column.data, np.uint8)
            at += place.size
            column.ClearField("data")
            column.shared_data.CopyFrom(self.memory.place_of(place))

    def run(self) -> None:
        """Warms the channel, says so, waits for the word, sends, and prints what came of it."""
        for number in range(len(self.stubs)):
            self.call(number)
        self.rows.clear()
        keep_what_is_there()  # a full collection here is no time of the daemon's
        print("ready", flush=True)
        sys.stdin.readline()
        rate = self.settings["rate"]
        if rate:
            self.send_at(rate)
        else:
            with ThreadPoolExecutor(self.settings["threads"]) as pool:
                self.send_and_wait(pool)
        rows = np.array(self.rows).reshape(-1, 6)
        np.save(self.settings["path"], rows)
        print(json.dumps(self.problems[:3]), flush=True)

    def send_at(self, rate: float) -> None:
        """Requests at fixed times, whatever comes of those before."""
        begun, total = time.monotonic(), int(rate * self.settings["seconds"])
        answered = threading.Semaphore(0)
        for number in range(total):
            delay = begun + number / rate - time.monotonic()
            if delay > 0:
                time.sleep(delay)
            sent = time.monotonic()
            going = self.stub(number).Verify.future(self.request(number), timeout=60.0)

            def done(call: Any, number: int = number, sent: float = sent) -> None:
                self.note(number, sent, call.result)
                answered.release()

            going.add_done_callback(done)
        for _ in range(total):
            answered.acquire()

    def send_and_wait(self, pool: ThreadPoolExecutor) -> None:
        """Each thread's next request when its last one is answered, after a pause if one is set."""
        until = time.monotonic() + self.settings["seconds"]

        def work(thread: int) -> None:
            number = thread
            while time.monotonic() < until:
                self.call(number)
                number += 1
                time.sleep(self.settings["pause_s"])

        list(pool.map(work, range(self.settings["threads"])))

    def stub(self, number: int) -> rpc.VerifierStub:
        """Calls take the connections in turn."""
        return self.stubs[number % len(self.stubs)]

    def request(self, number: int) -> pb.VerifyRequest:
        """The request of that number."""
        request = pb.VerifyRequest()
        request.CopyFrom(self.requests[number % len(self.requests)])
        request.request_id, request.priority = number, self.settings["priority"]
        return request

    def call(self, number: int) -> None:
        """One request, judged."""
        request = self.request(number)
        begun = time.monotonic()
        self.note(number, begun, lambda: self.stub(number).Verify(request, timeout=60.0))

    def note(self, number: int, begun: float, result: Callable[[], pb.VerifyResponse]) -> None:
        """Takes down what a call came to."""
        parts = (0.0, 0.0, 0.0)
        try:
            answer = result()
            outcome = judge(self.samples[number % len(self.samples)], answer)
            timings = answer.timings
            parts = timings.total_ns / 1e9, timings.queue_ns / 1e9, timings.device_ns / 1e9
        except grpc.RpcError as error:
            outcome = failure(error)
            if outcome is LOST:
                self.problems.append(f"{error.code().name}: {error.details()}")
        self.rows.append((begun, time.monotonic() - begun, outcome, *parts))


def failure(error: grpc.RpcError) -> int:
    """What a call without an answer came to."""
    if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED:
        return REFUSED
    dropped = error.code() is grpc.StatusCode.CANCELLED and error.details() == DROPPED_TEXT
    return DROPPED if dropped else LOST


def judge(sample: Sample, answer: pb.VerifyResponse) -> int:
    """What an answer came to."""
    items = sample.valid.size
    valid, decided = (bits_of(np.frombuffer(data, np.uint8), items) for data in (answer.valid, answer.decided))
    if (valid != (sample.valid & decided)).any():
        return WRONG
    return RIGHT if decided.all() else LOST


if __name__ == "__main__":
    Client(arguments().settings).run()
