"""What the pipeline's settings give: streams and rounds a chunk, where the bitmaps lie, where a batch's time goes.

    python bench/pipeline_settings.py cuda:0                the tables of docs/performance.md
    python bench/pipeline_settings.py cpu --items 4096

Medians, transfers from page-locked memory included; answers are checked before anything is timed.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from verifier.bench.rig import Rig, Slot, columns_of
from verifier.bench.signatures import SignatureSet, make_signatures
from verifier.workers import WorkerOptions

PLUGINS = Path(__file__).resolve().parents[1] / "plugins"
PLUGIN_OF = {"SM2": "sm2", "ECDSA_P256": "ecdsa", "ECDSA_SECP256K1": "ecdsa"}
STREAMS_AND_ROUNDS = tuple(product((4, 6, 8), (1, 2, 4)))


def open_rig(device: str, algorithm: str, **options: Any) -> Rig:
    """A rig with these settings of a worker."""
    settings = WorkerOptions(**options)
    return Rig(device, PLUGINS / PLUGIN_OF[algorithm], PLUGINS / "common", slot_bytes=512 << 20, options=settings)


def loaded(rig: Rig, made: SignatureSet, items: int) -> Slot:
    """A batch in the slot, whose answers were right once."""
    tiled = made.tiled(items)
    slot = rig.fill("verify", made.algorithm, columns_of(tiled), items)
    rig.run(slot)
    if not np.array_equal(slot.codes, tiled.codes):
        sys.exit(f"{made.algorithm} at {items} items: wrong answers")
    return slot


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("device")
    parser.add_argument("--items", type=int, default=1 << 20, help="of the largest batch")
    parser.add_argument("--runs", type=int, default=7)
    options = parser.parse_args()
    for algorithm in PLUGIN_OF:
        made = make_signatures(algorithm, min(options.items, 1 << 16))
        with open_rig(options.device, algorithm) as rig:
            for items in sorted({1, min(8192, options.items), options.items}):
                slot = loaded(rig, made, items)
                stages = "  ".join(f"{name} {1e3 * seconds:.3f}" for name, seconds in rig.stage_times(slot))
                wall = 1e3 * statistics.median(rig.times(slot, options.runs))
                print(f"{algorithm} {items:,} items: {wall:.3f} ms; stages in ms: {stages}")
        for streams, rounds in STREAMS_AND_ROUNDS:
            with open_rig(options.device, algorithm, streams=streams, chunk_rounds=rounds) as rig:
                seconds = statistics.median(rig.times(loaded(rig, made, options.items), options.runs))
                print(f"{algorithm} streams {streams} rounds {rounds}: {options.items / seconds:,.0f} items/s")
        for memory in ("managed", "pinned", "device"):
            with open_rig(options.device, algorithm, bitmap_memory=memory) as rig:
                seconds = statistics.median(rig.times(loaded(rig, made, 1), options.runs))
                print(f"{algorithm} bitmaps in {memory} memory: {1e3 * seconds:.3f} ms for one item")


if __name__ == "__main__":
    main()
