"""Four times the peak for a minute: what is served, how fast the rest is refused, and what consensus notices.

    python bench/overload.py --device cpu
    python bench/overload.py --device cuda:0 --items 65536 --processes 6 --shared-memory --set server.processes=5
    python bench/overload.py --device cpu --urgent-listener

First the peak: callers that wait for each answer before the next request. Then callers that send at --times that rate
without waiting, while another sends small consensus requests, alone before and among them then. With --shared-memory
their columns lie in memory that the daemon reads in place: four times a GPU's peak passes no socket. Every answer is
compared bit for bit. Results go to bench/results/ as JSON lines; exit status 1 where anything accepted was lost.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "bench"), str(ROOT / "tests" / "integration")]

import overload_client  # noqa: E402
from _daemon_process import DaemonProcess  # noqa: E402
from _load import SAMPLES  # noqa: E402
from overload_client import LOST, OUTCOMES, REFUSED, RIGHT, WRONG  # noqa: E402

from verifier.bench.processes import children, open_files, private_bytes  # noqa: E402
from verifier.bench.records import Record, append_records, load_average  # noqa: E402
from verifier.drivers import DeviceInfo, list_devices  # noqa: E402
from verifier.v1 import verifier_pb2 as pb  # noqa: E402


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--plugin", default="sm2", choices=sorted(SAMPLES))
    parser.add_argument("--items", type=int, default=500, help="items of a request")
    parser.add_argument("--consensus-items", type=int, default=500)
    parser.add_argument("--times", type=float, default=4.0, help="the offered load, in peaks")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--processes", type=int, default=2, help="clients that send without waiting")
    parser.add_argument(
        "--connections", type=int, default=8, help="of each client: the kernel deals them out to front ends blindly"
    )
    parser.add_argument("--queue-s", type=float, default=2.0, help="scheduling.queue_s of the daemon")
    parser.add_argument("--shared-memory", action="store_true", help="columns lie in the clients' memory")
    parser.add_argument("--urgent-listener", action="store_true", help="consensus has a front end of its own")
    parser.add_argument("--set", action="append", default=[], help="another setting of the daemon")
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results" / "overload.jsonl")
    return parser.parse_args()


@dataclass(frozen=True)
class Calls:
    """Calls of one client or more: their starts, seconds and outcomes."""

    starts: np.ndarray
    seconds: np.ndarray
    outcomes: np.ndarray
    in_core: np.ndarray  # of the seconds those from being accepted to being answered
    queued: np.ndarray  # of these what they waited for a device
    on_device: np.ndarray

    def quantile(self, q: float, outcome: int, what: str = "seconds") -> float:
        """Seconds of the calls that came to `outcome`; 0 where none did."""
        chosen = getattr(self, what)[self.outcomes == outcome]
        return float(np.quantile(chosen, q)) if chosen.size else 0.0

    def count(self, outcome: int) -> int:
        """How many came to it."""
        return int((self.outcomes == outcome).sum())


class Clients:
    """Client processes that begin at once."""

    def __init__(self, options: argparse.Namespace, folder: Path, address: str, groups: list[dict[str, Any]]) -> None:
        self.processes = []
        for number, group in enumerate(groups):
            settings = {
                "address": address,
                "memory": memory_of(folder) if options.shared_memory else "",
                "plugin": options.plugin,
                "items": options.items,
                "seed": 1000 * number,
                "priority": int(pb.PRIORITY_POOL),
                "rate": 0.0,
                "pause_s": 0.0,
                "threads": 4,
                "connections": options.connections,
                "path": str(folder / f"calls-{time.monotonic_ns()}.npy"),
                **group,
            }
            process = subprocess.Popen(
                [sys.executable, overload_client.__file__, json.dumps(settings)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
            )
            self.processes.append((process, settings))
        for process, _ in self.processes:
            assert process.stdout.readline() == "ready\n", "a client did not start"

    def run(self) -> list[Calls]:
        """What each client's calls came to."""
        for process, _ in self.processes:
            process.stdin.write("go\n")
            process.stdin.flush()
        found = []
        for process, settings in self.processes:
            told, _ = process.communicate()
            for problem in json.loads(told):
                print(f"  {problem}")
            rows = np.load(settings["path"])
            found.append(Calls(rows[:, 0], rows[:, 1], rows[:, 2].astype(int), *rows.T[3:]))
        return found


def memory_of(folder: Path) -> str:
    """Where the daemon takes clients' memory."""
    return f"unix:{folder / 'memory.sock'}"


def together(calls: list[Calls]) -> Calls:
    """The calls of several clients."""
    return Calls(*(np.concatenate([getattr(c, each.name) for c in calls]) for each in fields(Calls)))


class Watch(threading.Thread):
    """Private memory of a process and its children, and its own open files, from time to time."""

    def __init__(self, pid: int, every_s: float) -> None:
        super().__init__(daemon=True)
        self.pid, self.every_s = pid, every_s
        self.memory: list[int] = []
        self.files: list[int] = []
        self.ended = threading.Event()

    def run(self) -> None:
        """Until `ended`."""
        while not self.ended.wait(self.every_s):
            memory = 0
            for pid in (self.pid, *children(self.pid)):
                with contextlib.suppress(OSError):  # it has ended meanwhile
                    memory += private_bytes(pid)
            self.memory.append(memory)
            self.files.append(open_files(self.pid))


def main() -> None:
    """Measures, prints, records."""
    options = arguments()
    (device,) = (device for device in list_devices() if device.id == options.device)
    plugin = ROOT / ("plugins" if options.plugin == "sm2" else "tests/fixtures/plugins") / options.plugin
    consensus: dict[str, Any] = {
        "items": options.consensus_items,
        "priority": int(pb.PRIORITY_CONSENSUS),
        "threads": 1,
        "connections": 1,
        "pause_s": 0.1,
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        settings = [f"scheduling.queue_s={options.queue_s}", "scheduling.caller_share=1.0"]
        if options.shared_memory:
            settings += ["shared_memory.enabled=true", f"shared_memory.listen={memory_of(folder)}"]
        if options.urgent_listener:
            consensus["address"] = f"unix:{folder}/urgent.sock"
            settings.append(f'server.urgent_listen=["{consensus["address"]}"]')
        settings += options.set
        daemon = DaemonProcess(folder, [str(plugin)], *settings, devices=(options.device,), cache=None)
        try:
            short = min(15.0, options.seconds)
            waiting = [{"seconds": short, "threads": 8}] * options.processes
            # The first peak is the warm-up; the model of the device's rate settles in it.
            Clients(options, folder, daemon.address, waiting).run()
            peak = rate_of(together(Clients(options, folder, daemon.address, waiting).run()), options.items)
            alone = Clients(options, folder, daemon.address, [{**consensus, "seconds": short}]).run()[0]
            sending = {
                "seconds": options.seconds,
                "rate": options.times * peak / options.items / options.processes,
            }
            groups = [{**consensus, "seconds": options.seconds}, *[sending] * options.processes]
            clients = Clients(options, folder, daemon.address, groups)
            watch = Watch(daemon.process.pid, 0.2)
            watch.start()
            urgent, *rest = clients.run()
            watch.ended.set()
            watch.join()
        finally:
            daemon.stop()
    sys.exit(conclude(options, device, peak, alone, urgent, together(rest), watch.memory))


def rate_of(calls: Calls, items: int) -> float:
    """Items a second of the calls that were served."""
    return calls.count(RIGHT) * items / float(np.ptp(calls.starts + calls.seconds))


def conclude(
    options: argparse.Namespace,
    device: DeviceInfo,
    peak: float,
    alone: Calls,
    urgent: Calls,
    rest: Calls,
    memory: list[int],
) -> int:
    """Prints and records; 1 where something was lost or wrong."""
    span = float(np.ptp(rest.starts))
    offered = len(rest.starts) * options.items / span
    served = rate_of(rest, options.items) + urgent.count(RIGHT) * options.consensus_items / span
    steady = memory[len(memory) // 4 :]
    flat = (max(steady) - min(steady)) / np.median(steady)
    found = {
        "offered_times_peak": offered / peak,
        "served_of_peak": served / peak,
        "refused_p50_s": rest.quantile(0.5, REFUSED),
        "refused_p99_s": rest.quantile(0.99, REFUSED),
        "refused_most_s": rest.quantile(1.0, REFUSED),
        "served_p99_s": rest.quantile(0.99, RIGHT),
        "consensus_p99_alone_s": alone.quantile(0.99, RIGHT),
        "consensus_p99_s": urgent.quantile(0.99, RIGHT),
        "consensus_times": urgent.quantile(0.99, RIGHT) / alone.quantile(0.99, RIGHT),
        **{
            f"consensus_{part}_p{q}{when}_s": calls.quantile(q / 100, RIGHT, part)
            for when, calls in (("_alone", alone), ("", urgent))
            for part in ("seconds", "in_core", "queued", "on_device")
            for q in (50, 90, 99)
        },
        "memory_spread": float(flat),
        "memory_bytes": int(np.median(steady)),
        **{f"{name}_calls": rest.count(outcome) for outcome, name in enumerate(OUTCOMES)},
        **{f"consensus_{name}_calls": urgent.count(outcome) for outcome, name in enumerate(OUTCOMES)},
    }
    print(f"peak {peak:,.0f} items/s, load average {os.getloadavg()[0]:.1f}")
    for name, value in found.items():
        print(f"{name:24} {value:.4g}" if isinstance(value, float) else f"{name:24} {value}")
    record = Record.of_rates(
        "overload" if device.kind == "cuda" else "overload-cpu",
        device,
        options.items,
        [served],
        includes=("shared memory" if options.shared_memory else "gRPC", "transfer", "parsing"),
        limit=("the peak of callers that wait", peak),
        settings={**found, "urgent_listener": int(options.urgent_listener), **load_average()},
    )
    append_records(options.out, [record])
    return 1 if sum(calls.count(outcome) for calls in (rest, urgent) for outcome in (LOST, WRONG)) else 0


if __name__ == "__main__":
    main()
