"""A key scheduler over one that the test answers for."""

from __future__ import annotations

from concurrent.futures import Future

import numpy as np

from verifier.keys import RESERVED_SLOTS, KeyScheduler, KeySet, NamedBatch
from verifier.keys._tables import AlgorithmTables
from verifier.model import Batch, BatchResult, Code, Column
from verifier.scheduling import Priority

from ..api.conftest import Catalogue

ITEMS = 6
VALID, INVALID, KEY_INDEX = Code.VALID, Code.INVALID, Code.KEY_INDEX


class ByHand:
    """Keeps what is submitted."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.futures: list[Future] = []
        self.released: list = []
        self.wishes: list[tuple] = []
        self.error: Exception | None = None

    def submit(self, batch, *, deadline=None, priority=Priority.POOL, caller="", released=None):
        if self.error is not None:
            raise self.error
        self.batches.append(batch)
        self.futures.append(Future())
        self.released.append(released)
        self.wishes.append((deadline, priority, caller))
        return self.futures[-1]

    def operations(self) -> list[str]:
        return [batch.key.operation for batch in self.batches]

    def answer(self, number: int, *codes: Code) -> None:
        """As the scheduler does: first the columns are let go of, then the result is there."""
        if self.released[number] is not None:
            self.released[number]()
        array = np.array(codes, np.uint8)
        bits = [np.packbits(mask, bitorder="little") for mask in (array == Code.VALID, array != Code.UNDECIDED)]
        self.futures[number].set_result(BatchResult(len(codes), *bits, array, served_by=f"launch {number}"))


class Tables:
    """Tables of SM2, for KeyScheduler to find."""

    def __init__(self) -> None:
        self.one = AlgorithmTables("SM2", RESERVED_SLOTS + 8, lambda: None)

    def open(self, algorithm: str) -> AlgorithmTables | None:
        return self.one if algorithm == "SM2" else None


class Bench:
    def __init__(self) -> None:
        self.inner = ByHand()
        self.tables = Tables()
        self.catalogue = Catalogue()
        self.scheduler = KeyScheduler(self.inner, self.catalogue, self.tables)
        self.released = 0
        rows = np.arange(4, dtype=np.uint8).repeat(64)
        self.keys = KeySet.of("SM2", "RAW_XY", 4, Column(rows, 64))

    def enroll(self, *places: int) -> None:
        one = self.tables.one
        one.slots.assign(self.keys, one.slots.without_slot(self.keys, np.array(places)), 0.0)
        one.slots.ready = one.slots.generation.copy()
        one.slots.publish()

    def submit(self, indices, refused=(), **wishes) -> Future:
        key = self.catalogue.resolve("verify", "SM2").key({})
        columns = (Column(np.arange(32 * ITEMS, dtype=np.uint8), 32), Column(np.zeros(64 * ITEMS, np.uint8), 64))
        indices = np.array(indices, np.uint32)
        batch = NamedBatch(
            key, ITEMS, (*columns, Column.absent()), 2, self.keys, indices, np.array(refused, np.uint32)
        )
        return self.scheduler.submit(batch, released=self._let_go, **wishes)

    def _let_go(self) -> None:
        self.released += 1

    @property
    def held(self) -> bool:
        holds = self.tables.one.holds
        return holds.oldest() < holds.now()


def codes(future: Future) -> list[int]:
    return future.result(0).codes.tolist()


def bits(bitmap) -> list[int]:
    return np.unpackbits(bitmap, count=ITEMS, bitorder="little").tolist()
