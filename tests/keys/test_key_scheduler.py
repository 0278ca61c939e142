"""What becomes of a batch's pieces, its caller's wishes and its columns: on a scheduler that the test answers for."""

from __future__ import annotations

import gc
import weakref
from concurrent.futures import Future
from dataclasses import replace

import numpy as np
import pytest

from verifier.attended import Attended
from verifier.errors import BackendError, CapacityError, DeadlineError, NotServedError
from verifier.keys import RESERVED_SLOTS, KeyScheduler, KeySet, NamedBatch, key_table
from verifier.keys._tables import AlgorithmTables
from verifier.model import Batch, BatchKey, BatchResult, Code, Column
from verifier.registry import Instance
from verifier.registry._parameters import allowed_numbers
from verifier.scheduling import Priority

from ..api.conftest import Catalogue

ITEMS = 6


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


@pytest.fixture
def bench():
    return Bench()


def codes(future: Future) -> list[int]:
    return future.result(0).codes.tolist()


def bits(bitmap) -> list[int]:
    return np.unpackbits(bitmap, count=ITEMS, bitorder="little").tolist()


VALID, INVALID, KEY_INDEX = Code.VALID, Code.INVALID, Code.KEY_INDEX


def test_without_tables_keys_go_along(bench):
    future = bench.submit([0, 1, 2, 3, 0, 1])
    assert bench.inner.operations() == ["verify/SM2"]
    assert bench.inner.batches[0].inputs[2].data[::64].tolist() == [0, 1, 2, 3, 0, 1]
    assert not bench.held
    bench.inner.answer(0, *[VALID] * ITEMS)
    assert codes(future) == [VALID] * ITEMS
    assert bench.released == 1
    assert bench.tables.one._wanted[bench.keys].all()  # and tables are asked for


def test_a_set_that_was_let_go_of_gets_no_tables_any_more(bench):
    bench.enroll(0, 1)
    bench.tables.one.forget(bench.keys)
    bench.submit([0, 1, 2, 3, 0, 1])  # accepted before, submitted now
    assert bench.inner.operations() == ["verify/SM2"]
    assert not bench.tables.one._wanted
    assert not bench.tables.one.slots.assigned.size


def test_keys_that_come_with_their_batch_get_no_tables(bench):
    bench.keys = key_table("SM2", bytes(256))
    bench.submit([0] * ITEMS)
    assert bench.inner.operations() == ["verify/SM2"]
    assert not bench.tables.one._wanted


def test_with_tables_slots_do(bench):
    bench.enroll(0, 1, 2, 3)
    future = bench.submit([3, 1, 2, 3, 0, 1], deadline=9.0, priority=Priority.BLOCK, caller="me")
    assert bench.inner.operations() == ["verify_enrolled/SM2"]
    assert bench.inner.wishes == [(9.0, Priority.BLOCK, "me")]
    slots = bench.inner.batches[0].inputs[2].data.view("<u4")[::2] - RESERVED_SLOTS
    assert slots.tolist() == [3, 1, 2, 3, 0, 1]
    assert bench.held
    bench.inner.answer(0, *[VALID] * 5, INVALID)
    assert codes(future) == [VALID] * 5 + [INVALID]
    assert future.result().served_by == "launch 0"
    assert (bench.released, bench.held) == (1, False)


def test_whoever_waits_attends_to_the_batch_by_slots(bench, monkeypatch):
    bench.enroll(0, 1, 2, 3)
    inner: Attended[BatchResult] = Attended()
    inner.attend = lambda _: bench.inner.answer(0, *[VALID] * ITEMS)
    submit = bench.inner.submit

    def attended(batch, **wishes):
        submit(batch, **wishes)
        bench.inner.futures[0] = inner
        return inner

    monkeypatch.setattr(bench.inner, "submit", attended)
    assert bench.submit([0] * ITEMS).result().codes.tolist() == [VALID] * ITEMS
    assert (bench.released, bench.held) == (1, False)


@pytest.mark.parametrize("missing", [False, True], ids=["by tables", "in pieces, one of them twice"])
def test_an_answered_batch_is_let_go_of_without_the_collector(bench, missing):
    bench.enroll(*range(3 if missing else 4))
    gc.collect()
    gc.disable()
    try:
        future = bench.submit([0, 1, 2, 3, 0, 1])
        column = weakref.ref(bench.inner.batches[0].inputs[1].data)
        if missing:
            bench.inner.answer(0, *[VALID] * 4, KEY_INDEX)
            bench.inner.answer(1, VALID)
        bench.inner.answer(-1, *[VALID] * (1 if missing else ITEMS))
        assert codes(future) == [VALID] * ITEMS
        for those in (bench.inner.batches, bench.inner.futures, bench.inner.released):
            those.clear()
        result = weakref.ref(future.result(0).codes)
        del future
        assert column() is None
        assert result() is None
    finally:
        gc.enable()


def test_a_plugin_without_tables_came_meanwhile(bench):
    bench.enroll(0, 1, 2, 3)
    future = bench.submit([0] * ITEMS)
    bench.inner.released[0]()
    bench.inner.futures[0].set_exception(NotServedError("scheme", "gone"))
    assert bench.inner.operations() == ["verify_enrolled/SM2", "verify/SM2"]
    assert (bench.released, bench.held) == (0, True)  # the columns are read again
    bench.inner.answer(1, *[VALID] * ITEMS)
    assert codes(future) == [VALID] * ITEMS
    assert (bench.released, bench.held) == (1, False)


def test_items_without_a_table_are_run_again(bench):
    bench.enroll(0, 1, 2, 3)
    future = bench.submit([0, 1, 2, 3, 0, 1])
    bench.inner.answer(0, VALID, KEY_INDEX, INVALID, KEY_INDEX, Code.HIGH_S, VALID)
    assert not future.done()
    again = bench.inner.batches[1]
    assert again.key.operation == "verify/SM2"
    assert again.inputs[2].data[::64].tolist() == [1, 3]
    assert again.inputs[0].data.reshape(2, 32)[:, 0].tolist() == [32, 96]
    bench.inner.answer(1, VALID, Code.UNDECIDED)
    assert codes(future) == [VALID, VALID, INVALID, Code.UNDECIDED, Code.HIGH_S, VALID]
    assert bits(future.result().valid) == [1, 1, 0, 0, 0, 1]
    assert bits(future.result().decided) == [1, 1, 1, 0, 1, 1]


def test_an_item_whose_index_names_no_key_is_not(bench):
    bench.enroll(0, 1, 2, 3)
    future = bench.submit([0, 0, 0, 0, 0, 0], refused=[2, 4])
    bench.inner.answer(0, VALID, VALID, KEY_INDEX, VALID, KEY_INDEX, VALID)
    assert codes(future) == [VALID, VALID, KEY_INDEX, VALID, KEY_INDEX, VALID]


@pytest.mark.parametrize("error", [DeadlineError("late"), CapacityError("full", 1.0)])
def test_what_cannot_be_run_again_is_left_open(bench, error):
    bench.enroll(0, 1, 2, 3)
    future = bench.submit([0] * ITEMS)
    bench.inner.error = error
    bench.inner.answer(0, VALID, KEY_INDEX, INVALID, VALID, VALID, VALID)
    assert codes(future) == [VALID, Code.UNDECIDED, INVALID, VALID, VALID, VALID]
    assert bits(future.result().decided) == [1, 0, 1, 1, 1, 1]
    assert (bench.released, bench.held) == (1, False)


def test_where_nothing_was_decided_the_error_is_told(bench):
    bench.enroll(0, 1, 2, 3)
    future = bench.submit([0] * ITEMS)
    bench.inner.error = DeadlineError("late")
    bench.inner.answer(0, *[KEY_INDEX] * ITEMS)
    with pytest.raises(DeadlineError, match="late"):
        future.result(0)


def test_a_refusal_at_once(bench):
    bench.enroll(0, 1, 2, 3)
    bench.inner.error = CapacityError("full", 1.0)
    with pytest.raises(CapacityError, match="full"):
        bench.submit([0] * ITEMS).result(0)
    assert not bench.held


def test_a_batch_is_split_where_some_keys_have_tables(bench):
    bench.enroll(0, 1, 2)
    future = bench.submit([0, 1, 3, 2, 0, 3], refused=[5])
    assert bench.inner.operations() == ["verify_enrolled/SM2", "verify/SM2"]
    assert bench.inner.batches[1].inputs[2].data[::64].tolist() == [3]
    bench.inner.answer(1, INVALID)
    assert not future.done()
    assert bench.released == 0
    bench.inner.answer(0, VALID, VALID, VALID, VALID, KEY_INDEX)
    assert codes(future) == [VALID, VALID, INVALID, VALID, VALID, KEY_INDEX]
    assert (bench.released, bench.held) == (1, False)
    wanted = bench.tables.one._wanted[bench.keys]
    assert np.flatnonzero(wanted).tolist() == [3]  # and asked for


def test_with_few_tables_all_keys_go_along(bench):
    bench.enroll(0)
    bench.submit([0, 1, 3, 2, 1, 3])
    assert bench.inner.operations() == ["verify/SM2"]
    assert not bench.held
    assert bench.tables.one.stats.misses == ITEMS


def test_half_of_a_split_batch_fails(bench):
    bench.enroll(0, 1, 2)
    future = bench.submit([0, 1, 3, 2, 0, 1])
    bench.inner.futures[1].set_exception(BackendError("device lost"))
    bench.inner.released[1]()
    bench.inner.answer(0, *[VALID] * 5)
    assert codes(future) == [VALID, VALID, Code.UNDECIDED, VALID, VALID, VALID]


def test_cancelling_drops_every_piece_and_keeps_the_columns_until_they_are_read(bench):
    bench.enroll(0, 1, 2)
    future = bench.submit([0, 1, 3, 2, 0, 1])
    assert future.cancel()
    assert all(inner.cancelled() for inner in bench.inner.futures)
    assert (bench.released, bench.held) == (0, True)  # a device may still be at it
    bench.inner.released[0]()
    assert (bench.released, bench.held) == (0, True)
    bench.inner.released[1]()
    assert (bench.released, bench.held) == (1, False)


def test_other_algorithms_go_without(bench):
    key = bench.catalogue.resolve("verify", "ECDSA_P256").key({})
    keys = KeySet.of("ECDSA_P256", "RAW_XY", 1, Column(np.zeros(64, np.uint8), 64))
    columns = (Column(np.zeros(32, np.uint8), 32), Column(np.zeros(64, np.uint8), 64), Column.absent())
    none = np.zeros(0, np.uint32)
    bench.scheduler.submit(NamedBatch(key, 1, columns, 2, keys, np.zeros(1, np.uint32), none))
    assert bench.inner.operations() == ["verify/ECDSA_P256"]


@pytest.mark.parametrize(
    "change",
    [
        lambda operation: {"parameters": {n: v for n, v in operation.parameters.items() if n != "input_kind"}},
        lambda operation: {"parameters": operation.parameters | {"hash": ("SM3",)}},
        lambda operation: {"inputs": ("signature", "input", "slot")},
    ],
    ids=["a parameter less", "a parameter more", "columns in another order"],
)
def test_an_enrolled_operation_that_asks_for_other_things_is_not_used(bench, change):
    """A rule that `verify_enrolled` does not know would not be kept: low s, for instance."""
    instance = bench.catalogue.resolve("verify_enrolled", "SM2").instance
    operations = tuple(
        operation.model_copy(update=change(operation)) if operation.name == "verify_enrolled" else operation
        for operation in instance.manifest.operations
    )
    manifest = instance.manifest.model_copy(update={"operations": operations})
    other = Instance(99, manifest, "digest", parameters=allowed_numbers(manifest))
    bench.catalogue.table = bench.catalogue.table.with_active(other)
    bench.enroll(0, 1, 2, 3)
    bench.submit([0, 1, 2, 3, 0, 1])
    assert bench.inner.operations() == ["verify/SM2"]
    assert not bench.held


def test_what_is_remembered_of_a_plugin_ends_with_it(bench):
    """One batch key before, during and after the service of a plugin whose `verify_enrolled` has other columns."""
    instance = bench.catalogue.resolve("verify_enrolled", "SM2").instance
    operations = tuple(
        operation.model_copy(update={"inputs": ("signature", "input", "slot")})
        if operation.name == "verify_enrolled"
        else operation
        for operation in instance.manifest.operations
    )
    manifest = instance.manifest.model_copy(update={"operations": operations})
    other = Instance(99, manifest, "digest", parameters=allowed_numbers(manifest))
    bench.enroll(0, 1, 2, 3)
    for active in (instance, instance, other, other, instance):
        bench.catalogue.table = bench.catalogue.table.with_active(active)
        bench.submit([0, 1, 2, 3, 0, 1])
    enrolled, plain = "verify_enrolled/SM2", "verify/SM2"
    assert bench.inner.operations() == [enrolled, enrolled, plain, plain, enrolled]
    assert bench.inner.batches[0].key == bench.inner.batches[1].key == bench.inner.batches[4].key


def test_callers_with_many_user_ids_are_not_remembered_for_ever(bench):
    bench.enroll(0)
    for number in range(600):
        key = replace(bench.catalogue.resolve("verify", "SM2").key({}), constant=number.to_bytes(2, "big"))
        columns = (Column(np.zeros(32, np.uint8), 32), Column(np.zeros(64, np.uint8), 64), Column.absent())
        none = np.zeros(0, np.uint32)
        bench.scheduler.submit(NamedBatch(key, 1, columns, 2, bench.keys, np.zeros(1, np.uint32), none))
        assert bench.inner.batches[-1].key.constant == key.constant
    assert bench.inner.operations() == ["verify_enrolled/SM2"] * 600
    assert 0 < len(bench.scheduler._keys) <= 256


class BrokenError(Exception):
    """What nobody expects."""


def test_a_hold_ends_where_no_piece_can_be_begun(bench):
    bench.enroll(0, 1)
    bench.inner.error = BrokenError()
    future = bench.submit([0, 1] * 3)
    assert isinstance(future.exception(0), BrokenError)
    assert not bench.held
    assert bench.released == 1


def test_a_hold_ends_with_the_first_piece_where_the_second_cannot_be_begun(bench, monkeypatch):
    bench.enroll(0, 1)
    submit = bench.inner.submit

    def once(batch, **wishes):
        bench.inner.error = BrokenError() if bench.inner.batches else None
        return submit(batch, **wishes)

    monkeypatch.setattr(bench.inner, "submit", once)
    future = bench.submit([0, 1, 0, 1, 0, 2])
    assert bench.held
    bench.inner.answer(0, *[VALID] * 5)
    assert codes(future) == [VALID] * 5 + [Code.UNDECIDED]
    assert not bench.held
    assert bench.released == 1


def test_a_hold_ends_where_the_second_run_cannot_be_begun(bench):
    bench.enroll(0, 1)
    future = bench.submit([0, 1] * 3)
    bench.inner.error = BrokenError()
    bench.inner.answer(0, *[KEY_INDEX] * ITEMS)
    assert isinstance(future.exception(0), BrokenError)
    assert not bench.held
    assert bench.released == 1


def test_a_hold_ends_where_something_fails_before_the_first_piece(bench, monkeypatch):
    bench.enroll(0, 1)

    def resolve(*_):
        assert bench.held, "or this would show nothing"
        raise BrokenError

    monkeypatch.setattr(bench.scheduler._catalogue, "resolve", resolve)
    key = BatchKey("sm2", "verify/SM2", ())
    columns = (Column(np.zeros(32 * ITEMS, np.uint8), 32), Column(np.zeros(64 * ITEMS, np.uint8), 64))
    batch = NamedBatch(
        key, ITEMS, (*columns, Column.absent()), 2, bench.keys, np.zeros(ITEMS, np.uint32), np.empty(0, np.uint32)
    )
    with pytest.raises(BrokenError):
        bench.scheduler.submit(batch)
    assert not bench.held
    assert not bench.inner.batches
