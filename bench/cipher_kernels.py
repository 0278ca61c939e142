"""Ciphers on one device: known answers first, then the rate of every bulk kernel with its data on the device.

    python bench/cipher_kernels.py DEVICE [--plugins aes,sm4] [--variants] [--tunables] [--build 'default*']
                                   [--mib 256] [--build-only] [--json FILE]

The rates are of the stages and of nothing else: no copies. One line a kernel: gigabits a second of payload, at the
median of the runs. Known answers run in batches of 1, 31, 33 and 1,000 items. With --variants or --tunables the
builds of one run are compared: the last lines name the fastest of each operation.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np

from verifier.bench.rig import Rig
from verifier.manifest import Choice, Manifest, Operation, load_manifest
from verifier.model import Bytes, Column
from verifier.registry._answers import parse_answers

ROOT = Path(__file__).resolve().parents[1]
PLUGINS = ("aes", "aria", "hight", "kuznyechik", "skinny", "sm4")
BULK = ("ecb_encrypt", "ecb_decrypt", "ctr", "cbc_decrypt", "gcm_encrypt", "gcm_fold")
# Key bytes: the size that the published figures are for.
KEY_BYTES = {"AES": 16, "ARIA": 16, "HIGHT": 16, "KUZNYECHIK": 32, "SKINNY_64": 16, "SKINNY_128": 32, "SM4": 16}


def check_known_answers(rig: Rig, folder: Path) -> int:
    """Runs vectors.json on the device; returns the number of items compared. Raises SystemExit at the first wrong."""
    compared = 0
    for group in parse_answers(rig.manifest, (folder / rig.manifest.vectors).read_bytes(), folder.name):
        operation = rig.manifest.operations[group.operation_index]
        parameters = dict(zip(operation.parameters, group.key.parameters, strict=True))
        for items in (1, 31, 33, 1000):
            batch, cases = group.tiled(items)
            columns = dict(zip(operation.inputs, batch.inputs, strict=True))
            slot = rig.fill(operation.name, operation.algorithm, columns, items, parameters, group.key.constant)
            rig.run(slot)
            wrong = slot.codes != group.codes[cases]
            for index, (expected, stated) in enumerate(group.outputs):
                wrong |= (slot.output(index) != expected[cases]).any(axis=1) & stated[cases]
            if wrong.any():
                at = int(wrong.argmax())
                sys.exit(f"{operation.id}: {group.ids[cases[at]]} is wrong at item {at} of {items}")
            compared += items
    return compared


def columns_of(operation: Operation, items: int, noise: Bytes) -> dict[str, Column]:
    """Noise for the data, and counters that follow one another for everything else."""
    columns = {}
    for name in operation.inputs:
        width = operation.widths[name]
        if name == "data":
            data = np.resize(noise, items * width)
        elif name == "bytes":
            data = np.full(items, width * 128, "<u4").view(np.uint8)  # 512: whole stripes
        else:
            data = np.zeros((items, width), np.uint8)
            data[:, -4:] = (32 * np.arange(items, dtype=np.uint32)).astype(">u4").view(np.uint8).reshape(items, 4)
            data = data.ravel()
        columns[name] = Column.fixed(name, data, width, items)
    return columns


def builds_of(manifest: Manifest, kind: str, variants: bool, tunables: bool) -> list[Choice]:
    """The default build and the manifest's others for a kind of device: every variant, and with each of them every
    value of every tunable that matters to it, one at a time."""
    names = ["default", *(n for n, v in manifest.variants.items() if variants and kind in v.targets)]
    choices = [manifest.choice(name) for name in names]
    for name in names if tunables else ():
        for tunable, described in manifest.tunables.items():
            if kind in described.targets and (not described.variants or name in described.variants):
                choices += [manifest.choice(name, {tunable: value}) for value in described.values]
    return choices


def print_fastest(records: list[dict[str, Any]]) -> None:
    """The fastest build of every operation, and what the default reached."""
    for plugin, operation in dict.fromkeys((r["plugin"], r["operation"]) for r in records):
        found = [r for r in records if (r["plugin"], r["operation"]) == (plugin, operation)]
        best = max(found, key=lambda r: float(r["gbit_s"]))
        usual = next((r["gbit_s"] for r in found if r["variant"] == "default"), float("nan"))
        print(f"{plugin} {operation:28} fastest: {best['variant']}, {best['gbit_s']:.1f} Gb/s; default {usual:.1f}")


def measure(rig: Rig, operation: Operation, mib: int, runs: int, noise: Bytes) -> dict[str, Any]:
    """The rate of one operation."""
    items = (mib << 20) // operation.widths["data"]
    key = bytes(range(KEY_BYTES[operation.algorithm]))
    slot = rig.fill(operation.name, operation.algorithm, columns_of(operation, items, noise), items, None, key)
    seconds = float(np.median(rig.kernel_times(slot, runs)))
    if not (slot.codes == 1).all():
        sys.exit(f"{operation.id}: not every item was done")
    return {
        "operation": operation.id,
        "bytes": items * operation.widths["data"],
        "seconds": seconds,
        "gbit_s": items * operation.widths["data"] * 8 / seconds / 1e9,
    }


def main() -> None:
    """Runs it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("device")
    parser.add_argument("--plugins", default=",".join(PLUGINS))
    parser.add_argument("--variants", action="store_true", help="also every variant of the manifests")
    parser.add_argument("--tunables", action="store_true", help="also every value of their tunables, one at a time")
    parser.add_argument("--build", default="*", help="of these only those of this name; * and ? match")
    parser.add_argument("--define", action="append", default=[], metavar="NAME=NUMBER", help="of every build")
    parser.add_argument("--mib", type=int, default=256)
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--build-only", action="store_true", help="fill the cache of images")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    extra = {name: int(number) for name, _, number in (text.partition("=") for text in arguments.define)}
    noise = np.random.default_rng(8).integers(0, 256, 1 << 24, np.uint8)
    records = []
    for name in arguments.plugins.split(","):
        folder = ROOT / "plugins" / name
        kind = "cpu" if arguments.device.startswith("cpu") else "gpu"
        builds = builds_of(load_manifest(folder), kind, arguments.variants, arguments.tunables)
        for choice in (build for build in builds if fnmatch(build.text, arguments.build)):
            variant = choice.text
            started = time.perf_counter()
            slot_bytes = (64 << 20) if arguments.build_only else (3 * arguments.mib + 64) << 20
            with Rig(
                arguments.device,
                folder,
                ROOT / "plugins" / "common",
                slot_bytes=slot_bytes,
                choice=choice,
                defines=extra,
            ) as rig:
                built = time.perf_counter() - started
                if arguments.build_only:
                    print(f"{name} {variant}: {built:.1f} s", flush=True)
                    continue
                compared = check_known_answers(rig, folder)
                print(f"{name} {variant}: {compared} known answers right on {rig.info.name}", flush=True)
                for operation in rig.manifest.operations:
                    if operation.name not in BULK:
                        continue
                    record = measure(rig, operation, arguments.mib, arguments.runs, noise)
                    records.append({"plugin": name, "variant": variant, "device": rig.info.name, **record})
                    print(f"  {operation.id:28} {record['gbit_s']:8.1f} Gb/s", flush=True)
    if arguments.variants or arguments.tunables:
        print_fastest(records)
    if arguments.json:
        arguments.json.write_text(json.dumps(records, indent=1))


if __name__ == "__main__":
    main()
