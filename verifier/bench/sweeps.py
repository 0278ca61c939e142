"""One case at many settings: batch sizes, streams, threads of a block, variants.

Records keep the case's name; the point stands in their settings under the axis: {"streams": 4}, {"variant": "paper"}.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from verifier.bench.cases import Case, check_codes
from verifier.bench.records import Record
from verifier.bench.rig import Rig, columns_of
from verifier.bench.signatures import SignatureSet, make_signatures
from verifier.manifest import DEFAULT, Choice, Manifest, kind_of, load_manifest
from verifier.workers import WorkerOptions

__all__ = ["AXES", "Axis", "Point", "points", "sweep_records"]

Axis = Literal["batch", "streams", "threads", "variants"]
AXES: tuple[Axis, ...] = ("batch", "streams", "threads", "variants")
STREAMS = (1, 2, 4, 8)


@dataclass(frozen=True)
class Point:
    """What is measured: a batch size, with a choice and a worker's options. `setting` says it in the record."""

    setting: tuple[str, str | int]
    batch: int
    choice: Choice = field(default_factory=Choice)
    streams: int | None = None


def points(axis: Axis, manifest: Manifest, target: str, batch: int) -> list[Point]:
    """The points of an axis; tunables with THREADS in their names count as threads of a block."""
    kind = kind_of(target)
    if axis == "batch":
        return [Point(("batch", 1 << k), 1 << k) for k in range(batch.bit_length())]
    if axis == "streams":
        return [Point(("streams", n), batch, streams=n) for n in STREAMS] if kind == "gpu" else []
    if axis == "threads":
        return [
            Point(("block-threads", f"{name}={value}"), batch, manifest.choice("", {name: value}))
            for name, tunable in manifest.tunables.items()
            if "THREADS" in name and kind in tunable.targets
            for value in tunable.values
        ]
    names = [name for name, variant in manifest.variants.items() if kind in variant.targets]
    return [Point(("variant", name), batch, manifest.choice(name)) for name in (DEFAULT, *names)] if names else []


def sweep_records(
    case: Case, axis: Axis, device: str, target: str, plugins: Path, batch: int, runs: int, **driver_options: Any
) -> Iterator[Record]:
    """Measures a verification at every point of an axis. Answers are checked at each."""
    made = make_signatures(case.verifies, min(batch, 1 << 16), fault_share=0.01)
    with ExitStack() as held:
        opened: tuple[Choice, int | None] | None = None
        for point in points(axis, load_manifest(plugins / case.plugin), target, batch):
            if opened != (point.choice, point.streams):
                held.close()
                options = WorkerOptions() if point.streams is None else WorkerOptions(streams=point.streams)
                rig = held.enter_context(
                    Rig(
                        device,
                        plugins / case.plugin,
                        plugins / "common",
                        slot_bytes=1 << 30,
                        choice=point.choice,
                        options=options,
                        **driver_options,
                    )
                )
                opened = (point.choice, point.streams)
            yield _measure(case, rig, made, point, runs)


def _measure(case: Case, rig: Rig, made: SignatureSet, point: Point, runs: int) -> Record:
    tiled = made.tiled(point.batch)
    slot = rig.fill("verify", case.verifies, columns_of(tiled), point.batch)
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
