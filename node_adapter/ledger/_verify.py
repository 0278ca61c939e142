"""A dataset of ledger files, row group by row group, on this machine's devices or over a cluster."""

from __future__ import annotations

import os
import queue
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pyarrow as pa

from node_adapter.errors import LedgerError
from node_adapter.ledger._calls import Call
from node_adapter.ledger._checkpoint import Checkpoint
from node_adapter.ledger._engine import AT_ONCE, Engine, plugin_digests
from node_adapter.ledger._files import file_digest
from node_adapter.ledger._groups import open_ledger, verify_group
from node_adapter.ledger._outcome import Outcome, first_line
from node_adapter.ledger._readers import verify_with_readers
from node_adapter.ledger._schema import broken_off
from verifier.core import devices_in_use

__all__ = ["Group", "Options", "Plan", "plan_dataset", "verify_dataset"]

_CORES_A_PROCESS, _MOST_PROCESSES = 4, 8
_READ_BYTES = 1 << 30  # of row groups that are in memory at the same time, where there are more than a few

Stamp = tuple[int, int]  # bytes, and nanoseconds of the last change


@dataclass(frozen=True, slots=True)
class Group:
    """One row group to verify."""

    path: Path
    name: str  # of the file in the report: relative to the dataset
    digest: str
    row_group: int
    rows: int
    nbytes: int  # of its columns in memory
    calls: tuple[Call, ...]
    stamp: Stamp  # of the file when its digest was taken


_Done = list[tuple[Group, Outcome]]  # what ended meanwhile


@dataclass(frozen=True, slots=True)
class Plan:
    """What a dataset holds, and the files of it that cannot be read or are not whole."""

    groups: tuple[Group, ...]
    unreadable: tuple[Outcome, ...]

    @property
    def rows(self) -> int:
        """Rows in all groups."""
        return sum(group.rows for group in self.groups)

    @property
    def calls(self) -> list[Call]:
        """The calls of all files."""
        return list(dict.fromkeys(call for group in self.groups for call in group.calls))


@dataclass(frozen=True, slots=True)
class Options:
    """How to verify. `ray` is a cluster's address, "local" for one of its own, or None for this machine alone.

    `devices` are as in the setting devices.use, for this machine, and `processes` read for them; with 1 this process
    does. None: by devices and cores. A cluster's actors each take one of the cluster's GPUs, or `cpus` CPUs where it
    has none.
    """

    devices: tuple[str, ...] = ("auto",)
    ray: str | None = None
    cpus: int = 1
    processes: int | None = None


def plan_dataset(dataset: Path, on_file: Callable[[Path], None] = lambda _: None) -> Plan:
    """The row groups of a file, or of all *.parquet files under a folder, in the order of their names.

    Reads every file once for its digest, several at a time; `on_file` is called after each. Raises LedgerError where
    there is none.
    """
    paths = sorted(dataset.rglob("*.parquet")) if dataset.is_dir() else [dataset]
    if not paths:
        raise LedgerError(str(dataset), "no *.parquet file is in this folder; verifier ledger export makes them")
    groups: list[Group] = []
    unreadable: list[Outcome] = []
    with ThreadPoolExecutor(len(os.sched_getaffinity(0)), "ledger-plan") as pool:
        for path, found in zip(paths, pool.map(partial(_plan_file, dataset), paths), strict=True):
            of_file, missing = found
            groups += of_file
            unreadable += missing
            on_file(path)
    return Plan(tuple(groups), tuple(unreadable))


def _plan_file(dataset: Path, path: Path) -> tuple[list[Group], list[Outcome]]:
    """Its row groups; and what says that it cannot be read, or that it is not all of its source."""
    name = str(path.relative_to(dataset)) if dataset.is_dir() else path.name
    digest = ""
    try:
        stamp = _stamp(path)
        digest = file_digest(path)
        file, calls = open_ledger(path)
        with file:
            parts = [file.metadata.row_group(place) for place in range(file.num_row_groups)]
            sizes = [(part.num_rows, part.total_byte_size) for part in parts]
            broken = broken_off(file.metadata.metadata or {})
    except (OSError, pa.ArrowException, LedgerError) as error:
        return [], [Outcome(name, digest, -1, error=first_line(error))]
    problem = f"its source broke off, and what follows is missing: {broken}"
    return (
        [Group(path, name, digest, place, *size, tuple(calls), stamp) for place, size in enumerate(sizes)],
        [Outcome(name, digest, -1, error=problem)] if broken else [],
    )


def _stamp(path: Path) -> Stamp:
    found = path.stat()
    return found.st_size, found.st_mtime_ns


def verify_dataset(
    plan: Plan,
    checkpoint: Checkpoint,
    options: Options | None = None,
    on_outcome: Callable[[Group, Outcome], None] = lambda _, __: None,
) -> list[Outcome]:
    """The outcome of every row group and of every unreadable file, in the order of files and row groups.

    Those in the checkpoint are not verified again, and every new one is written to it before `on_outcome` hears of
    it. Raises what starting the devices or the cluster raises.
    """
    options = options or Options()
    found = {(outcome.path, outcome.row_group): outcome for outcome in plan.unreadable}
    plugins = plugin_digests(plan.calls)
    left = []
    for group in plan.groups:
        if known := _known(group, checkpoint, plugins):
            found[group.name, group.row_group] = known
            on_outcome(group, known)
        else:
            left.append(group)
    run = _on_cluster if options.ray else _here
    for done in run(left, sorted(plugins), options) if left else ():
        done = [(group, _of_the_digest(group, outcome)) for group, outcome in done]
        checkpoint.add(*(outcome for _, outcome in done))
        for group, outcome in done:
            found[group.name, group.row_group] = outcome
            on_outcome(group, outcome)
    return [found[key] for key in sorted(found)]


def _here(groups: Sequence[Group], plugins: Sequence[str], options: Options) -> Iterator[_Done]:
    devices = devices_in_use(options.devices)
    processes = options.processes or usual_processes(devices)
    if processes == 1:
        return _by_itself(groups, plugins, devices)
    return verify_with_readers(groups, plugins, devices, processes)


def usual_processes(devices: Sequence[str]) -> int:
    """How many processes read unless told otherwise: several where there is a GPU, and cores for them."""
    if not any(device.startswith("cuda") for device in devices):
        return 1
    return min(max(len(os.sched_getaffinity(0)) // _CORES_A_PROCESS, 1), _MOST_PROCESSES)


def _by_itself(groups: Sequence[Group], plugins: Sequence[str], devices: Sequence[str]) -> Iterator[_Done]:
    done: queue.SimpleQueue[tuple[Group, Future[Outcome]]] = queue.SimpleQueue()
    with ExitStack() as resources:
        engine = resources.enter_context(Engine(devices, plugins))
        pool = resources.enter_context(ThreadPoolExecutor(_at_once(groups, engine.devices), "ledger"))
        resources.callback(pool.shutdown, wait=False, cancel_futures=True)
        for group in groups:
            future = pool.submit(verify_group, engine, group.path, group.name, group.digest, group.row_group)
            future.add_done_callback(lambda future, group=group: done.put((group, future)))  # type: ignore[misc]
        left = len(groups)
        while left:
            ended = [done.get()]
            while not done.empty():  # what came while the last ones were written down is so together
                ended.append(done.get())
            left -= len(ended)
            yield [(group, future.result()) for group, future in ended]


def _at_once(groups: Sequence[Group], devices: Sequence[str]) -> int:
    """How many row groups are read, verified and written down at the same time: a few for each device, and where a
    GPU has the verification as many as there are cores to read for it, and memory."""
    few = AT_ONCE * len(devices)
    if not any(device.startswith("cuda") for device in devices):
        return few
    largest = max(group.nbytes for group in groups)
    return max(few, min(len(os.sched_getaffinity(0)), _READ_BYTES // max(largest, 1)))


def _on_cluster(groups: Sequence[Group], plugins: Sequence[str], options: Options) -> Iterator[_Done]:
    # Ray is an extra, and heavy.
    from node_adapter.ledger._cluster import verify_on_cluster

    by_place = {(group.name, group.row_group): group for group in groups}
    for outcome in verify_on_cluster(groups, plugins, options):
        yield [(by_place[outcome.path, outcome.row_group], outcome)]


def _of_the_digest(group: Group, outcome: Outcome) -> Outcome:
    """The outcome, or an error where the file is not the one any more whose digest was taken."""
    try:
        same = _stamp(group.path) == group.stamp
    except OSError:
        same = False
    if same:
        return outcome
    problem = "the file was changed while it was verified: verify it again"
    return Outcome(group.name, group.digest, group.row_group, error=problem)


def _known(group: Group, checkpoint: Checkpoint, plugins: Mapping[str, str]) -> Outcome | None:
    known = checkpoint.find(group.digest, group.row_group, plugins)
    return known and replace(known, path=group.name)
