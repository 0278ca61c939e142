"""By tables or with their keys: which way batches of named keys go, and their callers' wishes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from verifier.errors import CapacityError, NotServedError
from verifier.keys import RESERVED_SLOTS, KeySet, NamedBatch, key_table
from verifier.model import Column
from verifier.registry import Instance
from verifier.registry._parameters import allowed_numbers
from verifier.scheduling import Priority

from ._answered_by_hand import INVALID, ITEMS, VALID, codes


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


def test_a_refusal_at_once(bench):
    bench.enroll(0, 1, 2, 3)
    bench.inner.error = CapacityError("full", 1.0)
    with pytest.raises(CapacityError, match="full"):
        bench.submit([0] * ITEMS).result(0)
    assert not bench.held


def test_with_few_tables_all_keys_go_along(bench):
    bench.enroll(0)
    bench.submit([0, 1, 3, 2, 1, 3])
    assert bench.inner.operations() == ["verify/SM2"]
    assert not bench.held
    assert bench.tables.one.stats.misses == ITEMS


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
