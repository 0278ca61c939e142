"""Batches of few items, with a lane an item and with four lanes an item (plugins/common/curve_team.cuh).

    python bench/small_batches.py cuda:0 [--items 1 --items 8192] [--runs 51] [--output FILE]

Milliseconds, medians: the whole batch through the pipeline from page-locked memory, all kernels together, and
`verify` among them. Every answer is compared before anything is timed. Records are named sm2-verify-few, with the
build in their settings.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

from verifier.bench.cases import check_codes
from verifier.bench.records import Record, append_records
from verifier.bench.rig import Rig, columns_of
from verifier.bench.signatures import SignatureSet, make_signatures
from verifier.manifest import load_manifest

PLUGINS = Path(__file__).resolve().parents[1] / "plugins"
ITEMS = (1, 256, 1024, 4096, 8192, 16384, 32768, 65536)
ALWAYS = 1 << 20  # TEAM_ITEMS: every launch here is one over few items
BUILDS: dict[str, dict[str, int]] = {
    "a lane an item": {},
    "four lanes": {"TEAM_ITEMS": ALWAYS},
    "four lanes, calls": {"TEAM_ITEMS": ALWAYS, "TEAM_CALLS": 1},
    "four lanes, 384 threads": {"TEAM_ITEMS": ALWAYS, "TEAM_BLOCK": 384},
    "four lanes, 512 threads": {"TEAM_ITEMS": ALWAYS, "TEAM_BLOCK": 512},
}


def measure(device: str, build: str, made: SignatureSet, sizes: list[int], runs: int) -> list[Record]:
    """Prints a line a size, and returns a record of the whole batch for each."""
    folder = PLUGINS / "sm2"
    choice = load_manifest(folder).choice("", BUILDS[build])
    records = []
    with Rig(device, folder, PLUGINS / "common", slot_bytes=64 << 20, choice=choice) as rig:
        for items in sizes:
            tiled = made.tiled(items)
            slot = rig.fill("verify", "SM2", columns_of(tiled), items)
            rig.run(slot)
            check_codes(slot, tiled, f"{build}, {items} items")
            whole, kernels = rig.times(slot, runs), rig.kernel_times(slot, runs)
            check_codes(slot, tiled, f"{build}, {items} items, kernels")
            verify = dict(rig.stage_times(slot))["sm2_verify"]
            figures = (
                f"{statistics.median(whole) * 1e3:9.3f} {statistics.median(kernels) * 1e3:9.3f} {verify * 1e3:9.3f}"
            )
            print(f"{build:24} {items:8} {figures}", flush=True)
            settings: dict[str, str | int | float] = {
                "build": build,
                "kernels_s": statistics.median(kernels),
                "verify_s": verify,
            }
            includes = ("parsing",) if rig.info.unified else ("transfer", "parsing")
            records.append(
                Record.of_times(
                    "sm2-verify-few", rig.info, items, whole, items, unit="s", includes=includes, settings=settings
                )
            )
    return records


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("device")
    parser.add_argument("--items", type=int, action="append", help=f"sizes of a batch, instead of {ITEMS}")
    parser.add_argument("--build", action="append", choices=tuple(BUILDS), help="all by default")
    parser.add_argument("--runs", type=int, default=51)
    parser.add_argument("--output", type=Path, help="appends the records to this file")
    options = parser.parse_args()
    print(f"{'':24} {'items':>8} {'batch':>9} {'kernels':>9} {'verify':>9}")
    sizes = options.items or list(ITEMS)
    made = make_signatures("SM2", min(max(sizes), 1 << 16), fault_share=0.01)
    for build in options.build or BUILDS:
        records = measure(options.device, build, made, sizes, options.runs)
        if options.output:
            append_records(options.output, records)


if __name__ == "__main__":
    main()
