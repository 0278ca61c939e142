"""From and to page-locked memory: what chunk sizes and streams give of the link both ways, for one cipher or several.

    python bench/cipher_link.py cuda:0 [--case 'cipher-aes*'] [--mib 256] [--runs 9]
    python bench/cipher_link.py cuda:0 --case 'cipher-aes-128-ctr' --timeline
    python bench/cipher_link.py cuda:0 --plans [--case 'cipher-aes*'] [--mib 1024]

One line a setting, with equal chunks and with such as grow and shrink again, which take turns: gigabits a second one
way, its share of the copy rate both ways that was measured just before, and the time that giving the batch's orders
takes, which bounds how small chunks may be. Outputs are compared with the default's before anything is timed.

With --plans it compares how chunks pass the link (verifier/workers/_link.py), each with several chunk sizes, for some
ciphers; the last lines are each plan's least share of the copy rate both ways over all of them. CUDA gives a process
eight queues unless CUDA_DEVICE_MAX_CONNECTIONS says otherwise (up to 32), and streams that share one wait for each
other.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from fnmatch import fnmatch
from itertools import groupby, product
from pathlib import Path

import numpy as np

from verifier.bench.cipher_cases import CIPHERS, Cipher, fill_cipher
from verifier.bench.limits import CEILINGS, copy_rates, measure_limits
from verifier.bench.rig import Rig
from verifier.drivers import open_driver
from verifier.drivers.build import build_image
from verifier.manifest import Choice, load_manifest
from verifier.registry import PluginSource, build_files
from verifier.workers import WorkerOptions
from verifier.workers._link import BothWays, both_ways
from verifier.workers._plan import Ramp

ROOT = Path(__file__).resolve().parents[1]
COMMON = ROOT / "plugins" / "common"
CHUNK_MIB = (0, 2, 4, 6, 8, 12, 16, 32)  # 0: whole rounds, as items that are not ciphers have
STREAMS = (4, 8, 12)
RAMPS: tuple[Ramp, ...] = ("none", "all")
# How chunks pass the link, MiB of one, and streams of kernels.
Plan = tuple[BothWays, int, int]
PLANS: tuple[Plan, ...] = (
    *(("streams", chunk, 8) for chunk in (4, 8, 16, 32)),
    ("streams", 8, 4),
    *(("directions", chunk, 4) for chunk in (4, 8, 16, 32)),
    ("directions", 8, 8),
    *(("written", chunk, 4) for chunk in (4, 8, 16, 32)),
    ("written", 8, 8),
    ("direct", 8, 4),
)
PLAN_CASES = (
    "cipher-aes-128-ctr",
    "cipher-aes-128-gcm",
    "cipher-hight-ctr",
    "cipher-kuznyechik-ctr",
    "cipher-skinny-128-256-ecb",
    "cipher-skinny-128-256-ctr",
)


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


def compare_plans(device: str, ciphers: list[Cipher], mib: int, runs: int) -> None:
    """Every plan for each of the ciphers, which take turns, beside the copy rate both ways just before."""
    least: dict[Plan, float] = {}
    noise = np.random.default_rng(5).integers(0, 256, 16 << 20, np.uint8)
    for plugin, group in groupby(sorted(ciphers, key=lambda cipher: cipher.plugin), lambda cipher: cipher.plugin):
        with Rig(device, ROOT / "plugins" / plugin, COMMON, slot_bytes=(9 * mib // 4 + 64) << 20) as rig:
            if rig.info.unified:
                sys.exit(f"{device} works in place: there is no link to fill")
            for cipher in group:
                inward, outward, both = copy_rates(rig)
                print(
                    f"{cipher.name}, {mib} MiB; copies alone: in {inward / 1e9:.1f}, out {outward / 1e9:.1f}, "
                    f"both ways at once {both / 1e9:.1f} GB/s each",
                    flush=True,
                )
                for plan, share in _shares(rig, cipher, noise, mib, runs, both).items():
                    least[plan] = min(share, least.get(plan, share))
    for (link, chunk, streams), share in least.items():
        print(f"least of all: {link:10} chunks of {chunk:2} MiB, {streams} streams: {share:6.1%}")


def _shares(rig: Rig, cipher: Cipher, noise: np.ndarray, mib: int, runs: int, copy_both: float) -> dict[Plan, float]:
    data = np.resize(noise, ((mib << 20) // cipher.stripe_bytes, cipher.stripe_bytes))
    slot = fill_cipher(cipher, rig, cipher.operation, data, bytes(range(cipher.key_bytes)))
    operation = rig.instance.operations[slot.job.operation]
    plans = [plan for plan in PLANS if both_ways(plan[0], operation, borrowed=False) == plan[0]]
    settings = [
        WorkerOptions(both_ways=link, chunk_both_ways_bytes=chunk << 20, streams=streams)
        for link, chunk, streams in plans
    ]
    rig.run(slot)
    sample = slice(None, None, 1009)  # of the stripes; an odd number, so that every place in a warp has its turn
    wanted = [slot.output(index)[sample].copy() for index in range(len(slot.job.layout.outputs))]
    for each in settings:
        for index in range(len(wanted)):
            slot.output(index)[sample] = 0
        slot.codes[:] = 0
        rig.compare(slot, [each], 0, warm_up=1)
        same = all(np.array_equal(slot.output(index)[sample], rows) for index, rows in enumerate(wanted))
        if not same or not (slot.codes == 1).all():
            sys.exit(f"{cipher.name}: another output with {each}")
    found = {}
    for plan, times in zip(plans, rig.compare(slot, settings, runs), strict=True):
        orders, seconds = (statistics.median(each) for each in zip(*times, strict=True))
        found[plan] = data.size / seconds / copy_both
        print(
            f"  {plan[0]:10} chunks of {plan[1]:2} MiB, {plan[2]} streams: "
            f"{data.size / seconds / 1e9:5.2f} GB/s each way, {found[plan]:6.1%}, "
            f"orders {1e3 * orders:5.2f} of {1e3 * seconds:6.2f} ms",
            flush=True,
        )
    return found


def build_ahead(device: str, ciphers: list[Cipher]) -> None:
    """Fills the cache of images, several compilers at once."""
    with closing(open_driver(device)) as driver:
        target = driver.info.target

    def build(plugin: str) -> None:
        folder = ROOT / "plugins" / plugin
        manifest = load_manifest(folder)
        files = {path.name: path.read_bytes() for place in (COMMON, folder) for path in place.glob("*.cu*")}
        source, macros = manifest.build(Choice(), target)
        build_image(build_files(PluginSource(manifest, files), Choice(), target), source, target, macros)

    with ThreadPoolExecutor() as pool:
        list(pool.map(build, {cipher.plugin for cipher in ciphers}))


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
    parser.add_argument("--case", help="of the bench; * and ? match")
    parser.add_argument("--mib", type=int, help="256, and with --plans 1024")
    parser.add_argument("--plans", action="store_true", help="ways to pass the link, and nothing else")
    parser.add_argument("--timeline", action="store_true", help="of the chunks, with the default settings")
    parser.add_argument("--runs", type=int, help="9, and with --plans 7")
    arguments = parser.parse_args()
    patterns = [arguments.case] if arguments.case else PLAN_CASES if arguments.plans else ["*"]
    ciphers = [cipher for cipher in CIPHERS if any(fnmatch(cipher.name, pattern) for pattern in patterns)]
    mib = arguments.mib or (1024 if arguments.plans else 256)
    runs = arguments.runs or (7 if arguments.plans else 9)
    if arguments.plans:
        started = time.perf_counter()
        build_ahead(arguments.device, ciphers)
        print(f"images after {time.perf_counter() - started:.1f} s", flush=True)
        compare_plans(arguments.device, ciphers, mib, runs)
        print(f"{time.perf_counter() - started:.1f} s")
        return
    if arguments.timeline:
        for cipher in ciphers:
            timeline(arguments.device, cipher, mib)
        return
    with Rig(arguments.device, CEILINGS, COMMON, slot_bytes=512 << 20) as rig:
        limits = measure_limits(rig)
    if not limits.copy_both:
        sys.exit(f"{arguments.device} works in place: there is no link to fill")
    for cipher in ciphers:
        measure(arguments.device, cipher, mib, runs, limits.copy_both)


if __name__ == "__main__":
    main()
