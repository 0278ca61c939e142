"""What the front door carries: gRPC and shared memory, with a worker that does nothing and with SM2.

    python bench/front_end.py --device cpu --processes 1 2 --seconds 5 --out bench/results/front_end.jsonl

Cases: transport-null (gRPC streams, the null plugin), grpc-e2e-sm2, shm-null and shm-e2e-sm2 (columns in the clients'
shared memory), request-8192-added-latency (seconds of one request beyond its time on the device, at half load; -shm:
with its columns in shared memory), and request-8192-transport-latency (the same bytes to a gRPC server in Python that
looks at nothing; -shm: as many as name them). Added latencies less those stand in `settings.beyond_transport_s`.
Clients are processes of their own, one for each front end unless --clients says otherwise, each with a channel of its
own and --depth requests of --items in flight. Requests are written once, before any clock starts: client_call.py says
what writing one costs a caller. CPU seconds a GB of each role stand in `settings`: on a machine that others use, too,
they say what one core could carry. Every answer is looked at: all items decided, and right.
"""

from __future__ import annotations

import argparse
import json
import queue
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
import numpy as np

from node_adapter.client import CHANNEL_OPTIONS, SharedMemory
from verifier.api import channel_options, tune_malloc
from verifier.bench.processes import children, cpu_s
from verifier.bench.records import Record, append_records, load_average
from verifier.bench.serving import serving
from verifier.bench.signatures import make_signatures
from verifier.drivers import DeviceInfo, list_devices
from verifier.v1 import verifier_pb2 as pb

VERIFIER = f"/{pb.DESCRIPTOR.services_by_name['Verifier'].full_name}"
ROOT = Path(__file__).parents[1]
NULL = ROOT / "bench" / "null_plugin"
BYTES = 32 + 64 + 64  # of an item's columns
REQUEST_BYTES = {"grpc": 8192 * BYTES, "shm": 128}
WAIT_S = 120


def main() -> None:
    """Measures, or is one of the clients."""
    options = arguments()
    tune_malloc()  # as nodes with large batches should
    if options.client:
        client(options)
        return
    if options.echo:
        echo()
        return
    device = next(device for device in list_devices() if device.id == options.device)
    floors = {way: transport_latency(device, way) for way in REQUEST_BYTES}
    for floor in floors.values():
        keep(options, floor)
    for processes in options.processes:
        for plugin in options.plugins:
            with running(options.device, plugin, processes) as daemon:
                for way in ("grpc", "shm"):
                    before = daemon.cpu_s()
                    rates, counts = zip(
                        *(load(daemon, options, way, processes) for _ in range(options.runs)), strict=True
                    )
                    used = {role: seconds - before[role] for role, seconds in daemon.cpu_s().items()}
                    case = "transport-null" if (way, plugin) == ("grpc", "null") else f"{way}-null"
                    case = case if plugin == "null" else f"{way}-e2e-sm2"
                    made = rate_record(options, device, case, rates, processes)
                    gigabytes = sum(counts) * BYTES / 1e9
                    costs = {f"{role}_cpu_s_per_gb": round(seconds / gigabytes, 4) for role, seconds in used.items()}
                    made.settings.update(costs)
                    print(f"{'':28} CPU s/GB: {costs}", flush=True)
                    keep(options, made)
                    print(
                        f"{case:28} {processes} processes {np.median(rates) / 1e6:8.3f} M items/s "
                        f"{np.median(rates) * BYTES / 1e9:6.2f} GB/s",
                        flush=True,
                    )
                for way in ("grpc", "shm"):
                    keep(options, latency(daemon, options, device, processes, plugin, way, floors[way].rate))


def keep(options: argparse.Namespace, made: Record) -> None:
    """Adds a line to the results."""
    if options.out:
        append_records(options.out, [made])


def arguments() -> argparse.Namespace:
    """What is measured, and how long."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--plugins", nargs="+", default=["null", "sm2"], choices=["null", "sm2"])
    parser.add_argument("--clients", type=int, default=0, help="processes; 0: one for each front end")
    parser.add_argument("--items", type=int, default=8192)
    parser.add_argument("--depth", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--client", help=argparse.SUPPRESS)
    parser.add_argument("--echo", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


@dataclass(frozen=True)
class Daemon:
    """`verifier serve` in a process of its own."""

    address: str
    memory: str
    pid: int

    def cpu_s(self) -> dict[str, float]:
        """CPU seconds that its processes have used, by what they are."""
        used = {"core": cpu_s(self.pid), "front_ends": 0.0, "workers": 0.0}
        front_ends = children(self.pid, "verifier.frontend")
        for child in children(self.pid):
            used["front_ends" if child in front_ends else "workers"] += cpu_s(child)
        return used


@contextmanager
def running(device: str, plugin: str, processes: int) -> Iterator[Daemon]:
    """A daemon with shared memory for its clients."""
    with tempfile.TemporaryDirectory(prefix="verifier-bench-") as folder:
        memory = f"unix:{folder}/memory.sock"
        settings = (
            f"server.processes={processes}",
            "plugins.trust=any",
            "shared_memory.enabled=true",
            f"shared_memory.listen={memory}",
            "scheduling.caller_share=1.0",
        )
        with serving(device, [str(NULL) if plugin == "null" else plugin], settings) as (address, pid):
            yield Daemon(address, memory, pid)


def load(daemon: Daemon, options: argparse.Namespace, way: str, processes: int) -> tuple[float, int]:
    """Items a second of all clients together, over the time in which all of them were at work; and all items."""
    count = options.clients or processes
    asked = {"address": daemon.address, "memory": daemon.memory, "way": way, "seconds": options.seconds}
    command = [sys.executable, __file__, "--items", str(options.items), "--depth", str(options.depth)]
    command += ["--client", json.dumps(asked)]
    clients = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        for _ in range(count)
    ]
    for each in clients:
        assert each.stdout is not None
        if each.stdout.readline() != "ready\n":
            raise SystemExit("a client did not start")
    for each in clients:
        assert each.stdin is not None
        each.stdin.write("go\n")
        each.stdin.flush()
    told = [json.loads(each.communicate()[0]) for each in clients]
    return sum(each["items"] for each in told) / options.seconds, sum(each["all"] for each in told)


def client(options: argparse.Namespace) -> None:
    """One client process: a stream with so many requests in flight, for so many seconds."""
    asked = json.loads(options.client)
    requests, expected, _memory = make_requests(options.items, asked["memory"] if asked["way"] == "shm" else "")
    channel = grpc.insecure_channel(asked["address"], CHANNEL_OPTIONS)
    waiting: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    stream = channel.stream_stream(f"{VERIFIER}/VerifyStream", response_deserializer=pb.VerifyResponse.FromString)
    answers = stream(iter(waiting.get, None), timeout=WAIT_S + asked["seconds"])
    waiting.put(requests[0])
    check(next(answers), options.items, expected)
    print("ready", flush=True)
    sys.stdin.readline()
    end = time.monotonic() + asked["seconds"]
    for i in range(options.depth):
        waiting.put(requests[i % len(requests)])
    done = everything = 0
    open_requests = options.depth
    for answer in answers:
        now = time.monotonic()
        check(answer, options.items, expected)
        everything += options.items
        done += options.items if now < end else 0
        open_requests -= 1
        if now < end:
            waiting.put(requests[done // options.items % len(requests)])
            open_requests += 1
        if not open_requests:
            break
    waiting.put(None)
    print(json.dumps({"items": done, "all": everything}))


def make_requests(items: int, memory: str) -> tuple[list[bytes], np.ndarray, SharedMemory | None]:
    """Requests, written, with the same items in memory of their own, and which items are valid."""
    made = make_signatures("SM2", min(items, 1024), seed=7, keys=64, fault_share=0.0)
    repeat = -(-items // made.items)
    columns = [np.tile(part, (repeat, 1))[:items].ravel() for part in (made.digests, made.signatures, made.keys)]
    scheme = pb.Scheme(
        algorithm=pb.ALGORITHM_SM2,
        input_kind=pb.INPUT_KIND_DIGEST,
        signature_encoding=pb.SIGNATURE_ENCODING_RAW_RS,
        key_encoding=pb.KEY_ENCODING_RAW_XY,
    )
    copies = 4
    shared = SharedMemory(memory, copies * items * BYTES) if memory else None
    requests = []
    for copy in range(copies):
        request = pb.VerifyRequest(request_id=copy, items=items, scheme=scheme)
        at = copy * items * BYTES
        for field, data in zip((request.input, request.signature, request.key), columns, strict=True):
            if shared is None:
                field.data = data.tobytes()
                continue
            place = shared.array[at : at + data.size]
            place[:] = data
            at += data.size
            field.shared_data.CopyFrom(shared.place_of(place))
        requests.append(request.SerializeToString())
    return requests, np.packbits(np.tile(made.valid, repeat)[:items], bitorder="little"), shared


def check(answer: pb.VerifyResponse, items: int, expected: np.ndarray) -> None:
    """Ends the measurement where an answer is not right."""
    if answer.failure.message:
        raise SystemExit(f"refused: {answer.failure.message}")
    if answer.items != items or answer.valid != expected.tobytes():
        raise SystemExit(f"wrong verdicts: {answer.items} items, {answer.served_by}")


def latency(
    daemon: Daemon,
    options: argparse.Namespace,
    device: DeviceInfo,
    processes: int,
    plugin: str,
    way: str,
    transport_s: float,
) -> Record:
    """Seconds that a request of 8,192 items takes beyond its copies and kernels, requests coming at half the rate
    at which one after the other can be served."""
    requests, expected, _memory = make_requests(8192, daemon.memory if way == "shm" else "")
    channel = grpc.insecure_channel(daemon.address, CHANNEL_OPTIONS)
    verify = channel.unary_unary(f"{VERIFIER}/Verify", response_deserializer=pb.VerifyResponse.FromString)
    for _ in range(3):
        begun = time.monotonic()
        check(verify(requests[0], timeout=WAIT_S), 8192, expected)
        took = time.monotonic() - begun
    added = []
    for i in range(min(max(int(options.seconds * options.runs / (2 * took)), 10), 2000)):
        begun = time.monotonic()
        answer = verify(requests[i % len(requests)], timeout=WAIT_S)
        seconds = time.monotonic() - begun
        check(answer, 8192, expected)
        added.append(seconds - answer.timings.device_ns / 1e9)
        time.sleep(took)
    case = "request-8192-added-latency" + ("-shm" if way == "shm" else "") + ("-null" if plugin == "null" else "")
    made = latency_record(device, case, added, processes)
    made.settings["beyond_transport_s"] = made.rate - transport_s
    return made


def echo() -> None:
    """A gRPC server with the daemon's settings that answers every request with the bitmaps of 8,192 items."""
    handler = grpc.unary_unary_rpc_method_handler(lambda _request, _context: bytes(2 * 8192 // 8))
    server = grpc.server(ThreadPoolExecutor(4), options=channel_options(1 << 30, 60.0))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("Echo", {"Ask": handler}),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(port, flush=True)
    sys.stdin.readline()


def transport_latency(device: DeviceInfo, way: str) -> Record:
    """Seconds of a unary call to a server in a process of its own, with as many bytes as a request of 8,192 items has
    that way."""
    command = [sys.executable, __file__, "--echo"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        channel = grpc.insecure_channel(f"127.0.0.1:{process.stdout.readline().strip()}", CHANNEL_OPTIONS)
        ask = channel.unary_unary("/Echo/Ask")
        request, seconds = bytes(REQUEST_BYTES[way]), []
        for _ in range(300):
            begun = time.monotonic()
            ask(request, timeout=WAIT_S, wait_for_ready=True)
            seconds.append(time.monotonic() - begun)
            time.sleep(seconds[-1])
        process.kill()
    case = "request-8192-transport-latency" + ("-shm" if way == "shm" else "")
    return latency_record(device, case, seconds[3:], 1)


def latency_record(device: DeviceInfo, case: str, seconds: Sequence[float], processes: int) -> Record:
    """A line of the results: the seconds of requests that came one at a time."""
    made = Record.of_times(
        case,
        device,
        8192,
        seconds,
        8192,
        unit="s",
        includes=("parsing", "queue", "gRPC"),
        settings={"processes": processes, **load_average()},
    )
    p99 = made.settings["p99"]
    print(f"{case:36} {processes} processes p50 {made.rate * 1e3:.2f} ms p99 {float(p99) * 1e3:.2f} ms", flush=True)
    return made


def rate_record(
    options: argparse.Namespace, device: DeviceInfo, case: str, rates: Sequence[float], processes: int
) -> Record:
    """A line of the results: items a second."""
    median = float(np.median(rates))
    if not median:
        raise SystemExit(f"{case}: no request was answered within --seconds {options.seconds:g}")
    return Record.of_rates(
        case,
        device,
        options.items,
        rates,
        includes=("transfer", "parsing", "shared memory" if case.startswith("shm") else "gRPC"),
        settings={
            "processes": processes,
            "clients": options.clients or processes,
            "depth": options.depth,
            "bytes_per_s": median * BYTES,
            **load_average(),
        },
    )


if __name__ == "__main__":
    main()
