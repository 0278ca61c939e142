"""Which key has which slot: the host's map of one algorithm's tables, the same for every device.

A slot names a place in a device's memory, a generation one enrolment in it. A batch may read a slot for as long as
its hold lasts. What is taken from a key is given to another one only when every hold from before is over, so that no
table is written under a batch in flight; and a slot that was given anew has another generation, so that a device that
has not heard of it refuses the batch's item.
"""

from __future__ import annotations

import secrets
import threading
from collections import deque
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from verifier.keys._memory import RESERVED_SLOTS
from verifier.keys._sets import KeySet, Names, TableView

__all__ = ["Holds", "Slots"]

Places = npt.NDArray[np.intp]
Generations = npt.NDArray[np.uint32]

_GENERATION_SHIFT = np.uint64(32)
_SLOT = np.uint64(0xFFFFFFFF)


class Holds:
    """Batches under way, by when they began. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next = 1
        self._open: dict[int, None] = {}  # in the order of their numbers

    def enter(self) -> int:
        """Begins a hold: nothing that a view names from now on is given to another key before `leave`."""
        with self._lock:
            number = self._next
            self._open[number] = None
            self._next = number + 1
        return number

    def leave(self, number: int) -> None:
        """Ends a hold. Idempotent."""
        with self._lock:
            self._open.pop(number, None)

    def now(self) -> int:
        """The first number that no hold has had."""
        return self._next

    def oldest(self) -> int:
        """Every hold below this number is over."""
        with self._lock:
            return next(iter(self._open), self._next)


class Slots:
    """Slots of one algorithm. Guarded by its owner's lock; `note_use` and the views may be used without it."""

    def __init__(self, capacity: int, holds: Holds) -> None:
        self.capacity = capacity
        self._holds = holds
        # Not from 0 on: what devices have from another map of slots must not look like this one's.
        self.generation: Generations = np.full(capacity, secrets.randbits(31) + 1, np.uint32)
        self.ready: Generations = np.zeros(capacity, np.uint32)  # the generation that every device serves
        self.used = np.zeros(capacity, np.float64)  # when, on the owner's clock
        self._set = np.zeros(capacity, np.int64)  # the number of the owning set; 0: free
        self._index = np.zeros(capacity, np.intp)  # of the key in its set
        self._sets: dict[int, KeySet] = {}
        self._numbers: dict[KeySet, int] = {}
        self._places: dict[int, Places] = {}  # by set: the slot of each key, -1: none
        self._last_number = 0
        self._free: Places = np.arange(RESERVED_SLOTS, capacity, dtype=np.intp)
        self._leaving: deque[tuple[int, Places]] = deque()
        self.evicted = 0

    @property
    def assigned(self) -> Places:
        """The slots that have a key."""
        return np.flatnonzero(self._set)

    @property
    def free(self) -> int:
        """How many slots can be given away now."""
        while self._leaving and self._leaving[0][0] <= self._holds.oldest():
            self._free = np.concatenate([self._free, self._leaving.popleft()[1]])
        return self._free.size

    @property
    def leaving(self) -> int:
        """How many were taken from their keys and still wait for batches from before."""
        return sum(places.size for _, places in self._leaving)

    def without_slot(self, keys: KeySet, wanted: Places) -> Places:
        """Those of `wanted`, places in the set, that are first of their kind, usable and in no slot."""
        wanted = np.unique(keys.first[wanted])
        wanted = wanted[keys.usable[wanted]]
        number = self._numbers.get(keys)
        return wanted if number is None else wanted[self._places[number][wanted] < 0]

    def assign(self, keys: KeySet, wanted: Places, now: float) -> int:
        """Gives slots to as many of `wanted` (as `without_slot` gives them) as are free. How many that were."""
        count = min(wanted.size, self.free)
        if not count:
            return 0
        taken, self._free = self._free[:count], self._free[count:]
        wanted = wanted[:count]
        number = self._numbers.get(keys)
        if number is None:
            self._last_number += 1
            number = self._numbers[keys] = self._last_number
            self._sets[number] = keys
            self._places[number] = np.full(keys.items, -1, np.intp)
        # Never 0, which stands for no table.
        self.generation[taken] = self.generation[taken] % np.uint32(0xFFFFFFFF) + np.uint32(1)
        self.ready[taken] = 0
        self.used[taken] = now
        self._set[taken] = number
        self._index[taken] = wanted
        self._places[number][wanted] = taken
        return count

    def evict(self, count: int, unused_since: float) -> int:
        """Takes slots from the keys that were used longest ago, before `unused_since`. How many those were."""
        candidates = self.assigned
        candidates = candidates[self.used[candidates] < unused_since]
        oldest = candidates[np.argsort(self.used[candidates], kind="stable")[:count]]
        self._take(oldest)
        self.evicted += oldest.size
        return int(oldest.size)

    def drop(self, places: Places) -> None:
        """Takes slots from what turned out to be no keys; these get none again."""
        for keys, _, index in self.keys_of(places):
            keys.usable[index] = False
        self._take(places[self._set[places] != 0])

    def release(self, keys: KeySet) -> None:
        """Takes every slot from a set."""
        number = self._numbers.get(keys)
        if number is not None:
            self._take(np.flatnonzero(self._set == number))

    def _take(self, places: Places) -> None:
        if not places.size:
            return
        numbers = np.unique(self._set[places])
        for number in numbers:
            mine = places[self._set[places] == number]
            self._places[int(number)][self._index[mine]] = -1
        self._set[places] = 0
        self.ready[places] = 0
        self.publish(self._sets[int(number)] for number in numbers)
        # The views are without them now: who holds from here on cannot read them.
        self._leaving.append((self._holds.now(), places))
        for number in numbers[~np.isin(numbers, self._set)]:  # sets that have no slot any more
            del self._numbers[self._sets.pop(int(number))], self._places[int(number)]

    def publish(self, sets: Iterable[KeySet] | None = None) -> None:
        """Brings the views of sets up to date, of all sets where none are named."""
        for keys in list(self._sets.values()) if sets is None else sets:
            places = self._places[self._numbers[keys]][keys.first]
            safe = np.maximum(places, 0)
            serves = (places >= 0) & (self.ready[safe] != 0) & (self.ready[safe] == self.generation[safe])
            names = safe.astype(np.uint64) | self.generation[safe].astype(np.uint64) << _GENERATION_SHIFT
            names[~serves] = 0
            keys.publish(TableView(names, bool(serves[keys.usable].all())))

    def note_use(self, names: Names, now: float) -> None:
        """Marks the slots of these names as used."""
        self.used[(names & _SLOT).view(np.intp)] = now

    def keys_of(self, places: Places) -> list[tuple[KeySet, Places, Places]]:
        """The keys of slots, by set: (set, slots, places in the set)."""
        found = []
        for number in np.unique(self._set[places]):
            mine = places[self._set[places] == number]
            if number:
                found.append((self._sets[int(number)], mine, self._index[mine]))
        return found
