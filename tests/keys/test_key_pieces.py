"""What becomes of a batch's pieces and its columns: run again, split, cancelled, let go of."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

from verifier.attended import Attended
from verifier.errors import BackendError, CapacityError, DeadlineError
from verifier.keys import NamedBatch
from verifier.model import BatchKey, BatchResult, Code, Column

from ._answered_by_hand import INVALID, ITEMS, KEY_INDEX, VALID, bits, codes


def test_whoever_waits_attends_to_the_batch_by_slots(bench, monkeypatch):
    bench.enroll(0, 1, 2, 3)
    inner: Attended[BatchResult] = Attended()
    inner.attend = lambda *_: bench.inner.answer(0, *[VALID] * ITEMS)
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
