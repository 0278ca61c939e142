"""SM2 from columns in three layouts: as they come, transposed on the device, interleaved by the sender.

    python bench/column_layouts.py cuda:0
    python bench/column_layouts.py cpu --threads 1 --items 4096

As they come, an item's bytes stand together. Interleaved, word w of item i stands at 32 * w + i of every 32 items, so
that a warp reads neighbours; the sender's work for that is not timed. Prints medians of whole runs, copies from
page-locked memory included, and what the stage that reads columns, and transposes them, takes on the device. Answers
are checked before anything is timed; runs of the three alternate.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from verifier.bench.rig import Rig, Slot, columns_of
from verifier.bench.signatures import SignatureSet, make_signatures
from verifier.manifest import Choice
from verifier.model import Column

PLUGINS = Path(__file__).resolve().parents[1] / "plugins"
GROUP = 32  # items whose words are interleaved by the sender


def interleaved(column: Column) -> Column:
    """A fixed-width column of 32-bit words with the words of every 32 items interleaved."""
    words = column.data.view(np.uint32).reshape(-1, GROUP, column.stride // 4)
    data = np.ascontiguousarray(words.transpose(0, 2, 1)).view(np.uint8).ravel()
    return Column(data, column.stride)


def layouts() -> dict[str, tuple[Choice, dict[str, int | str]]]:
    """What each layout is built with: a variant, and macros beside it."""
    transposing = Choice("interleaved")
    return {
        "as they come": (Choice(), {}),
        "transposed on the device": (transposing, {}),
        "interleaved by the sender": (transposing, {"INTERLEAVED": 2}),
    }


def loaded(rig: Rig, layout: str, made: SignatureSet) -> Slot:
    """The batch in the slot, whose answers were right once."""
    columns = columns_of(made)
    if layout == "interleaved by the sender":
        columns = {name: interleaved(column) for name, column in columns.items()}
    slot = rig.fill("verify", made.algorithm, columns, made.items)
    rig.run(slot)
    if not np.array_equal(slot.codes, made.codes):
        sys.exit(f"{layout}: wrong answers")
    return slot


def main() -> None:
    """Prints a line a layout."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("device")
    parser.add_argument("--items", type=int, default=1 << 20, help="a multiple of 32")
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--threads", type=int, help="of a CPU")
    options = parser.parse_args()
    if options.items <= 0 or options.items % GROUP:
        parser.error(f"--items {options.items}: must be a multiple of {GROUP}")
    driver = {"threads": options.threads} if options.threads else {}
    made = make_signatures("SM2", min(options.items, 1 << 16), fault_share=0.01).tiled(options.items)
    with ExitStack() as held:
        ready: dict[str, tuple[Rig, Slot]] = {}
        for layout, (choice, defines) in layouts().items():
            rig = held.enter_context(
                Rig(
                    options.device,
                    PLUGINS / "sm2",
                    PLUGINS / "common",
                    slot_bytes=(256 << 10) + 192 * options.items,
                    choice=choice,
                    defines=defines,
                    **driver,
                )
            )
            ready[layout] = rig, loaded(rig, layout, made)
        seconds: dict[str, list[float]] = {layout: [] for layout in ready}
        for _ in range(options.runs):
            for layout, (rig, slot) in ready.items():
                seconds[layout] += rig.times(slot, 1, warm_up=1)
        for layout, (rig, slot) in ready.items():
            median = statistics.median(seconds[layout])
            (stage, first), *others = rig.stage_times(slot)
            whole = first + sum(time for _, time in others)
            print(
                f"{layout}: {options.items / median:,.0f} items/s, {1e3 * median:.3f} ms; "
                f"{stage} {1e3 * first:.3f} of {1e3 * whole:.3f} ms on the device"
            )


if __name__ == "__main__":
    main()
