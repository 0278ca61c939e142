"""Keys that nobody registered and many batches hold: counted, and given tables when they were seen often.

Counting is a count-min sketch (Cormode and Muthukrishnan, Journal of Algorithms 2005) over a sample of every batch.
Hashes are multiplications by secret odd numbers, so that nobody can make keys collide on purpose; a collision costs
time only, because a key is taken for a promoted one only where all its bytes are equal.
"""

from __future__ import annotations

import secrets
import threading
import time

import numpy as np
import numpy.typing as npt

from verifier.keys._sets import KeySet, Names
from verifier.keys._tables import AlgorithmTables, KeyTables
from verifier.manifest import Operation
from verifier.model import Batch, Bytes, Column
from verifier.registry import parameter_number

__all__ = ["Promotion"]

_SAMPLE = 4096  # items of a batch that are counted
_BUCKETS = 1 << 16  # of each row of the sketch
_HALVE_AFTER = 1 << 24  # items: counts are halved, so that what was frequent once is forgotten
_ANEW_S = 60.0  # how long promoted keys stay at least, though others find no room
_LEAST_BYTES = 32  # of a key
_MOST_BYTES = 1024

Numbers = npt.NDArray[np.uint64]
Rows = npt.NDArray[np.uint8]


def _capacity(slots: int) -> int:
    """Keys of one encoding that may be promoted before the set begins anew."""
    return 2 * slots


def _odd() -> np.uint64:
    return np.uint64(secrets.randbits(64) | 1)


class _Sketch:
    """How often keys were seen, at least; never less."""

    def __init__(self) -> None:
        self._counts = np.zeros((2, _BUCKETS), np.uint32)
        self._multipliers = _odd(), _odd()
        self._added = 0

    def add(self, hashes: Numbers, weight: int) -> npt.NDArray[np.uint32]:
        """Counts each of `hashes` `weight` times; how often each was seen so far."""
        seen = []
        for counts, multiplier in zip(self._counts, self._multipliers, strict=True):
            buckets = (hashes * multiplier >> np.uint64(48)).astype(np.intp)
            counts += (weight * np.bincount(buckets, minlength=_BUCKETS)).astype(np.uint32)
            seen.append(counts[buckets])
        self._added += weight * hashes.size
        if self._added > _HALVE_AFTER:
            self._added = 0
            self._counts >>= 1
        return np.minimum(*seen)


class _Promoted:
    """The promoted keys of one encoding: rows of a set that grows, and where each key is found in it."""

    def __init__(self, algorithm: str, encoding: str, stride: int, capacity: int) -> None:
        self.sketch = _Sketch()
        self.rows: Rows = np.zeros((capacity, stride), np.uint8)
        usable, first = np.zeros(capacity, np.bool_), np.arange(capacity)
        self.keys = KeySet(algorithm, encoding, capacity, Column(self.rows.reshape(-1), stride), usable, first)
        self.count = 0
        self.born = time.monotonic()
        self.overflowed = False  # a key found no room
        self._bits = max(capacity - 1, 1).bit_length() + 2
        self._places = np.full(2 << self._bits, -1, np.int32)  # two tables, one behind the other
        self._multipliers = _odd(), _odd()

    def _buckets(self, table: int, hashes: Numbers) -> npt.NDArray[np.intp]:
        buckets = hashes * self._multipliers[table] >> np.uint64(64 - self._bits)
        return buckets.astype(np.intp) + (table << self._bits)

    def find(self, rows: Rows, hashes: Numbers) -> npt.NDArray[np.intp]:
        """Each key's place in the set, -1 where it is not there."""
        places = self._matching(rows, self._places[self._buckets(0, hashes)])
        rest = np.flatnonzero(places < 0)
        if rest.size:
            places[rest] = self._matching(rows[rest], self._places[self._buckets(1, hashes[rest])])
        return places

    def _matching(self, rows: Rows, places: npt.NDArray[np.int32]) -> npt.NDArray[np.intp]:
        found = places.astype(np.intp)
        known = np.flatnonzero(found >= 0)
        if known.size == found.size:
            equal = _equal(self.rows[found], rows)
            found[~equal] = -1
        elif known.size:
            equal = _equal(self.rows[found[known]], rows[known])
            found[known[~equal]] = -1
        return found

    def add(self, rows: Rows, hashes: Numbers) -> npt.NDArray[np.intp]:
        """Takes in keys, each once and none of them there; the places of those that found one.

        One whose two buckets are others' has none, and takes none: it would come again with every batch.
        """
        size = min(len(rows), self.keys.items - self.count)
        self.overflowed |= size < len(rows)
        buckets = np.full(size, -1, np.intp)
        for table in (0, 1):
            rest = np.flatnonzero(buckets < 0)
            wanted = self._buckets(table, hashes[rest])
            empty = self._places[wanted] < 0
            taken, first = np.unique(wanted[empty], return_index=True)
            buckets[rest[empty][first]] = taken
        inserted = np.flatnonzero(buckets >= 0)
        places = np.arange(self.count, self.count + inserted.size)
        self.rows[places] = rows[inserted]
        self._places[buckets[inserted]] = places  # last: `find` looks here without a lock
        self.count += places.size
        self.keys.usable[places] = True
        return places


def _words(rows: Rows) -> Numbers:
    """Rows as words, filled up with zeros."""
    rest = -rows.shape[1] % 8
    if rest:
        rows = np.pad(rows, ((0, 0), (0, rest)))
    words: Numbers = np.ascontiguousarray(rows).view(np.uint64)
    return words


def _equal(left: Rows, right: Rows) -> npt.NDArray[np.bool_]:
    equal: npt.NDArray[np.bool_] = (_words(left) == _words(right)).all(axis=1)
    return equal


class Promotion:
    """Counts keys, promotes those that were seen `after` times or more, and finds them again. Thread-safe."""

    def __init__(self, tables: KeyTables, after: int) -> None:
        self._tables = tables
        self._after = after
        self._lock = threading.Lock()
        self._promoted: dict[tuple[str, str, int], _Promoted] = {}
        self._multipliers = np.array([_odd() for _ in range(_MOST_BYTES // 8)])

    def tables(self, algorithm: str) -> AlgorithmTables | None:
        """The tables of an algorithm, where a plugin keeps any."""
        return self._tables.open(algorithm)

    def look_up(self, tables: AlgorithmTables, operation: Operation, batch: Batch, column: Column) -> Names | None:
        """Counts a batch's keys; their names, 0 where a key has no table. None where none of them can have one.

        The caller holds what is named: its hold has begun.
        """
        encoding = _encoding(operation, batch)
        if encoding is None or column.offsets is not None or not _LEAST_BYTES <= column.stride <= _MOST_BYTES:
            return None
        promoted = self._of(tables, encoding, column.stride)
        view = promoted.keys.view
        rows: Bytes = column.data.reshape(batch.items, column.stride)
        step = -(-batch.items // _SAMPLE)
        sample = rows[::step]
        self._count(tables, promoted, sample, step)
        if not view.names.size or not view.names.any():
            return None
        sampled = promoted.find(sample, self._hashes(sample)) if step > 1 else None
        if sampled is not None and np.count_nonzero(sampled >= 0) * 2 < sampled.size:
            return None  # most of the batch has no table: the look-up would cost more than it gains
        places = promoted.find(rows, self._hashes(rows))
        names = view.names[np.maximum(places, 0)]
        names[places < 0] = 0
        return names

    def _of(self, tables: AlgorithmTables, encoding: str, stride: int) -> _Promoted:
        name = (tables.algorithm, encoding, stride)
        with self._lock:
            promoted = self._promoted.get(name)
            if promoted is None or (promoted.overflowed and time.monotonic() - promoted.born > _ANEW_S):
                # Full of keys that were frequent once. Batches under way keep the old one's names.
                old, promoted = promoted, _Promoted(*name, _capacity(tables.slots.capacity))
                self._promoted[name] = promoted
                if old is not None:
                    tables.forget(old.keys)
        return promoted

    def _hashes(self, rows: Rows) -> Numbers:
        words = _words(rows)
        # Without the shift two words that differ in their highest bits alone would give one hash for any multipliers.
        hashes: Numbers = (words ^ words >> np.uint64(32)).dot(self._multipliers[: words.shape[1]])
        return hashes

    def _count(self, tables: AlgorithmTables, promoted: _Promoted, sample: Rows, weight: int) -> None:
        hashes = self._hashes(sample)
        with self._lock:
            often = promoted.sketch.add(hashes, weight) >= self._after
            if not often.any():
                return
            rows, hashes = sample[often], hashes[often]
            places = promoted.find(rows, hashes)
            new, hashes = rows[places < 0], hashes[places < 0]
            if len(new):
                _, first = np.unique(np.ascontiguousarray(new).view(f"V{new.shape[1]}").ravel(), return_index=True)
                added = promoted.add(new[first], hashes[first])
                tables.stats.promoted += added.size
            view = promoted.keys.view
            known = places[places >= 0]
            wanted = known[view.names[known] == 0] if view.names.size else known
        if len(new):
            wanted = np.concatenate([wanted, added])
        if wanted.size:
            tables.want(promoted.keys, np.unique(wanted))


def _encoding(operation: Operation, batch: Batch) -> str | None:
    """The name of the keys' encoding in a batch; None where keys are not in a column."""
    values = operation.parameters.get("key_encoding")
    if values is None:
        return None
    number = batch.key.parameters[list(operation.parameters).index("key_encoding")]
    name = next((value for value in values if parameter_number("key_encoding", value) == number), None)
    return None if name in (None, "IN_SIGNATURE", "INDEX") else str(name)
