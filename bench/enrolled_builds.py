"""Builds of the kernel that verifies with enrolled keys, one after the other on the same signatures.

    python bench/enrolled_builds.py cuda:0 [--algorithm SM2] [--largest] [--runs 15] [--output FILE]
        [--set COMB_THREADS=256,WINDOW_G=24 ...]

Two lines a build: microseconds of each stage of the batch, then what `verifier bench --case '*-verify-enrolled'`
records: signatures a second and seconds of 8,192. Every answer is compared before anything is timed.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from multiprocessing import get_context
from pathlib import Path

from verifier.bench.cases import Settings
from verifier.bench.enrolled_cases import LARGEST, WINDOW_8, measure_enrolled
from verifier.bench.limits import Limits
from verifier.bench.records import Record, append_records
from verifier.bench.rig import Rig, Slot
from verifier.drivers import open_driver
from verifier.drivers.build import build_image
from verifier.manifest import load_manifest
from verifier.model import Column
from verifier.registry import PluginSource

PLUGINS = Path(__file__).resolve().parents[1] / "plugins"
PLUGIN_OF = {"SM2": "sm2", "ECDSA_P256": "ecdsa", "ECDSA_SECP256K1": "ecdsa"}
SETS = ("COMB_THREADS=128", "COMB_THREADS=256", "COMB_THREADS=512")
_UNMEASURED = Limits(0, 0, 0, 0, 0, 1)


def macros_of(text: str) -> dict[str, int]:
    """NAME=VALUE,NAME=VALUE as a mapping."""
    return {name: int(value) for name, _, value in (pair.partition("=") for pair in text.split(","))}


def compile_for(target: str, plugin: str, tunables: Mapping[str, int]) -> None:
    """Leaves an image in the cache, where the rig finds it."""
    source = PluginSource.read(PLUGINS / plugin, PLUGINS / "common")
    start, macros = source.manifest.build(source.manifest.choice("", tunables), target)
    build_image(source.reached(start), start, target, macros)


class RigThatKeeps(Rig):
    """Keeps the last slot."""

    last: Slot

    def fill(self, operation: str, algorithm: str, columns: Mapping[str, Column], items: int) -> Slot:
        """As `Rig.fill`."""
        self.last = super().fill(operation, algorithm, columns, items)
        return self.last


def measure(device: str, algorithm: str, tunables: Mapping[str, int], runs: int, batch: int) -> list[Record]:
    """Prints the stages, and returns the records of `verifier bench` without its limits."""
    folder = PLUGINS / PLUGIN_OF[algorithm]
    choice = load_manifest(folder).choice("", tunables)
    stages: list[tuple[str, float]] = []
    with RigThatKeeps(device, folder, PLUGINS / "common", choice=choice) as rig:
        records = []
        for record in measure_enrolled("enrolled", algorithm, tunables)(rig, _UNMEASURED, Settings(batch, runs, 0)):
            records.append(record)
            if record.case.endswith("-kernel"):
                stages = list(rig.stage_times(rig.last))
    print("   ", " ".join(f"{name} {seconds * 1e6:.0f}" for name, seconds in stages), flush=True)
    return records


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("device")
    parser.add_argument("--algorithm", choices=tuple(PLUGIN_OF), default="SM2")
    parser.add_argument("--largest", action="store_true", help="windows 12 and 24 instead of 8 and 22")
    parser.add_argument("--set", action="append", help=f"tunables of a build, instead of {SETS}")
    parser.add_argument("--batch", type=int, default=1 << 20)
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--output", type=Path, help="appends the records to this file")
    options = parser.parse_args()
    windows = LARGEST if options.largest else WINDOW_8
    builds = {text: {**windows, **macros_of(text)} for text in options.set or SETS}
    with closing(open_driver(options.device)) as driver:
        target = driver.info.target
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        plugin = PLUGIN_OF[options.algorithm]
        for job in [pool.submit(compile_for, target, plugin, tunables) for tunables in builds.values()]:
            job.result()
    for text, tunables in builds.items():
        records = measure(options.device, options.algorithm, tunables, options.runs, options.batch)
        print(text, {record.case.removeprefix("enrolled"): f"{record.rate:.4g}" for record in records}, flush=True)
        if options.output:
            append_records(options.output, records)


if __name__ == "__main__":
    main()
