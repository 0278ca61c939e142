"""From and to page-locked memory: what chunk sizes and streams give of the link both ways, for one cipher or several.

    python bench/cipher_link.py cuda:0 [--case 'cipher-aes*'] [--mib 256] [--runs 9]
    python bench/cipher_link.py cuda:0 --case 'cipher-aes-128-ctr' --timeline

One line a setting, with equal chunks and with such as grow and shrink again, which take turns: gigabits a second one
way, its share of the copy rate both ways that was measured just before, and the time that giving the batch's orders
takes, which bounds how small chunks may be. Outputs are compared with the default's before anything is timed.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from fnmatch import fnmatch
from itertools import product
from pathlib import Path

import numpy as np

from verifier.bench.cipher_cases import CIPHERS, Cipher, fill_cipher
from verifier.bench.limits import CEILINGS, measure_limits
from verifier.bench.rig import Rig
from verifier.workers import WorkerOptions
from verifier.workers._plan import Ramp

ROOT = Path(__file__).resolve().parents[1]
COMMON = ROOT / "plugins" / "common"
CHUNK_MIB = (0, 4, 8, 16, 24, 32)  # 0: whole rounds, as items that are not ciphers have
STREAMS = (4, 8, 12)
RAMPS: tuple[Ramp, ...] = ("none", "all")


def measure(device: str, cipher: Cipher, mib: int, runs: int, copy_both: float) -> None:
    """Every setting for one cipher."""
    folder = ROOT / "plugins" / cipher.plugin
    data = np.random.default_rng(5).integers(
        0, 256, ((mib << 20) // cipher.stripe_bytes, cipher.stripe_bytes), np.uint8
    )
    with Rig(device, folder, COMMON, slot_bytes=(3 * mib + 64) << 20) as rig:
        slot = fill_cipher(cipher, rig, cipher.operation, data, bytes(range(cipher.key_bytes)))
        rig.run(slot)
        wanted = slot.output(0).copy()
        for streams, chunk in product(STREAMS, CHUNK_MIB):
            ramps = RAMPS if chunk else RAMPS[:1]
            settings = [
                WorkerOptions(streams=streams, chunk_both_ways_bytes=chunk << 20, chunk_ramp=ramp) for ramp in ramps
            ]
            for each in settings:
                slot.output(0)[:] = 0
                rig.compare(slot, [each], 0, warm_up=1)
                if not np.array_equal(slot.output(0), wanted):
                    sys.exit(f"{cipher.name}: another output with {each}")
            for ramp, times in zip(ramps, rig.compare(slot, settings, runs), strict=True):
                orders, seconds = (statistics.median(each) for each in zip(*times, strict=True))
                rate = data.size / seconds
                print(
                    f"{cipher.name:28} {streams:2} streams, chunks of {chunk:2} MiB, ramp {ramp:4}: "
                    f"{8e-9 * rate:6.1f} Gb/s, {rate / copy_both:5.1%} of the link, "
                    f"orders {1e3 * orders:5.2f} of {1e3 * seconds:5.2f} ms",
                    flush=True,
                )


def timeline(device: str, cipher: Cipher, mib: int) -> None:
    """When each chunk does what."""
    data = np.zeros(((mib << 20) // cipher.stripe_bytes, cipher.stripe_bytes), np.uint8)
    with Rig(device, ROOT / "plugins" / cipher.plugin, COMMON, slot_bytes=(3 * mib + 64) << 20) as rig:
        slot = fill_cipher(cipher, rig, cipher.operation, data, bytes(range(cipher.key_bytes)))
        print(f"{cipher.name}, {mib} MiB: in, kernels, out, end in ms")
        for size, times in rig.timeline(slot, WorkerOptions()):
            print(f"{size:12,}  " + "  ".join(f"{1e3 * each:7.3f}" for each in times), flush=True)


def main() -> None:
    """Runs it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("device")
    parser.add_argument("--case", default="*")
    parser.add_argument("--mib", type=int, default=256)
    parser.add_argument("--timeline", action="store_true", help="of the chunks, with the default settings")
    parser.add_argument("--runs", type=int, default=9)
    arguments = parser.parse_args()
    if arguments.timeline:
        for cipher in CIPHERS:
            if fnmatch(cipher.name, arguments.case):
                timeline(arguments.device, cipher, arguments.mib)
        return
    with Rig(arguments.device, CEILINGS, COMMON, slot_bytes=512 << 20) as rig:
        limits = measure_limits(rig)
    if not limits.copy_both:
        sys.exit(f"{arguments.device} works in place: there is no link to fill")
    for cipher in CIPHERS:
        if fnmatch(cipher.name, arguments.case):
            measure(arguments.device, cipher, arguments.mib, arguments.runs, limits.copy_both)


if __name__ == "__main__":
    main()
