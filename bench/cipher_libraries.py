"""Ciphers on one CPU core beside the libraries that are installed here, in one run.

    python bench/cipher_libraries.py [--case 'cipher-hight*'] [--mib 64] [--runs 5] [--output FILE]

Runs take turns, ours and every library's, and a run's time is the processor time of its thread, so that what else the
machine does counts little. Rates are medians; a ratio is the median of the turns' ratios. Every library's ciphertext
must equal ours. `of goal` compares with what the plugin is to reach: so many times a certain library. skinny-c, which
no package manager has, is not run: 0.068 GB/s is what it reached on a core of another machine (AMD EPYC, Zen 4).
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from verifier.bench.cipher_cases import CIPHERS, Cipher, fill_cipher
from verifier.bench.cipher_peers import CipherPeer, cipher_peers
from verifier.bench.records import Record, append_records
from verifier.bench.rig import Rig
from verifier.errors import SelfTestError
from verifier.model import Bytes

ROOT = Path(__file__).resolve().parents[1]
OURS = "verifier"
# Which library, and how many times its rate.
GOALS = {
    "HIGHT": ("cryptopp", 10.0),
    "KUZNYECHIK": ("openssl", 3.0),
    "ARIA": ("openssl", 3.0),
    "SM4": ("libgcrypt", 1.0),
    "AES": ("openssl", 0.9),
}
SKINNY_C_GB_S = 0.068


def first_counter(block: int) -> bytes:
    """A first counter that every library takes: GOST's is half a block and zeros."""
    return bytes(range(1, 1 + block // 2)) + bytes(block // 2)


def measure(cipher: Cipher, rig: Rig, mib: int, runs: int) -> dict[str, list[float]]:
    """Processor seconds of each run of ours and of every library. Raises SelfTestError where two disagree."""
    data: Bytes = np.random.default_rng(8).integers(0, 256, mib << 20, np.uint8)
    key, iv = bytes(range(cipher.key_bytes)), first_counter(cipher.block_bytes)
    slot = fill_cipher(cipher, rig, cipher.operation, data.reshape(-1, cipher.stripe_bytes), key, iv)
    rig.run(slot)
    mode = "CTR" if cipher.operation == "ctr" else "ECB"
    work: dict[str, Callable[[], object]] = {OURS: lambda: rig.run(slot)}
    # The same memory for all: its pages are small, an array's may be large ones.
    data = rig.memory[slot.job.layout.inputs[0].data :][: data.size]
    out = rig.memory[-data.size :]
    for name, peer in cipher_peers(cipher.algorithm, mode, cipher.key_bytes):
        work[name] = peer_run(peer, key, iv, data, out)
        work[name]()
        if not np.array_equal(out, slot.output(0).reshape(-1)):
            raise SelfTestError(f"{cipher.name}: {name} gives another ciphertext")
    seconds: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(runs):
        for name, run in work.items():
            started = time.thread_time()
            run()
            seconds[name].append(time.thread_time() - started)
    return seconds


def peer_run(peer: CipherPeer, key: bytes, iv: bytes, data: Bytes, out: Bytes) -> Callable[[], object]:
    """The call, bound to its arguments."""
    return lambda: peer(key, iv, data, out)


def row(cipher: Cipher, seconds: dict[str, list[float]], nbytes: int) -> list[str]:
    """A line of the table."""
    ours = seconds[OURS]
    rate = nbytes / statistics.median(ours) / 1e9
    others = [
        f"{name} {nbytes / statistics.median(theirs) / 1e9:.3f} (x {ratio(ours, theirs):.2f})"
        for name, theirs in seconds.items()
        if name != OURS
    ]
    if cipher.algorithm == "SKINNY_128":
        others.append(f"skinny-c {SKINNY_C_GB_S} elsewhere (x {rate / SKINNY_C_GB_S:.1f})")
        goal = f"{rate / SKINNY_C_GB_S / 10:.0%}"
    else:
        library, times = GOALS[cipher.algorithm]
        goal = f"{ratio(ours, seconds[library]) / times:.0%}" if library in seconds else f"{library} is missing"
    return [cipher.name, f"{rate:.3f}", "; ".join(others), goal]


def ratio(ours: list[float], theirs: list[float]) -> float:
    """How many times as fast as they we are."""
    return statistics.median(b / a for a, b in zip(ours, theirs, strict=True))


def main() -> None:
    """Runs it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", default="*")
    parser.add_argument("--mib", type=int, default=64)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    chosen = [c for c in CIPHERS if fnmatch(c.name, arguments.case) and "gcm" not in c.operation]
    if not chosen:
        sys.exit(f"no case is named {arguments.case}; there are {', '.join(c.name for c in CIPHERS)}")
    table = Table("case", "GB/s", "libraries, GB/s", "of goal", title="One core")
    records = []
    for cipher in chosen:
        folder = ROOT / "plugins" / cipher.plugin
        slot_bytes = (3 * arguments.mib + 16) << 20
        with Rig("cpu", folder, ROOT / "plugins" / "common", slot_bytes=slot_bytes, threads=1) as rig:
            seconds = measure(cipher, rig, arguments.mib, arguments.runs)
            for name, times in seconds.items():
                suffix = "" if name == OURS else f"-{name}"
                records.append(
                    Record.of_times(
                        f"{cipher.name}-cpu{suffix}",
                        rig.info,
                        (arguments.mib << 20) // cipher.stripe_bytes,
                        times,
                        8.0 * (arguments.mib << 20),
                        unit="bits/s",
                        includes=("key schedule",),
                        settings={"threads": 1},
                    )
                )
        table.add_row(*row(cipher, seconds, arguments.mib << 20))
    Console(width=140).print(table)
    if arguments.output:
        append_records(arguments.output, records)


if __name__ == "__main__":
    main()
