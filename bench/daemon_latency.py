"""What the daemon adds to one batch: from the scheduler's door to the verdicts, one batch at a time, in one process.

    python bench/daemon_latency.py --device cpu --items 1 8192 --out bench/results/daemon_latency.jsonl

The null plugin looks at nothing, so that what is left is queue, router, slot, messages and threads. Each size is run
with its keys (`null`) and with keys of a registered set, named by index (`null-enrolled`), in turn. `beside` is the
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
from verifier.keys import KeySet, NamedBatch
from verifier.model import Batch, BatchResult, Column, bits_of
from verifier.telemetry import set_up_logs

NULL = Path(__file__).parents[1] / "bench" / "null_plugin"
WIDTHS = {"input": 32, "signature": 64, "key": 64}
WARM_UP = 20
ALGORITHM, KEYS = "SM2", 1000
TABLES_S = 60.0  # until all of them have tables


def main() -> None:
    """Measures and prints; with --out keeps the records."""
    options = arguments()
    set_up_logs("error", "console")
    for record in measure(options.device, options.items, options.runs):
        print(line(record), flush=True)
        if options.out is not None:
            append_records(options.out, [record])


def measure(devices: Sequence[str], sizes: Sequence[int], runs: int) -> Iterator[Record]:
    """Two records for each size, in seconds."""
    plugins = {"load": [str(NULL)], "trust": "any"}
    settings = private_overrides(plugins, devices={"use": list(devices)})
    with Core(load_settings(overrides=settings)) as core:
        keys = registered(core)
        for items in sizes:
            batches = batches_of(core, keys, items)
            taken = {name: Taken() for name in batches}
            for run in range(WARM_UP + runs):
                for name, batch in batches.items():
                    began = time.perf_counter()
                    result = core.named.submit(batch, caller="bench").result()
                    took = time.perf_counter() - began
                    check(result)
                    if run >= WARM_UP:
                        taken[name].add(took, result)
            for name, those in taken.items():
                case, info = f"{name}-{items}-latency-daemon", core.fleet[devices[0]].device
                yield Record.of_times(
                    case, info, items, those.seconds, items, unit="s", includes=("queue",), settings=those.about()
                )
        if core.tables is None or not core.tables.stats()[ALGORITHM].hits:
            raise SelfTestError("null-enrolled: the daemon did not go by its tables")


class Taken:
    """What a case's batches took."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._on_device: list[float] = []
        self._served: set[str] = set()

    def add(self, seconds: float, result: BatchResult) -> None:
        """One batch's."""
        self.seconds.append(seconds)
        self._on_device.append(result.timings.device_ns / 1e9)
        self._served.add(result.device)

    def about(self) -> dict[str, str | int | float]:
        """What a record says beside the times."""
        beside = [all_of_it - part for all_of_it, part in zip(self.seconds, self._on_device, strict=True)]
        return {
            "served_by": ",".join(sorted(self._served)),
            "device_s": statistics.median(self._on_device),
            "beside_s": statistics.median(beside),
            "beside_least_s": min(beside),
            **load_average(),
        }


def registered(core: Core) -> KeySet:
    """A set of keys that every device has tables of."""
    rows = np.random.default_rng(1).integers(0, 256, KEYS * WIDTHS["key"], np.uint8)
    keys = KeySet.of(ALGORITHM, "RAW_XY", KEYS, Column(rows, WIDTHS["key"]))
    if core.tables is None:
        raise SelfTestError("null-enrolled: the daemon keeps no tables")
    core.tables.register(keys)
    end = time.monotonic() + TABLES_S
    while not keys.view.whole:
        if time.monotonic() > end:
            raise SelfTestError(f"null-enrolled: the tables of {KEYS} keys took longer than {TABLES_S:g} s")
        time.sleep(0.01)
    return keys


def batches_of(core: Core, keys: KeySet, items: int) -> dict[str, Batch | NamedBatch]:
    """The same items with their keys and with keys that are named."""
    key = core.registry.resolve("verify", ALGORITHM).key({})
    columns = {name: Column(np.zeros(items * width, np.uint8), width) for name, width in WIDTHS.items()}
    indices = np.random.default_rng(2).integers(0, KEYS, items, np.uint32)
    inputs = (columns["input"], columns["signature"], Column.absent())
    return {
        "null": Batch(key, items, tuple(columns.values())),
        "null-enrolled": NamedBatch(key, items, inputs, 2, keys, indices, np.empty(0, np.uint32)),
    }


def check(result: BatchResult) -> None:
    """Raises SelfTestError where an item is not valid."""
    if bits_of(result.valid & result.decided, result.items).sum() != result.items:
        raise SelfTestError(f"null: not all of {result.items} items are valid")


def line(record: Record) -> str:
    """A record in microseconds."""
    about = record.settings
    numbers = {"p50": record.rate, **{name: float(about[name]) for name in ("p99", "device_s", "beside_s")}}
    told = ", ".join(f"{name.removesuffix('_s')} {seconds * 1e6:.0f}" for name, seconds in numbers.items())
    least = float(about["beside_least_s"]) * 1e6
    return f"{record.case:36} {about['served_by']:10} {told} (least {least:.0f}) us, load {about['load_average']}"


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
