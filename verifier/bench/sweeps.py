"""One case at many settings: batch sizes, streams, threads of a block, variants, keys' encodings, bitmaps' memory.

Records keep the case's name; the point stands in their settings under the axis: {"streams": 4}, {"variant": "paper"}.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from verifier.bench.cases import Case, check_codes
from verifier.bench.records import Record
from verifier.bench.rig import Rig, columns_of
from verifier.bench.signatures import FAULTS, SignatureSet, make_signatures
from verifier.manifest import DEFAULT, Choice, Manifest, Tunable, kind_of, load_manifest
from verifier.model import Column
from verifier.registry import usable_variants
from verifier.workers import WorkerOptions
from verifier.workers._options import BitmapMemory

__all__ = ["AXES", "Axis", "Point", "points", "sweep_records"]

Axis = Literal["batch", "streams", "threads", "variants", "keys", "bitmaps"]
AXES: tuple[Axis, ...] = ("batch", "streams", "threads", "variants", "keys", "bitmaps")
STREAMS = (1, 2, 4, 8)
KEYS = ("RAW_XY", "SEC1_COMPRESSED")  # 64 bytes over the link, or 33 and a root on the device
BITMAPS: tuple[BitmapMemory, ...] = ("managed", "pinned", "device")


@dataclass(frozen=True)
class Point:
    """What is measured: a batch size, with a choice, a worker's options and an encoding of keys. `setting` says in
    the record what is special."""

    setting: tuple[str, str | int]
    batch: int
    choice: Choice = field(default_factory=Choice)
    options: WorkerOptions = field(default_factory=WorkerOptions)
    keys: str = KEYS[0]


def points(axis: Axis, manifest: Manifest, target: str, batch: int) -> list[Point]:
    """The points of an axis; tunables with THREADS in their names count as threads of a block."""
    kind = kind_of(target)
    if axis == "batch":
        return [Point(("batch", 1 << k), 1 << k) for k in range(batch.bit_length())]
    if axis == "streams":
        many = [Point(("streams", n), batch, options=WorkerOptions(streams=n)) for n in STREAMS]
        return many if kind == "gpu" else []
    if axis == "keys":
        return [Point(("keys", name), batch, keys=name) for name in KEYS]
    if axis == "bitmaps":
        places = [Point(("bitmaps", m), batch, options=WorkerOptions(bitmap_memory=m)) for m in BITMAPS]
        return places if kind == "gpu" else []
    if axis == "threads":
        return [
            Point(("block-threads", f"{name}={value}"), batch, manifest.choice(_with(tunable), {name: value}))
            for name, tunable in manifest.tunables.items()
            if "THREADS" in name and kind in tunable.targets
            for value in tunable.values
        ]
    names = usable_variants(manifest, target)
    return [Point(("variant", name), batch, manifest.choice(name)) for name in (DEFAULT, *names)] if names else []


def _with(tunable: Tunable) -> str:
    """A variant that the tunable matters with."""
    return tunable.variants[0] if tunable.variants else DEFAULT


def sweep_records(
    case: Case, axis: Axis, device: str, target: str, plugins: Path, batch: int, runs: int, **driver_options: Any
) -> Iterator[Record]:
    """Measures a verification at every point of an axis. Answers are checked at each."""
    # A compressed key has no y that could be wrong.
    faults = [name for name in FAULTS if axis != "keys" or name != "key off the curve"]
    made = make_signatures(case.verifies, min(batch, 1 << 16), fault_share=0.01, faults=faults)
    with ExitStack() as held:
        opened: tuple[Choice, WorkerOptions] | None = None
        for point in points(axis, load_manifest(plugins / case.plugin), target, batch):
            if opened != (point.choice, point.options):
                held.close()
                rig = held.enter_context(
                    Rig(
                        device,
                        plugins / case.plugin,
                        plugins / "common",
                        slot_bytes=1 << 30,
                        choice=point.choice,
                        options=point.options,
                        **driver_options,
                    )
                )
                opened = (point.choice, point.options)
            yield _measure(case, rig, made, point, runs)


def _measure(case: Case, rig: Rig, made: SignatureSet, point: Point, runs: int) -> Record:
    tiled = made.tiled(point.batch)
    columns = columns_of(tiled)
    if point.keys != KEYS[0]:
        columns["key"] = compressed_keys(tiled)
    slot = rig.fill("verify", case.verifies, columns, point.batch, {"key_encoding": point.keys})
    rig.run(slot)
    check_codes(slot, tiled, f"{case.name}, {point.setting[0]} {point.setting[1]}")
    return Record.of_times(
        f"{case.name}-unknown{'-cpu' if rig.info.unified else ''}",
        rig.info,
        point.batch,
        rig.times(slot, runs),
        point.batch,
        includes=("parsing",) if rig.info.unified else ("transfer", "parsing"),
        settings=dict([point.setting]),
    )


def compressed_keys(signatures: SignatureSet) -> Column:
    """The keys as SEC1_COMPRESSED, 33 bytes each: 2 or 3 by y's parity, then x."""
    prefix = 2 + (signatures.keys[:, 63:] & 1)
    keys = np.concatenate([prefix, signatures.keys[:, :32]], axis=1).astype(np.uint8)
    return Column.fixed("key", keys.ravel(), 33, signatures.items)
