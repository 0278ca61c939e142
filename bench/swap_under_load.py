"""Latency of a daemon while plugins are swapped and workers killed, beside that of the same run's quiet times.

    python bench/swap_under_load.py --device cpu --plugin parity --swaps 200

Client processes keep calls in flight all the while and compare every bit of every answer. The run goes in rounds of
some swaps and a pause of the same length, so that whatever else the machine does falls on both alike; then loads of
slow plugins, then `kill -9` of the worker. Results go to bench/results/ as JSON lines; nothing is asserted of times.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "integration"), str(ROOT / "tests" / "common")]

from _admin import MARKED, MARKS, AdminDaemon, Swapper, copy_plugin, marked_parity  # noqa: E402
from _load import UNDECIDED, WRONG, Load  # noqa: E402
from _memory import Memory, rise  # noqa: E402
from _waiting import until  # noqa: E402

from verifier.bench.records import Record, append_records, load_average  # noqa: E402
from verifier.drivers import DeviceInfo, list_devices  # noqa: E402

Span = tuple[float, float]


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--plugin", default="parity", choices=["parity", "sm2"])
    parser.add_argument("--swaps", type=int, default=200)
    parser.add_argument("--round", type=int, default=10, help="swaps between two pauses")
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--depth", type=int, default=4, help="calls in flight of each process")
    parser.add_argument("--items", type=int, default=500, help="items of a call")
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--compile-size", type=int, default=200, help="how slow the slow plugin is to compile")
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results" / "swap_under_load.jsonl")
    return parser.parse_args()


class Run:
    """One daemon under load, and what is done to it."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.options = options
        self.folder = folder
        self.plain, self.other, self.version = _versions(options.plugin, folder)
        self.daemon = AdminDaemon(folder, [str(self.plain)], devices=(options.device,))
        self.swaps: list[Span] = []
        self.quiet: list[Span] = []
        self.compiles: list[Span] = []
        self.tests: list[Span] = []
        self.kills: list[float] = []
        self.memory = Memory(self.daemon, options.device)

    def swap_all(self) -> None:
        """Rounds of swaps and pauses of the same length."""
        swapper = Swapper(self.daemon, self.options.plugin, self.plain, self.other, self.version)
        while len(swapper.spans) < self.options.swaps:
            begun = time.monotonic()
            for _ in range(min(self.options.round, self.options.swaps - len(swapper.spans))):
                swapper.swap()
                self.memory.note()
            self._rest(time.monotonic() - begun)
        self.swaps = swapper.spans

    def load_slowly(self) -> None:
        """A plugin whose compiler is busy for long, and the self-test of one that was built before."""
        size = f"SIZE = {self.options.compile_size}"
        slow = copy_plugin(
            self.folder / "slow", of="faulty-compile", manifest=lambda text: text.replace("SIZE = 600", size)
        )
        begun = time.monotonic()
        self.daemon.load(slow)
        self.compiles.append((begun, time.monotonic()))
        self._rest(time.monotonic() - begun)
        for _ in range(max(3, self.options.swaps // 10)):
            begun = time.monotonic()
            self.daemon.load(self.other, force=True, keep_inactive=True)
            self.tests.append((begun, time.monotonic()))
            self._rest(time.monotonic() - begun)

    def kill_workers(self) -> None:
        """kill -9, and a pause until it is served again and quiet."""
        for _ in range(self.options.kills):
            (worker,) = self.daemon.workers()
            self.kills.append(time.monotonic())
            os.kill(worker, signal.SIGKILL)
            until(lambda worker=worker: self.daemon.workers() not in ([], [worker]), "the worker is replaced")
            time.sleep(3.0)

    def _rest(self, seconds: float) -> None:
        begun = time.monotonic() + 0.2
        time.sleep(seconds + 0.4)
        self.quiet.append((begun, time.monotonic() - 0.2))


def _versions(plugin: str, folder: Path) -> tuple[Path, Path, str]:
    if plugin == "parity":
        return copy_plugin(folder / "plain"), marked_parity(folder / "other"), MARKED
    return (
        copy_plugin(folder / "plain", of=plugin),
        copy_plugin(folder / "other", of=plugin, version="9.9.9"),
        "9.9.9",
    )


def main() -> None:
    """Measures, prints and writes down."""
    options = arguments()
    (device,) = (device for device in list_devices() if device.id == options.device)
    with tempfile.TemporaryDirectory() as name:
        run = Run(options, Path(name))
        try:
            load = Load(
                run.daemon.address,
                Path(name),
                plugin=options.plugin,
                processes=options.processes,
                depth=options.depth,
                items=options.items,
                marks=MARKS if options.plugin == "parity" else None,
            )
            with load:
                time.sleep(5.0)
                run.swap_all()
                run.load_slowly()
                run.kill_workers()
        finally:
            run.memory.close()
            run.daemon.stop()
    report = load.report
    print(f"{report.calls} calls; not right: {report.calls - report.count(0)} {report.problems}")
    # Calls are compared with those of the pauses alone: the rest overlaps something.
    quiet = report.within(run.quiet) & ~report.within(run.swaps) & ~report.within(run.compiles + run.tests)
    chosen = {
        "quiet": quiet,
        "while swapping": report.within(run.swaps),
        "while compiling": report.within(run.compiles),
        "while self-testing": report.within(run.tests),
    }
    records = []

    def note(case: str, rate: float, unit: str, runs: int, **settings: float) -> None:
        records.append(_record(options, device, f"swap/{options.plugin}/{case}", rate, unit, runs, settings))
        print(f"{case}: {rate:.6g} {unit} {settings}")

    base = report.quantile(0.99, quiet)
    for what, calls in chosen.items():
        p50, p99 = report.quantile(0.5, calls), report.quantile(0.99, calls)
        note(f"p99 {what}", p99, "s", int(calls.sum()), p50_s=p50, times_quiet=p99 / base)
    note("swap", float(np.median([end - begin for begin, end in run.swaps])), "s", len(run.swaps))
    back = [_back_s(report, at) for at in run.kills]
    if back:
        note("service back after kill -9", float(np.median(back)), "s", len(back), worst_s=max(back))
    half = run.memory.host[len(run.memory.host) // 2 :]
    settled = {"second_half_rise_bytes": rise(half), "host_bytes": run.memory.host[-1]}
    if run.memory.device:
        settled["device_rise_bytes"] = rise(run.memory.device)
    note("memory after the fifth swap", rise(run.memory.host), "bytes", len(run.swaps), **settled)
    lost = report.calls - report.count(0)
    note(
        "calls not right",
        lost,
        "calls",
        report.calls,
        wrong=report.count(WRONG),
        undecided=report.count(UNDECIDED),
        items_a_second=report.calls * options.items / float(np.ptp(report.starts)),
    )
    append_records(options.out, records)
    sys.exit(1 if lost else 0)


def _back_s(report, killed_at: float) -> float:  # noqa: ANN001
    """From the kill until the first right answer to a call that began after it."""
    ends = (report.starts + report.seconds)[(report.starts > killed_at) & (report.outcomes == 0)]
    return float(ends.min() - killed_at)


def _record(
    options: argparse.Namespace,
    device: DeviceInfo,
    case: str,
    rate: float,
    unit: str,
    runs: int,
    settings: dict[str, float],
) -> Record:
    given = {name: getattr(options, name) for name in ("swaps", "processes", "depth", "items")}
    return Record.of_rates(
        case,
        device,
        options.items,
        [float(rate)],
        unit=unit,
        includes=("transfer", "parsing", "gRPC"),
        runs=runs,
        settings={**given, **settings, "CXXFLAGS": os.environ.get("CXXFLAGS", ""), **load_average()},
    )


if __name__ == "__main__":
    main()
