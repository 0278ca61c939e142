"""What the daemon adds to one batch: from the scheduler's door to the verdicts, one batch at a time, in one process.

    python bench/daemon_latency.py --device cpu --items 1 8192 --out bench/results/daemon_latency.jsonl

The null plugin looks at nothing, so that what is left is queue, router, slot, messages and threads. `beside` is the
seconds of a batch less those that the device says it had, median and smallest: on a machine that others use, too, the
smallest says what the way itself costs. Several devices give the router a choice. Every answer is looked at.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from node_adapter.local import private_overrides
from verifier.bench.records import Record, append_records, load_average
from verifier.config import load_settings
from verifier.core import Core
from verifier.errors import SelfTestError
from verifier.model import Batch, Column
from verifier.telemetry import set_up_logs

NULL = Path(__file__).parents[1] / "bench" / "null_plugin"
WIDTHS = {"input": 32, "signature": 64, "key": 64}
WARM_UP = 20


def main() -> None:
    """Measures and prints; with --out keeps the records."""
    options = arguments()
    set_up_logs("error", "console")
    for record in measure(options.device, options.items, options.runs):
        print(line(record), flush=True)
        if options.out is not None:
            append_records(options.out, [record])


def measure(devices: Sequence[str], sizes: Sequence[int], runs: int) -> Iterator[Record]:
    """A record for each size, in seconds."""
    plugins = {"load": [str(NULL)], "trust": "any"}
    settings = private_overrides(plugins, devices={"use": list(devices)})
    with Core(load_settings(overrides=settings)) as core:
        resolved = core.registry.resolve("verify", "SM2")
        for items in sizes:
            columns = [Column(np.zeros(items * WIDTHS[name], np.uint8), WIDTHS[name]) for name in WIDTHS]
            batch = Batch(resolved.key({}), items, tuple(columns))
            seconds, on_device, served = [], [], set()
            for run in range(WARM_UP + runs):
                began = time.perf_counter()
                result = core.scheduler.submit(batch, caller="bench").result()
                took = time.perf_counter() - began
                if np.unpackbits(result.valid & result.decided, count=items, bitorder="little").sum() != items:
                    raise SelfTestError(f"null: not all of {items} items are valid")
                if run >= WARM_UP:
                    seconds.append(took)
                    on_device.append(result.timings.device_ns / 1e9)
                    served.add(result.device)
            beside = [all_of_it - part for all_of_it, part in zip(seconds, on_device, strict=True)]
            about: dict[str, str | int | float] = {
                "served_by": ",".join(sorted(served)),
                "device_s": statistics.median(on_device),
                "beside_s": statistics.median(beside),
                "beside_least_s": min(beside),
                **load_average(),
            }
            name, info = f"null-{items}-latency-daemon", core.fleet[devices[0]].device
            yield Record.of_times(name, info, items, seconds, items, unit="s", includes=("queue",), settings=about)


def line(record: Record) -> str:
    """A record in microseconds."""
    about = record.settings
    numbers = {"p50": record.rate, **{name: float(about[name]) for name in ("p99", "device_s", "beside_s")}}
    told = ", ".join(f"{name.removesuffix('_s')} {seconds * 1e6:.0f}" for name, seconds in numbers.items())
    least = float(about["beside_least_s"]) * 1e6
    return f"{record.case:28} {about['served_by']:10} {told} (least {least:.0f}) us, load {about['load_average']}"


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", nargs="+", default=["cpu"])
    parser.add_argument("--items", nargs="+", type=int, default=[1, 8192])
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
