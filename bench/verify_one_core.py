"""Verification on one core: unknown keys, keys with tables by their window, and items made to be slow.

    python bench/verify_one_core.py [--algorithm SM2] [--items 8192] [--keys 64] [--runs 3]

Thousands of items a second of the thread's processor time, the best of the runs. Items are made to be slow where they
leave the fast formulas: SM2's with t = n - 6, which only its signer can choose. Every answer is compared before
anything is timed.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "plugins")]

from _sm2_cases import N, chosen  # noqa: E402

from verifier.bench.enrolled import enroll_keys, enrolled_columns  # noqa: E402
from verifier.bench.rig import Rig, Slot, columns_of  # noqa: E402
from verifier.bench.signatures import make_signatures  # noqa: E402
from verifier.manifest import load_manifest  # noqa: E402
from verifier.model import Bytes, Code, Column  # noqa: E402

PLUGINS = {"SM2": "sm2", "ECDSA_P256": "ecdsa", "ECDSA_SECP256K1": "ecdsa"}
WINDOWS = (4, 5, 6, 8)


def open_rig(algorithm: str, tunables: Mapping[str, int]) -> Rig:
    """One thread of the CPU with this build of the algorithm's plugin."""
    folder = ROOT / "plugins" / PLUGINS[algorithm]
    choice = load_manifest(folder).choice("", tunables)
    return Rig("cpu", folder, ROOT / "plugins" / "common", slot_bytes=64 << 20, choice=choice, threads=1)


def rate(rig: Rig, slot: Slot, codes: Bytes, runs: int) -> float:
    """Items a second, where the answers are these codes."""
    rig.run(slot)
    if not np.array_equal(slot.codes, codes):
        sys.exit("wrong answers")
    seconds = []
    for _ in range(runs):
        started = time.thread_time()
        rig.run(slot)
        seconds.append(time.thread_time() - started)
    return slot.items / min(seconds)


def slow_columns(items: int) -> dict[str, Column]:
    """Valid signatures of SM2 that no fast formula decides, sixteen over and over."""
    made = [chosen("slow", 0xD1CE, 77 + place, N - 6) for place in range(16)]
    parts = {
        "input": (32, [item.digest for item in made]),
        "signature": (64, [item.signature for item in made]),
        "key": (64, [item.key_bytes for item in made]),
    }
    return {
        name: Column.fixed(name, np.resize(np.frombuffer(b"".join(rows), np.uint8), items * width), width, items)
        for name, (width, rows) in parts.items()
    }


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--algorithm", action="append", choices=tuple(PLUGINS), help="all by default")
    parser.add_argument("--items", type=int, default=8192)
    parser.add_argument("--keys", type=int, default=64)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    for algorithm in options.algorithm or PLUGINS:
        made = make_signatures(algorithm, options.items, keys=options.keys)
        with open_rig(algorithm, {}) as rig:
            usual = rate(rig, rig.fill("verify", algorithm, columns_of(made), made.items), made.codes, options.runs)
            print(f"{algorithm} unknown keys: {usual / 1e3:.1f} k/s", flush=True)
            if algorithm == "SM2":
                slot = rig.fill("verify", algorithm, slow_columns(made.items), made.items)
                slow = rate(rig, slot, np.full(made.items, Code.VALID, np.uint8), options.runs)
                print(f"{algorithm} made to be slow: {slow / 1e3:.1f} k/s, 1/{usual / slow:.2f}", flush=True)
        for window in WINDOWS:
            with open_rig(algorithm, {"WINDOW_KEY_CPU": window}) as rig:
                columns = enrolled_columns(made, enroll_keys(rig, made))
                slot = rig.fill("verify_enrolled", algorithm, columns, made.items)
                enrolled = rate(rig, slot, made.codes, options.runs)
            print(f"{algorithm} window {window}: {enrolled / 1e3:.1f} k/s", flush=True)


if __name__ == "__main__":
    main()
