"""The known-answer gate: no instance serves on a device before it gave every known answer there."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any

import numpy as np
import numpy.typing as npt

from verifier.errors import SelfTestError
from verifier.manifest import Manifest
from verifier.model import BatchResult, Code, bits_of
from verifier.registry._answers import Group
from verifier.registry._fleet import WorkerLike

__all__ = ["SIZES", "self_test"]

Array = npt.NDArray[Any]

# Around a warp's edge: less than one, one less, exactly one, one more.
SIZES = (1, 31, 32, 33)
IN_FLIGHT = 2


def self_test(
    worker: WorkerLike,
    instance_id: int,
    manifest: Manifest,
    groups: Sequence[Group],
    *,
    chunk_items: int,
    timeout_s: float,
) -> None:
    """Runs the known answers on a worker: every group whole, and each operation's first group at the sizes above and
    in one full chunk (`chunk_items`) too, its cases repeating. On a device under load every batch waits its turn, so
    sizes are not tried again for each encoding. With `chunk_items` 0 each group runs whole and at 33 items only: what
    a restarted device owes for an image that gave all of them before. Groups that enrol run once and whole: repeated
    cases would write one place twice at a time.

    Raises SelfTestError naming the case, what was expected and what came; BackendError where the device failed.
    """
    chunked: set[int] = set()
    for group in groups:
        enrols = manifest.operations[group.operation_index].role == "enroll"
        sizes = {len(group)} if chunk_items or enrols else {SIZES[-1], len(group)}
        if chunk_items and not enrols and group.operation_index not in chunked:
            sizes |= {*SIZES, _chunk(worker, manifest, group, chunk_items)}
            chunked.add(group.operation_index)
        # Two overlap on the device, as batches in service do; more would take the slots of those who are served.
        waiting: deque[tuple[Future[list[BatchResult]], Array]] = deque()
        for size in sorted(sizes):
            batch, cases = group.tiled(size)
            waiting.append((worker.run(instance_id, group.operation_index, group.key, [batch], None), cases))
            if len(waiting) == IN_FLIGHT:
                future, cases = waiting.popleft()
                _check(_wait(future, timeout_s, worker), group, cases, manifest, worker)
        for future, cases in waiting:
            _check(_wait(future, timeout_s, worker), group, cases, manifest, worker)


def _chunk(worker: WorkerLike, manifest: Manifest, group: Group, items: int) -> int:
    """`items`, or less where long cases would not fit a slot."""
    outputs = sum(output.bytes for output in manifest.operations[group.operation_index].outputs)
    while items > len(group):
        repeats = -(-items // len(group))
        nbytes = len(group.key.constant) + repeats * sum(column.nbytes + 4 for column in group.inputs)
        if worker.fits(items, nbytes, outputs):
            return items
        items //= 2
    return len(group)


def _wait(future: Future[list[BatchResult]], timeout_s: float, worker: WorkerLike) -> BatchResult:
    try:
        (result,) = future.result(timeout_s)
    except FutureTimeoutError:
        raise SelfTestError(f"{worker.device.id}: a known answer took more than {timeout_s:g} s") from None
    return result


def _check(
    result: BatchResult, group: Group, cases: npt.NDArray[np.intp], manifest: Manifest, worker: WorkerLike
) -> None:
    items = len(cases)
    operation = manifest.operations[group.operation_index]
    where = f"{manifest.label} on {worker.device.id}: {operation.id}"
    if result.items != items or result.codes.shape != (items,) or len(result.outputs) != len(group.outputs):
        raise SelfTestError(
            f"{where}: the result's shape is wrong: {items} items were sent, {result.items} came back"
        )

    def compare(what: str, expected: Array, got: Array, stated: Array, show: Callable[[Any], str]) -> None:
        wrong = stated & (expected != got).reshape(items, -1).any(axis=1)
        if wrong.any():
            item = int(wrong.argmax())
            raise SelfTestError(
                f"{where}: case {group.ids[cases[item]]} (item {item} of {items}): {what}: "
                f"expected {show(expected[item])}, got {show(got[item])}"
            )

    every = np.ones(items, np.bool_)
    codes = group.codes[cases]
    compare("code", codes, result.codes, every, _code_name)
    compare("bit of valid", codes == Code.VALID, bits_of(result.valid, items), every, str)
    compare("bit of decided", every, bits_of(result.decided, items), every, str)
    for output, (expected, stated), got in zip(operation.outputs, group.outputs, result.outputs, strict=True):
        compare(output.name, expected[cases], got, stated[cases], lambda value: value.tobytes().hex())


def _code_name(value: int) -> str:
    return Code(value).name if value in set(Code) else str(value)
