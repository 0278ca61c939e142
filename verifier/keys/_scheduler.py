"""Where a batch's keys come from: tables on the devices, or the batch's own column.

A batch of named keys whose tables stand on the devices is run by the plugin's `verify_enrolled`, its key column
being slots; every other one is run by `verify`, with its keys gathered. Both give the same verdicts. What a device
turns out to have no table for (it was started anew, its plugin was replaced, nobody has told us yet) is run again
with its keys, so that a missing table costs time and never a verdict.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from typing import Protocol

import numpy as np

from verifier.errors import NotServedError
from verifier.keys._batches import NamedBatch, Positions, some_of
from verifier.keys._pieces import Pieces, Released, Submit
from verifier.keys._promotion import Promotion
from verifier.keys._sets import Mask, Names
from verifier.keys._tables import AlgorithmTables, KeyTables
from verifier.manifest import Operation
from verifier.model import Batch, BatchKey, BatchResult, Column
from verifier.registry import Resolved
from verifier.scheduling import Priority

__all__ = ["KeyScheduler", "Submits"]

_NONE = np.empty(0, np.uint32)
_NO_ITEMS: Positions = np.empty(0, np.intp)
_NOTHING = np.zeros(0, np.bool_)  # of a batch all of whose keys are in tables nothing is missing
_NOTED = 65536  # items of a batch that are looked at to find out which keys are in use
_KEYS_KNOWN = 256  # batch keys whose counterpart is remembered; callers' user ids are among them
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
        self._keys: dict[BatchKey, tuple[int, BatchKey | None]] = {}  # of `verify_enrolled`, and of which instance

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
        """By tables, where that is worth it; None: it is not."""
        if self._tables is None or not batch.keys.lasting or batch.key.version is not None:
            return None
        tables = self._tables.open(batch.keys.algorithm)
        if tables is None:
            return None

        def plain(positions: Positions | None) -> Batch:
            if positions is None:
                return batch.gathered()
            inputs = tuple(Column.absent() if i == batch.key_at else c for i, c in enumerate(batch.inputs))
            some = some_of(Batch(batch.key, batch.items, inputs), positions)
            indices = batch.indices[positions]
            return NamedBatch(batch.key, some.items, some.inputs, batch.key_at, batch.keys, indices, _NONE).gathered()

        with _Hold(tables, released) as hold:
            view = batch.keys.view
            names = view.names.take(batch.indices) if view.names.size else np.zeros(batch.items, np.uint64)
            missing = _NOTHING
            if not view.whole:
                missing = names == 0
                missing[batch.refused] = False
                _ask_for(tables, batch, missing)
            enrolled = self._enrolled(tables, batch, batch.key_at, names, missing)
            if enrolled is None:
                return None
            pieces = Pieces(batch.items, batch.refused, plain, submit, hold.end)
            future = hold.keep(pieces, _split(enrolled, missing, plain))
        _note(tables, names, missing)
        return future

    def _promoted(self, batch: Batch, submit: Submit, released: Released | None) -> Future[BatchResult] | None:
        """By tables of keys that were seen often, where that is worth it; None: it is not."""
        if self._promotion is None or batch.key.version is not None:
            return None
        name, _, algorithm = batch.key.operation.partition("/")
        if name != "verify":
            return None
        operation = self._catalogue.resolve(name, algorithm, batch.key.plugin).operation
        tables = self._promotion.tables(algorithm)
        if tables is None or "key" not in operation.inputs:
            return None

        def plain(positions: Positions | None) -> Batch:
            return batch if positions is None else some_of(batch, positions)

        with _Hold(tables, released) as hold:
            at = operation.inputs.index("key")
            names = self._promotion.look_up(tables, operation, batch, batch.inputs[at])
            if names is None:
                return None
            missing = names == 0
            enrolled = self._enrolled(tables, batch, at, names, missing)
            if enrolled is None:
                return None
            pieces = Pieces(batch.items, _NONE, plain, submit, hold.end)
            future = hold.keep(pieces, _split(enrolled, missing, plain))
        _note(tables, names, missing)
        return future

    def _enrolled(
        self, tables: AlgorithmTables, batch: Batch | NamedBatch, key_at: int, names: Names, missing: Mask
    ) -> Batch | None:
        """The batch by slots; None where too few of its keys have one, or the plugin does not serve it."""
        key = self._enrolled_key(batch.key)
        if key is None or (missing.size and np.count_nonzero(missing) > _SPLIT * batch.items):
            tables.count(0, batch.items)
            return None
        slots = Column(names.view(np.uint8), 8)
        return Batch(key, batch.items, (*batch.inputs[:key_at], slots, *batch.inputs[key_at + 1 :]))

    def _enrolled_key(self, key: BatchKey) -> BatchKey | None:
        """The key of `verify_enrolled` for that of a `verify`; None where there is none that asks for the same."""
        _, _, algorithm = key.operation.partition("/")
        try:
            enrolled = self._catalogue.resolve("verify_enrolled", algorithm, key.plugin)
        except NotServedError:
            return None
        known = self._keys.get(key)
        if known is not None and known[0] == enrolled.instance.id:
            return known[1]
        plain = enrolled.instance.manifest.operation("verify", algorithm)
        found = None
        if plain is not None and _alike(plain, enrolled.operation):
            found = replace(enrolled.key(_numbers(plain, key)), constant=key.constant)
        if len(self._keys) >= _KEYS_KNOWN:
            self._keys.clear()
        self._keys[key] = (enrolled.instance.id, found)
        return found


def _alike(plain: Operation, enrolled: Operation) -> bool:
    """Whether two operations have the same parameters and columns, but for the slot in the key's place. A parameter
    that one of them lacks would be a rule that nobody checks."""
    inputs = tuple("slot" if name == "key" else name for name in plain.inputs)
    return plain.parameters.keys() == enrolled.parameters.keys() and inputs == enrolled.inputs


def _numbers(plain: Operation, key: BatchKey) -> dict[str, int]:
    """The parameters of a batch by name, but the key's encoding, which is the enrolled operation's own."""
    named = zip(plain.parameters, key.parameters, strict=True)
    return {name: value for name, value in named if name != "key_encoding"}


def _ask_for(tables: AlgorithmTables, batch: NamedBatch, missing: Mask) -> None:
    """Asks for tables of keys that a batch names and that have none."""
    step = -(-batch.items // _NOTED)
    wanted = batch.indices[::step][missing[::step]]
    if wanted.size:
        tables.want(batch.keys, np.unique(wanted).astype(np.intp))


def _note(tables: AlgorithmTables, names: Names, missing: Mask) -> None:
    """Takes down that keys were used, and how many. The batch is under way by then: it does not wait for it."""
    misses = int(np.count_nonzero(missing))
    tables.slots.note_use(names[:: -(-names.size // _NOTED)], time.monotonic())
    tables.count(names.size - misses, misses)


def _split(
    enrolled: Batch, missing: Mask, plain: Callable[[Positions | None], Batch]
) -> list[tuple[Positions | None, Batch, bool]]:
    """The pieces of a batch: what has a table, and the rest."""
    rest = np.flatnonzero(missing) if missing.size else _NO_ITEMS
    if not rest.size:
        return [(None, enrolled, True)]
    hit = np.flatnonzero(~missing)
    return [(hit, some_of(enrolled, hit), True), (rest, plain(rest), False)]


class _Hold:
    """A batch's hold on the tables, from before it looks names up. It ends with the block unless it is kept: then it
    ends when no device reads the batch any more, which the caller is told too."""

    def __init__(self, tables: AlgorithmTables, released: Released | None) -> None:
        self._holds = tables.holds
        self._released = released
        self._number = self._holds.enter()
        self._kept = False

    def keep(self, pieces: Pieces, parts: list[tuple[Positions | None, Batch, bool]]) -> Future[BatchResult]:
        """Runs the pieces; the hold is theirs."""
        self._kept = True
        return pieces.run(*parts)

    def end(self) -> None:
        """Nobody reads the batch any more, nor the tables that it names."""
        self._holds.leave(self._number)
        if self._released is not None:
            self._released()

    def __enter__(self) -> _Hold:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._kept:
            self._holds.leave(self._number)
