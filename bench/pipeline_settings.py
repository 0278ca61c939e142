"""What the pipeline's settings give: streams, rounds a chunk and ramps, where the bitmaps lie, where the time goes.

    python bench/pipeline_settings.py cuda:0                the tables of docs/performance.md
    python bench/pipeline_settings.py cuda:0 --algorithm ECDSA_SECP256K1 --runs 21
    python bench/pipeline_settings.py cuda:0 --algorithm SM2 --timeline
    python bench/pipeline_settings.py cpu --items 4096

Medians, transfers from page-locked memory included; answers are checked before anything is timed. A flat plan and one
that begins with a small chunk take turns, at sizes that are no whole number of rounds too.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from itertools import product
from pathlib import Path

import numpy as np

from verifier.bench.rig import Rig, Slot, columns_of
from verifier.bench.signatures import SignatureSet, make_signatures
from verifier.workers import WorkerOptions
from verifier.workers._options import BitmapMemory
from verifier.workers._plan import Ramp

PLUGINS = Path(__file__).resolve().parents[1] / "plugins"
PLUGIN_OF = {"SM2": "sm2", "ECDSA_P256": "ecdsa", "ECDSA_SECP256K1": "ecdsa"}
STREAMS_AND_ROUNDS = tuple(product((4, 6, 8), (1, 2, 4)))
RAMPS: tuple[Ramp, ...] = ("none", "kernels")


def open_rig(device: str, algorithm: str) -> Rig:
    """A rig with the algorithm's plugin."""
    return Rig(device, PLUGINS / PLUGIN_OF[algorithm], PLUGINS / "common", slot_bytes=512 << 20)


def loaded(rig: Rig, made: SignatureSet, items: int) -> Slot:
    """A batch in the slot, whose answers were right once."""
    tiled = made.tiled(items)
    slot = rig.fill("verify", made.algorithm, columns_of(tiled), items)
    rig.run(slot)
    if not np.array_equal(slot.codes, tiled.codes):
        sys.exit(f"{made.algorithm} at {items} items: wrong answers")
    return slot


def medians(rig: Rig, slot: Slot, settings: list[WorkerOptions], runs: int) -> list[float]:
    """Seconds of a run with each of the settings. Codes must come out as they did before."""
    wanted = slot.codes.copy()
    for each in settings:
        slot.codes[:] = 0
        rig.compare(slot, [each], 0, warm_up=1)
        if not np.array_equal(slot.codes, wanted):
            sys.exit(f"other answers with {each}")
    return [statistics.median(end for _, end in times) for times in rig.compare(slot, settings, runs)]


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("device")
    parser.add_argument("--items", type=int, default=1 << 20, help="of the largest batch")
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--timeline", action="store_true", help="of the largest batch's chunks, and nothing else")
    parser.add_argument("--algorithm", choices=PLUGIN_OF, action="append", help="only these")
    options = parser.parse_args()
    for algorithm in options.algorithm or PLUGIN_OF:
        made = make_signatures(algorithm, min(options.items, 1 << 16))
        with open_rig(options.device, algorithm) as rig:
            if options.timeline:
                timeline(rig, made, options.items)
            else:
                measure(rig, made, options.items, options.runs)


def timeline(rig: Rig, made: SignatureSet, items: int) -> None:
    """When each chunk does what, with either kind of plan."""
    slot = loaded(rig, made, items)
    for ramp in RAMPS:
        print(f"{made.algorithm} {items:,} items, ramp {ramp}: in, kernels, out, end in ms")
        for size, times in rig.timeline(slot, WorkerOptions(chunk_ramp=ramp)):
            print(f"{size:12,}  " + "  ".join(f"{1e3 * each:7.3f}" for each in times), flush=True)


def measure(rig: Rig, made: SignatureSet, largest: int, runs: int) -> None:
    """An algorithm's lines."""
    algorithm = made.algorithm
    for items in sorted({1, min(8192, largest), largest}):
        slot = loaded(rig, made, items)
        stages = "  ".join(f"{name} {1e3 * seconds:.3f}" for name, seconds in rig.stage_times(slot))
        wall = 1e3 * statistics.median(rig.times(slot, runs))
        print(f"{algorithm} {items:,} items: {wall:.3f} ms; stages in ms: {stages}", flush=True)
    for items in sorted({max(1, largest // part) for part in (10, 4, 2)}):
        slot = loaded(rig, made, items)
        kernels = items / statistics.median(rig.kernel_times(slot, runs))
        print(
            f"{algorithm} {items:,} items: {_rates(rig, slot, {}, runs)}, kernels alone {kernels:,.0f} items/s",
            flush=True,
        )
    slot = loaded(rig, made, largest)
    kernels = largest / statistics.median(rig.kernel_times(slot, runs))
    print(f"{algorithm} {largest:,} items, kernels alone: {kernels:,.0f} items/s", flush=True)
    for streams, rounds in STREAMS_AND_ROUNDS:
        rates = _rates(rig, slot, {"streams": streams, "chunk_rounds": rounds}, runs)
        print(f"{algorithm} streams {streams} rounds {rounds}: {rates}", flush=True)
    slot = loaded(rig, made, 1)
    memories: tuple[BitmapMemory, ...] = ("managed", "pinned", "device")
    for memory, seconds in zip(
        memories, medians(rig, slot, [WorkerOptions(bitmap_memory=memory) for memory in memories], runs), strict=True
    ):
        print(f"{algorithm} bitmaps in {memory} memory: {1e3 * seconds:.3f} ms for one item", flush=True)


def _rates(rig: Rig, slot: Slot, settings: dict[str, int], runs: int) -> str:
    """Items a second with each kind of ramp."""
    options = [WorkerOptions(chunk_ramp=ramp, **settings) for ramp in RAMPS]  # type: ignore[arg-type]
    found = zip(RAMPS, medians(rig, slot, options, runs), strict=True)
    return ", ".join(f"ramp {ramp} {slot.items / seconds:,.0f} items/s" for ramp, seconds in found)


if __name__ == "__main__":
    main()
