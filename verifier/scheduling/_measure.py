"""Measures devices on a plugin's known answers, so that routing is right from the first request on."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Protocol

import structlog

from verifier.errors import VerifierError
from verifier.model import Batch, BatchKey, Code
from verifier.scheduling._ports import Device, Instance
from verifier.scheduling._scheduler import Scheduler
from verifier.scheduling._work import Clock, units

__all__ = ["measure"]

_LARGE = {"cuda": 16384}
_LARGE_ELSEWHERE = 512
_LARGE_BYTES = 8 << 20
_RUNS = 3  # of each size; the fastest counts
_TIMEOUT_S = 10.0

_log = structlog.get_logger(__name__)


class _Codes(Protocol):
    def tolist(self) -> list[int]: ...


class _Answers(Protocol):
    """Known answers of one operation, as in the registry."""

    @property
    def operation_index(self) -> int: ...
    @property
    def key(self) -> BatchKey: ...
    @property
    def codes(self) -> _Codes: ...
    def tiled(self, items: int) -> tuple[Batch, object]: ...


def measure(
    scheduler: Scheduler, instance: Instance, answers: Iterable[_Answers], clock: Clock = time.monotonic
) -> None:
    """Measures each operation of an instance on each of its devices, with the answers that have most valid cases.
    What enrols is not measured: it is never routed.

    A device that fails here keeps its estimate: serving finds out what is wrong with it.
    """
    best: dict[int, _Answers] = {}
    for group in answers:
        if instance.manifest.operations[group.operation_index].role == "enroll":
            continue
        present = best.get(group.operation_index)
        if present is None or _valid(group) > _valid(present):
            best[group.operation_index] = group
    for device in instance.workers:
        for group in best.values():
            try:
                _measure_one(scheduler, device, instance, group, clock)
            except (VerifierError, TimeoutError) as error:
                _log.warning("not_measured", device=device.device.id, operation=group.key.operation, error=str(error))


def _valid(group: _Answers) -> float:
    codes = group.codes.tolist()
    return codes.count(Code.VALID) / len(codes)


def _measure_one(scheduler: Scheduler, device: Device, instance: Instance, group: _Answers, clock: Clock) -> None:
    cases = len(group.codes.tolist())
    whole, _ = group.tiled(cases)
    fitting = _LARGE_BYTES * cases // max(whole.nbytes, 1)  # known answers may be long messages
    large = max(min(_LARGE.get(device.device.kind, _LARGE_ELSEWHERE), fitting), 2)
    points = []
    for items in (1, large):
        batch, _ = group.tiled(items)
        times = []
        for _ in range(_RUNS):
            begun = clock()
            device.run(instance.id, group.operation_index, group.key, [batch], None).result(_TIMEOUT_S)
            times.append(clock() - begun)
        points.append((units(items, batch.nbytes), min(times)))
    scheduler.measure(device, group.key, points[0], points[1])
    _log.debug("measured", device=device.device.id, operation=group.key.operation, points=points)
