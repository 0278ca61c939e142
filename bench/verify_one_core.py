"""Verification on one core: unknown keys, keys with tables by their window, and items made to be slow.

    python bench/verify_one_core.py [--algorithm SM2] [--variant crypto_mb] [--tunable ITEM_LANES=1] [--runs 3]
    python bench/verify_one_core.py --libraries [--output bench/results/cpu-providers.jsonl]

Thousands of items a second of the thread's processor time, the best of the runs. Items are made to be slow where they
leave the fast formulas: SM2's with t = n - 6, which only its signer can choose. Every answer is compared before
anything is timed.

With --libraries: unknown keys only, by the plugin's own source, with the library that it names for CPUs, and by other
libraries, in turns, so that what else the machine does meets all of them. SM2 of digests and of messages, secp256k1
with raw and with compressed keys, and recovered ones.
"""

from __future__ import annotations

import argparse
import functools
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from verifier.bench.enrolled import enroll_keys, enrolled_columns  # noqa: E402
from verifier.bench.peers import coincurve_recover, peers_for  # noqa: E402
from verifier.bench.records import Record, append_records, load_average  # noqa: E402
from verifier.bench.rig import Rig, Slot, columns_of  # noqa: E402
from verifier.bench.signatures import make_crafted, make_signatures, sm2_hash  # noqa: E402
from verifier.cli._plugin_tune import assignments  # noqa: E402
from verifier.drivers.build import host_target  # noqa: E402
from verifier.manifest import load_manifest  # noqa: E402
from verifier.model import Bytes, Column  # noqa: E402
from verifier.registry import offers  # noqa: E402
from verifier.schemes import DEFAULT_SM2_USER_ID  # noqa: E402

PLUGINS = {"SM2": "sm2", "ECDSA_P256": "ecdsa", "ECDSA_SECP256K1": "ecdsa"}
CASES = {"SM2": "sm2", "ECDSA_P256": "p256", "ECDSA_SECP256K1": "secp256k1"}
WINDOWS = (4, 5, 6, 8)
PEER_ITEMS = {"gmssl": 30, "openssl": 1000}


def open_rig(algorithm: str, variant: str, tunables: Mapping[str, int | str]) -> Rig:
    """One thread of the CPU with this build of the algorithm's plugin."""
    folder = ROOT / "plugins" / PLUGINS[algorithm]
    choice = load_manifest(folder).choice(variant, tunables)
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


Contender = tuple[str, int, Callable[[], object], dict[str, str]]  # case, items, a run, settings


def beside_libraries(algorithm: str, messages: bool, items: int, runs: int) -> Iterator[Record]:
    """The source, the source with a provider, and every peer: a record each."""
    made = make_signatures(algorithm, items, hashed=sm2_hash if messages else None)
    name = f"{CASES[algorithm]}-verify-{'messages' if messages else 'unknown'}-cpu"
    parameters = {"input_kind": "MESSAGE"} if messages else {}
    constant = DEFAULT_SM2_USER_ID if messages else b""
    folder = ROOT / "plugins" / PLUGINS[algorithm]
    manifest = load_manifest(folder)
    contenders: list[Contender] = []
    with ExitStack() as opened:
        offered = [o for o in offers(manifest, host_target()) if o.library and algorithm != "ECDSA_SECP256K1"]
        for offer in (None, *offered):
            choice = manifest.choice(offer.variant if offer else "")
            rig = Rig("cpu", folder, ROOT / "plugins" / "common", slot_bytes=64 << 20, choice=choice, threads=1)
            opened.enter_context(rig)
            slot = rig.fill("verify", algorithm, columns_of(made), items, parameters, constant)
            rig.run(slot)
            if not np.array_equal(slot.codes, made.codes):
                sys.exit("wrong answers")
            named = {"provider": offer.variant, "library": offer.library.label} if offer and offer.library else {}
            contenders.append((name, items, functools.partial(rig.run, slot), named))
        for peer_name, peer in peers_for(algorithm, messages=messages):
            part = made.part(0, min(items, PEER_ITEMS.get(peer_name, items)))
            if peer(part) != part.items:
                sys.exit(f"{peer_name}: wrong answers")
            contenders.append((f"{name}-{peer_name}", part.items, functools.partial(peer, part), {}))
        yield from in_turns(contenders, rig, runs, ("parsing", "hashing") if messages else ("parsing",))


def points_beside_libraries(items: int, runs: int) -> Iterator[Record]:
    """What needs a root for each item on secp256k1: compressed keys, and keys that are recovered."""
    made = make_signatures("ECDSA_SECP256K1", items)
    points = np.hstack([made.keys[:, 63:] & 1 | 2, made.keys[:, :32]])
    columns = columns_of(made)
    compressed = {**columns, "key": Column.fixed("key", points.ravel(), 33, items)}
    signatures = np.hstack([made.signatures, made.recovery[:, None]])
    signed = {"input": columns["input"], "signature": Column.fixed("signature", signatures.ravel(), 65, items)}
    peer = coincurve_recover()
    for case, operation, given, parameters in (
        ("secp256k1-verify-compressed-cpu", "verify", compressed, {"key_encoding": "SEC1_COMPRESSED"}),
        ("secp256k1-recover-cpu", "recover", signed, {}),
    ):
        with open_rig("ECDSA_SECP256K1", "", {}) as rig:
            slot = rig.fill(operation, "ECDSA_SECP256K1", given, items, parameters)
            rig.run(slot)
            if not np.array_equal(slot.codes, made.codes):
                sys.exit("wrong answers")
            contenders: list[Contender] = [(case, items, functools.partial(rig.run, slot), {})]
            if operation == "recover" and peer is not None:
                if peer(made) != items:
                    sys.exit("coincurve: wrong answers")
                contenders.append((f"{case}-coincurve", items, functools.partial(peer, made), {}))
            yield from in_turns(contenders, rig, runs, ("parsing",))


def in_turns(contenders: Sequence[Contender], rig: Rig, runs: int, includes: Sequence[str]) -> Iterator[Record]:
    """A record each, of `runs` turns. Rates are of processor time; medians and spreads as in all records."""
    seconds: list[list[float]] = [[] for _ in contenders]
    for _ in range(runs):
        for (_, _, run, _), times in zip(contenders, seconds, strict=True):
            started = time.thread_time()
            run()
            times.append(time.thread_time() - started)
    for (case, count, _, named), times in zip(contenders, seconds, strict=True):
        settings = {**named, "threads": 1, "clock": "thread", **load_average()}
        yield Record.of_times(case, rig.info, count, times, count, includes=includes, settings=settings)


def every_record(algorithm: str, items: int, runs: int) -> Iterator[Record]:
    """Of one algorithm, with --libraries."""
    yield from beside_libraries(algorithm, False, items, runs)
    if algorithm == "SM2":
        yield from beside_libraries(algorithm, True, items, runs)
    if algorithm == "ECDSA_SECP256K1":
        yield from points_beside_libraries(items, runs)


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--algorithm", action="append", choices=tuple(PLUGINS), help="all by default")
    parser.add_argument("--items", type=int, default=8192)
    parser.add_argument("--keys", type=int, default=64)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--variant", default="", help="of the plugin, such as crypto_mb")
    parser.add_argument(
        "--tunable", action="append", default=[], help="NAME=VALUE of the plugin, such as ITEM_LANES=1"
    )
    parser.add_argument("--libraries", action="store_true", help="beside libraries, and with providers")
    parser.add_argument("--output", type=Path, help="of --libraries: adds the records to this file")
    options = parser.parse_args()
    if options.libraries:
        for algorithm in options.algorithm or PLUGINS:
            for record in every_record(algorithm, options.items, options.runs):
                provider = str(record.settings.get("provider", ""))
                print(f"{record.case} {provider}: {record.rate / 1e3:.1f} k/s, {record.spread:.0%}", flush=True)
                if options.output:
                    append_records(options.output, [record])
        return
    tunables = assignments(options.tunable)
    for algorithm in options.algorithm or PLUGINS:
        made = make_signatures(algorithm, options.items, keys=options.keys)
        with open_rig(algorithm, options.variant, tunables) as rig:
            usual = rate(rig, rig.fill("verify", algorithm, columns_of(made), made.items), made.codes, options.runs)
            print(f"{algorithm} unknown keys: {usual / 1e3:.1f} k/s", flush=True)
            if algorithm == "SM2":
                crafted = make_crafted(min(made.items, 1 << 12)).tiled(made.items)
                slot = rig.fill("verify", algorithm, columns_of(crafted), crafted.items)
                slow = rate(rig, slot, crafted.codes, options.runs)
                print(f"{algorithm} made to be slow: {slow / 1e3:.1f} k/s, 1/{usual / slow:.2f}", flush=True)
        for window in WINDOWS:
            with open_rig(algorithm, options.variant, {**tunables, "WINDOW_KEY_CPU": window}) as rig:
                columns = enrolled_columns(made, enroll_keys(rig, made))
                slot = rig.fill("verify_enrolled", algorithm, columns, made.items)
                enrolled = rate(rig, slot, made.codes, options.runs)
            print(f"{algorithm} window {window}: {enrolled / 1e3:.1f} k/s", flush=True)


if __name__ == "__main__":
    main()
