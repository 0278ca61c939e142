"""Where a batch's keys come from: tables on the devices, or the batch's own column.

A batch of named keys whose tables stand on the devices is run by the plugin's `verify_enrolled`, its key column
being slots; every other one is run by `verify`, with its keys gathered. Both give the same verdicts. What a device
turns out to have no table for (it was started anew, its plugin was replaced, nobody has told us yet) is run again
with its keys, so that a missing table costs time and never a verdict.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from verifier.errors import NotServedError, VerifierError
from verifier.keys._batches import NamedBatch, Positions, joined, left_open, not_in_a_table, some_of
from verifier.keys._promotion import Promotion
from verifier.keys._sets import Indices, Mask, Names
from verifier.keys._tables import AlgorithmTables, KeyTables
from verifier.manifest import Operation
from verifier.model import Batch, BatchKey, BatchResult, Column
from verifier.registry import Resolved
from verifier.scheduling import Priority

__all__ = ["KeyScheduler", "Submits"]

Released = Callable[[], None]
Submit = Callable[[Batch, "Released | None"], Future[BatchResult]]

_NONE = np.empty(0, np.uint32)
_NOTED = 65536  # items of a batch that are looked at to find out which keys are in use
_SPLIT = 0.5  # with fewer of its keys in tables a batch is not worth being split


class Submits(Protocol):
    """What runs plain batches; verifier.scheduling.Scheduler."""

    def submit(
        self,
        batch: Batch,
        *,
        deadline: float | None = None,
        priority: Priority = Priority.POOL,
        caller: str = "",
        released: Released | None = None,
    ) -> Future[BatchResult]: ...


class Catalogue(Protocol):
    """Who serves what; the registry."""

    def resolve(self, operation: str, algorithm: str | None, plugin: str = "") -> Resolved: ...


@dataclass
class _Run:
    """A batch on its way: its pieces, and what it was made of."""

    items: int
    refused: Indices
    plain: Callable[[Positions | None], Batch]  # the items at these positions with their keys; None: all
    submit: Submit
    released: Released | None = None  # called when nobody reads the batch's columns any more
    tables: AlgorithmTables | None = None
    hold: int = 0
    future: Future[BatchResult] = field(default_factory=Future)
    pieces: list[tuple[Positions | None, BatchResult]] = field(default_factory=list)
    inner: list[Future[BatchResult]] = field(default_factory=list)
    open: int = 0
    readers: int = 0  # pieces whose columns a device may still read
    lock: threading.Lock = field(default_factory=threading.Lock)
    error: BaseException | None = None


class KeyScheduler:
    """Submits batches as Scheduler does, and such with named keys. Thread-safe."""

    def __init__(
        self, scheduler: Submits, catalogue: Catalogue, tables: KeyTables | None, promotion: Promotion | None = None
    ) -> None:
        """`tables` None: every key goes with its batch."""
        self._scheduler = scheduler
        self._catalogue = catalogue
        self._tables = tables
        self._promotion = promotion

    def submit(
        self,
        batch: Batch | NamedBatch,
        *,
        deadline: float | None = None,
        priority: Priority = Priority.POOL,
        caller: str = "",
        released: Released | None = None,
    ) -> Future[BatchResult]:
        """As Scheduler.submit. What that raises may be in the future instead."""

        def submit(plain: Batch, released: Released | None) -> Future[BatchResult]:
            return self._scheduler.submit(
                plain, deadline=deadline, priority=priority, caller=caller, released=released
            )

        if isinstance(batch, NamedBatch):
            future = self._named(batch, submit, released)
            if future is not None:
                return future
            if batch.keys.lasting:
                return submit(batch.gathered(), released)
            batch = batch.gathered()
        future = self._promoted(batch, submit, released)
        return submit(batch, released) if future is None else future

    def _named(self, batch: NamedBatch, submit: Submit, released: Released | None) -> Future[BatchResult] | None:
        if self._tables is None or not batch.keys.lasting or batch.key.version is not None:
            return None
        tables = self._tables.open(batch.keys.algorithm)
        if tables is None:
            return None
        hold = tables.holds.enter()
        view = batch.keys.view  # after the hold has begun
        names = view.names[batch.indices] if view.names.size else np.zeros(batch.items, np.uint64)
        missing = None
        if not view.whole:
            missing = names == 0
            missing[batch.refused] = False
            self._note_missing(tables, batch, missing)

        def plain(positions: Positions | None) -> Batch:
            if positions is None:
                return batch.gathered()
            inputs = tuple(Column.absent() if i == batch.key_at else c for i, c in enumerate(batch.inputs))
            some = some_of(Batch(batch.key, batch.items, inputs), positions)
            return NamedBatch(
                batch.key, some.items, some.inputs, batch.key_at, batch.keys, batch.indices[positions], _NONE
            ).gathered()

        run = _Run(batch.items, batch.refused, plain, submit, released, tables, hold)
        return self._run(tables, hold, batch, batch.key_at, names, missing, run)

    def _promoted(self, batch: Batch, submit: Submit, released: Released | None) -> Future[BatchResult] | None:
        if self._promotion is None or batch.key.version is not None:
            return None
        name, _, algorithm = batch.key.operation.partition("/")
        if name != "verify":
            return None
        operation = self._catalogue.resolve(name, algorithm, batch.key.plugin).operation
        if "key" not in operation.inputs:
            return None
        tables = self._promotion.tables(algorithm)
        if tables is None:
            return None
        at = operation.inputs.index("key")
        hold = tables.holds.enter()
        names = self._promotion.look_up(tables, operation, batch, batch.inputs[at])
        if names is None:
            tables.holds.leave(hold)
            return None
        missing = names == 0
        run = _Run(
            batch.items, _NONE, lambda p: batch if p is None else some_of(batch, p), submit, released, tables, hold
        )
        return self._run(tables, hold, batch, at, names, missing if missing.any() else None, run)

    def _note_missing(self, tables: AlgorithmTables, batch: NamedBatch, missing: Mask) -> None:
        step = -(-batch.items // _NOTED)
        wanted = batch.indices[::step][missing[::step]]
        if wanted.size:
            tables.want(batch.keys, np.unique(wanted).astype(np.intp))

    def _run(
        self,
        tables: AlgorithmTables,
        hold: int,
        batch: Batch | NamedBatch,
        key_at: int,
        names: Names,
        missing: Mask | None,
        run: _Run,
    ) -> Future[BatchResult] | None:
        """Runs what has a table by its slots and the rest with its keys. None: not worth it, or not served."""
        misses = 0 if missing is None else int(np.count_nonzero(missing))
        key = self._enrolled_key(batch.key)
        if key is None or misses > _SPLIT * batch.items:
            tables.holds.leave(hold)
            tables.count(0, batch.items)
            return None
        tables.slots.note_use(names[:: -(-batch.items // _NOTED)], time.monotonic())
        tables.count(batch.items - misses, misses)
        slots = Column(names.view(np.uint8), 8)
        enrolled = Batch(key, batch.items, (*batch.inputs[:key_at], slots, *batch.inputs[key_at + 1 :]))
        run.future.add_done_callback(lambda future: _cancel(run) if future.cancelled() else None)
        with run.lock:
            run.open += 1  # not done before all were begun
        if missing is None or not misses:
            self._begin(run, None, enrolled, by_table=True)
        else:
            hit, rest = np.flatnonzero(~missing), np.flatnonzero(missing)
            self._begin(run, hit, some_of(enrolled, hit), by_table=True)
            self._begin(run, rest, run.plain(rest), by_table=False)
        self._close(run)
        return run.future

    def _begin(self, run: _Run, positions: Positions | None, batch: Batch, *, by_table: bool) -> None:
        """Submits a piece. Where the scheduler refuses it, its items stay open, or all of it fails."""
        with run.lock:
            run.open += 1
            run.readers += 1
        try:
            future = run.submit(batch, lambda: _read(run))
        except VerifierError as error:
            future = Future()
            future.set_exception(error)
            _read(run)
        with run.lock:
            run.inner.append(future)
        future.add_done_callback(lambda done: self._done(run, positions, batch.items, done, by_table))
        if run.future.cancelled():
            future.cancel()

    def _done(
        self, run: _Run, positions: Positions | None, items: int, done: Future[BatchResult], by_table: bool
    ) -> None:
        error = None if done.cancelled() else done.exception()
        if by_table and isinstance(error, NotServedError):
            # The plugin that came meanwhile keeps no tables.
            self._begin(run, positions, run.plain(positions), by_table=False)
        elif done.cancelled() or error is not None:
            with run.lock:
                run.error = run.error or error
                run.pieces.append((positions, left_open(items)))
        else:
            result = done.result()
            with run.lock:
                run.pieces.append((positions, result))
            if by_table:
                self._run_again(run, positions, result)
        self._close(run)

    def _run_again(self, run: _Run, positions: Positions | None, result: BatchResult) -> None:
        refused = run.refused if positions is None else np.flatnonzero(np.isin(positions, run.refused))
        again = not_in_a_table(result.codes, refused)
        if not again.size:
            return
        where = again if positions is None else positions[again]
        if where.size == run.items:
            self._begin(run, None, run.plain(None), by_table=False)
        else:
            # What the device said of them is no verdict, whatever becomes of the second run.
            with run.lock:
                run.pieces.append((where, left_open(where.size)))
            self._begin(run, where, run.plain(where), by_table=False)

    def _close(self, run: _Run) -> None:
        """One piece less is open; the last one answers."""
        with run.lock:
            run.open -= 1
            if run.open:
                return
            unread = run.readers == 0
        if unread:
            _let_go(run)
        if not run.future.set_running_or_notify_cancel():
            return
        result = joined(run.items, run.pieces)
        if run.error is not None and not result.decided.any():
            run.future.set_exception(run.error)
        else:
            run.future.set_result(result)

    def _enrolled_key(self, key: BatchKey) -> BatchKey | None:
        """The key of `verify_enrolled` for that of a `verify`; None where it is not served."""
        _, _, algorithm = key.operation.partition("/")
        try:
            enrolled = self._catalogue.resolve("verify_enrolled", algorithm, key.plugin)
            plain = self._catalogue.resolve("verify", algorithm, key.plugin)
            resolved = enrolled.key(_numbers(plain.operation, key, enrolled.operation))
            return replace(resolved, constant=key.constant)
        except NotServedError:
            return None


def _numbers(plain: Operation, key: BatchKey, enrolled: Operation) -> dict[str, int]:
    """The parameters of a batch by name, but the key's encoding, which is the enrolled operation's own."""
    named = dict(zip(plain.parameters, key.parameters, strict=True))
    return {name: value for name, value in named.items() if name in enrolled.parameters and name != "key_encoding"}


def _read(run: _Run) -> None:
    """A piece's columns are read by nobody any more."""
    with run.lock:
        run.readers -= 1
        last = not run.readers and not run.open
    if last:
        _let_go(run)


def _let_go(run: _Run) -> None:
    """Nobody reads the batch any more, nor the tables that it names."""
    if run.tables is not None:
        run.tables.holds.leave(run.hold)
    if run.released is not None:
        run.released()


def _cancel(run: _Run) -> None:
    with run.lock:
        inner = list(run.inner)
    for future in inner:
        future.cancel()
