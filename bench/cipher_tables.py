"""The tables of the published GPU implementations of SKINNY, Kuznyechik and HIGHT, with our columns beside theirs.

    python bench/cipher_tables.py [--device cuda:0] [--table skinny] [--runs 5] [--output FILE]

skinny      Xie, Wei and Liu 2021: SKINNY-128-256, ECB and CTR, by size: time, speed-up over a CPU thread, throughput
kuznyechik  Borisov and Myasnikov 2016: where the tables lie, by threads of a block
hight       the published four ways on a GPU (GTX 470) and the three on a CPU, and ours

Every build is checked before it is timed: what comes out must equal the default build on the CPU. `device` is with
the data on the device, `host` from and to page-locked memory, `cpu` the processor time of one thread. Without a GPU
its rows are missing. Prints Markdown; --output adds the figures as lines of JSON, which cipher_plots.py draws.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import numpy as np

from verifier.bench.cipher_cases import CIPHERS, Cipher, fill_cipher
from verifier.bench.records import commit_hash
from verifier.bench.rig import Rig
from verifier.drivers import list_devices
from verifier.errors import BuildError, SelfTestError
from verifier.manifest import load_manifest
from verifier.model import Bytes

ROOT = Path(__file__).resolve().parents[1]
MODES = {"ECB": "ecb_encrypt", "CTR": "ctr"}
SIZES = (16, 256, 4 << 10, 64 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20)
MIB = 256 << 20  # what a GPU's throughput is measured on
CPU_BYTES = 4 << 20


@dataclass(frozen=True)
class Figure:
    """One measured time. `where` is cpu, device or host."""

    table: str
    build: str
    mode: str
    nbytes: int
    where: str
    seconds: float
    device: str
    commit: str
    date: str

    @property
    def gbit_s(self) -> float:
        """Throughput."""
        return 8 * self.nbytes / self.seconds / 1e9


def cipher_of(plugin: str, mode: str) -> Cipher:
    """The case of `verifier bench` for it."""
    return next(c for c in CIPHERS if c.plugin == plugin and c.operation == MODES[mode])


def expected(cipher: Cipher, cache: dict[Cipher, Bytes]) -> Bytes:
    """4,099 stripes encrypted by the default build on the CPU."""
    if cipher not in cache:
        with open_rig("cpu", cipher.plugin, "", {}) as rig:
            cache[cipher] = encrypted(cipher, rig)
    return cache[cipher]


def encrypted(cipher: Cipher, rig: Rig) -> Bytes:
    """The stripes that builds are compared on."""
    data = np.random.default_rng(8).integers(0, 256, (4099, cipher.stripe_bytes), np.uint8)
    slot = fill_cipher(cipher, rig, cipher.operation, data, bytes(range(cipher.key_bytes)))
    rig.run(slot)
    return slot.output(0).copy()


def open_rig(device: str, plugin: str, variant: str, tunables: Mapping[str, int | str]) -> Rig:
    """A device with one build of a plugin; on the CPU one thread."""
    folder = ROOT / "plugins" / plugin
    options = {"threads": 1} if device == "cpu" else {}
    slot_bytes = (3 * (MIB if device != "cpu" else 64 << 20) + (64 << 20)) & ~63
    choice = load_manifest(folder).choice(variant, tunables)
    return Rig(device, folder, ROOT / "plugins" / "common", slot_bytes=slot_bytes, choice=choice, **options)


def times(cipher: Cipher, rig: Rig, nbytes: int, runs: int) -> Iterator[tuple[str, float]]:
    """Medians, by where the data is. Less than a stripe takes a stripe's time."""
    stripes = max(1, nbytes // cipher.stripe_bytes)
    # Equal blocks would look up equal places of tables, which memory answers at once.
    noise = np.random.default_rng(9).integers(0, 256, 4 << 20, np.uint8)
    data = np.resize(noise, (stripes, cipher.stripe_bytes))
    slot = fill_cipher(cipher, rig, cipher.operation, data, bytes(range(cipher.key_bytes)))
    if rig.info.unified:
        seconds = []
        for _ in range(runs + 1):
            started = time.thread_time()
            rig.run(slot)
            seconds.append(time.thread_time() - started)
        yield "cpu", statistics.median(seconds[1:])
    else:
        yield "device", statistics.median(rig.kernel_times(slot, runs))
        yield "host", statistics.median(rig.times(slot, runs))


# A build as a table has it: its name there, the plugin's variant and tunables.
Build = tuple[str, str, dict[str, int | str]]


def builds_of(table: str, kind: str) -> list[Build]:
    """The rows or columns of a table on a CPU or a GPU."""
    if kind == "cpu":
        return {
            "skinny": [("a block at a time", "tables_constant", {}), ("bit-sliced", "", {})],
            "kuznyechik": [("tables", "tables_global", {}), ("bit-sliced", "", {})],
            "hight": [("reference", "reference", {}), ("byte-sliced", "bytes", {}), ("bit-sliced", "", {})],
        }[table]
    sliced: list[Build] = [("bit-sliced, first form", "sliced", {}), ("bit-sliced", "", {})]
    logic: Build = ("bit-sliced, by logic alone", "", {"MULTIPLIED": 0})
    if table == "skinny":
        return [("T-tables in constant memory", "tables_constant", {}), *sliced, logic]
    if table == "hight":
        ways = ("reference", "reference_in_a_row", "bytes", "bytes_in_a_row")
        return [*((way.replace("_", " "), way, {}) for way in ways), *sliced, logic]
    places = ("tables_global", "tables_constant", "tables_shared")
    threads = (32, 64, 128, 256, 512, 1024)
    tables: list[Build] = [
        (f"{place.replace('_', ' in ')}, {n} threads", place, {"DIRECT_THREADS": n})
        for place in places
        for n in threads
    ]
    return [*tables, *sliced, logic]


def measure(table: str, device: str, runs: int, report: Callable[[str], None]) -> Iterator[Figure]:
    """Every build of a table on one device."""
    kind = "cpu" if device == "cpu" else "gpu"
    cache: dict[Cipher, Bytes] = {}
    wanted = {mode: expected(cipher_of(table, mode), cache) for mode in MODES}
    date = datetime.now(UTC).isoformat(timespec="seconds")
    for name, variant, tunables in builds_of(table, kind):
        try:
            rig = open_rig(device, table, variant, tunables)
        except BuildError as error:
            report(f"{table}: {name}: not built: {error}")
            continue
        with rig:
            for mode in MODES:
                cipher = cipher_of(table, mode)
                if not np.array_equal(encrypted(cipher, rig), wanted[mode]):
                    raise SelfTestError(f"{table}: {name}, {mode}: another ciphertext than the CPU's")
                for nbytes in SIZES if table == "skinny" else (CPU_BYTES if kind == "cpu" else MIB,):
                    for where, seconds in times(cipher, rig, nbytes, runs):
                        yield Figure(table, name, mode, nbytes, where, seconds, rig.info.name, commit_hash(), date)
            report(f"{table}: {name}: right, measured")


PUBLISHED = {
    "skinny": "Published, GTX TITAN X: speed-up over a CPU up to 671 in ECB, 765 in CTR, from 16 MB on; 4.5 Gb/s.",
    "kuznyechik": "Published, GTX 1070, without transfers: 30.83 Gb/s, tables in global memory, the best place.",
    "hight": "Published: 46 Gb/s byte-sliced on a GTX 470, 1.48 Gb/s bit-sliced on a CPU.",
}


def markdown(table: str, figures: list[Figure]) -> str:
    """The table in the papers' form."""
    lines = [f"### {table}", "", PUBLISHED[table], ""]
    if table == "skinny":
        lines += ["| mode | bytes | build | where | time | speed-up over one CPU thread | Gb/s |", "| --- " * 7 + "|"]
        base = {(f.mode, f.nbytes): f.seconds for f in figures if f.build == "a block at a time"}
        for f in sorted(figures, key=lambda f: (f.mode, f.nbytes)):
            faster = base.get((f.mode, f.nbytes), float("nan")) / f.seconds
            size = f"{f.mode} | {f.nbytes:,} | {f.build} | {f.where}"
            lines.append(f"| {size} | {1e6 * f.seconds:,.1f} µs | {faster:.2f} | {f.gbit_s:.3f} |")
    else:
        lines += ["| build | where | ECB, Gb/s | CTR, Gb/s |", "| --- " * 4 + "|"]
        for build, where in dict.fromkeys((f.build, f.where) for f in figures):
            rate = {f.mode: f.gbit_s for f in figures if (f.build, f.where) == (build, where)}
            rates = (f"{rate[mode]:.2f}" if mode in rate else "" for mode in MODES)
            lines.append(f"| {build} | {where} | {' | '.join(rates)} |")
    return "\n".join([*lines, ""])


def main() -> None:
    """Runs it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", action="append", help="cpu and the first GPU by default")
    parser.add_argument("--table", action="append", choices=tuple(PUBLISHED))
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    devices = arguments.device or [
        "cpu",
        *[device.id for device in list_devices() if device.id.startswith("cuda")][:1],
    ]
    found: list[Figure] = []
    kept = arguments.output.open("a", encoding="utf-8") if arguments.output else None
    for table in arguments.table or PUBLISHED:
        for device in devices:
            for figure in measure(table, device, arguments.runs, partial(print, file=sys.stderr, flush=True)):
                found.append(figure)
                if kept:  # as they come: a run that is cut off has measured something
                    print(json.dumps(asdict(figure)), file=kept, flush=True)
        print(markdown(table, [f for f in found if f.table == table]), flush=True)
    if kept:
        kept.close()


if __name__ == "__main__":
    main()
