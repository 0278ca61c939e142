"""Measures a plugin's choices on one device: each through the known answers first, then timed on the valid ones.

All of it runs in a worker's process, as in service: a choice that crashes or hangs ends that process and is left out.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import numpy as np
import structlog

from verifier.errors import VerifierError
from verifier.manifest import Choice
from verifier.registry._answers import Group
from verifier.registry._fleet import FleetLike, WorkerLike
from verifier.registry._images import Build, images_for
from verifier.registry._instance import Instance
from verifier.registry._options import RegistryOptions
from verifier.registry._registry import Registry
from verifier.registry._source import PluginSource
from verifier.registry._tuning import Tuned, key_of
from verifier.registry._tuning_search import BASE, Found, Rates, search

__all__ = ["tune"]

_log = structlog.get_logger(__name__)

FIRST_ITEMS = {"cuda": 1 << 15}
FIRST_ITEMS_ELSEWHERE = 64
LEAST_S = 0.05  # a timed run takes so long at least, unless the slot ends first
RUNS = 5
BUILDS_AT_ONCE = 4
TIMEOUT_S = 60.0


def tune(
    source: PluginSource,
    fleet: FleetLike,
    options: RegistryOptions,
    *,
    limit_s: float,
    base: Choice = BASE,
    told: Callable[[str], None] = lambda _: None,
    clock: Callable[[], float] = time.monotonic,
) -> tuple[Tuned, Found]:
    """The fastest choice on the fleet's only device, ready to be kept, and what was tried.

    The tunables of `base` stay as they are. Nothing more is tried after `limit_s`. `told` gets a line for each step.
    Raises what a load raises where the default itself cannot be loaded.
    """
    (worker,) = fleet.workers
    registry = Registry(fleet, options)
    until = clock() + limit_s

    def measure(choice: Choice) -> Rates | None:
        told(choice.text)
        try:
            return _rates(registry, worker, source, choice)
        except VerifierError as error:
            if choice == base:
                raise
            _log.warning("choice left out", plugin=source.label, choice=choice.text, error=str(error))
            return None

    def prepare(choices: Sequence[Choice]) -> None:
        builds = [Build.of(source.manifest, worker.device.target, choice) for choice in choices]
        for begin in range(0, len(builds), BUILDS_AT_ONCE):
            if clock() < until:
                told(f"building {len(builds)}")
                _build(source, builds[begin : begin + BUILDS_AT_ONCE], options)

    try:
        found = search(
            source.manifest,
            worker.device.target,
            measure,
            base=base,
            prepare=prepare,
            in_time=lambda: clock() < until,
        )
    finally:
        registry.close()
    device, target, driver, compiler, digest = key_of(worker.device, source)
    tuned = Tuned(
        device=device,
        target=target,
        driver=driver,
        compiler=compiler,
        plugin=source.label,
        digest=digest,
        variant=found.choice.variant,
        tunables=dict(found.choice.tunables),
        rates=dict(found.rates),
        default_rates=dict(found.default_rates),
        tuned_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    return tuned, found


def _build(source: PluginSource, builds: Sequence[Build], options: RegistryOptions) -> None:
    """Fills the cache. One that does not compile is met again, and left out, when it is loaded."""
    try:
        images_for(source, builds, cache=options.cache, timeout_s=options.build_timeout_s)
    except VerifierError as error:
        _log.warning("build failed", plugin=source.label, error=str(error))


def _rates(registry: Registry, worker: WorkerLike, source: PluginSource, choice: Choice) -> Rates:
    """Items a second of each operation whose known answers have valid items. Raises VerifierError."""
    status = registry.load(source, variant=choice.variant, tunables=dict(choice.tunables), force=True)
    try:
        (instance,) = (i for i in registry.active() if i.label == status.label)
        return {group.key.operation: _rate(worker, instance, group) for group in _timed_groups(instance)}
    finally:
        registry.unload(source.name, wait=True)


def _timed_groups(instance: Instance) -> list[Group]:
    """Of each operation the first group that has valid items, those alone."""
    chosen: dict[int, Group] = {}
    for group in instance.answers:
        valid = group.valid()
        enrols = instance.manifest.operations[group.operation_index].role == "enroll"
        if valid is not None and not enrols:  # repeated cases would write one place twice at a time
            chosen.setdefault(group.operation_index, valid)
    return list(chosen.values())


def _rate(worker: WorkerLike, instance: Instance, group: Group) -> float:
    outputs = sum(output.bytes for output in instance.manifest.operations[group.operation_index].outputs)

    def fits(items: int) -> bool:
        batch, _ = group.tiled(items)
        return worker.fits(items, batch.nbytes + len(group.key.constant), outputs)

    items = FIRST_ITEMS.get(worker.device.kind, FIRST_ITEMS_ELSEWHERE)
    while items > 1 and not fits(items):  # a slot may be small
        items //= 2
    # The first run at a size warms it up.
    while _seconds(worker, instance, group, items) < LEAST_S and fits(2 * items):
        items *= 2
    return items / statistics.median(_seconds(worker, instance, group, items) for _ in range(RUNS))


def _seconds(worker: WorkerLike, instance: Instance, group: Group, items: int) -> float:
    batch, cases = group.tiled(items)
    begun = time.perf_counter()
    (result,) = worker.run(instance.id, group.operation_index, group.key, [batch], None).result(TIMEOUT_S)
    seconds = time.perf_counter() - begun
    wrong = np.flatnonzero(result.codes != group.codes[cases])
    if wrong.size:
        raise VerifierError(f"{instance.label}: item {wrong[0]} of {items} is wrong while it is timed")
    return seconds
