"""Verdicts from tables are those from keys, bit for bit: on every curve, and whatever happens to the tables."""

from __future__ import annotations

import os
import signal
import threading

import numpy as np
import pytest
from _ecdsa_cases import edges as ecdsa_edges
from _reference import P256, SECP256K1
from _sm2_cases import edges as sm2_edges
from _sm2_cases import exceptional
from _waiting import until

from verifier.bench.signatures import SignatureSet, make_signatures
from verifier.keys import RESERVED_SLOTS, KeySet
from verifier.keys._memory import TableShape
from verifier.model import Code, Column

from .conftest import WAIT_S, Stack, same, set_of

ALGORITHMS = ("SM2", "ECDSA_P256", "ECDSA_SECP256K1")


@pytest.fixture(scope="module", params=ALGORITHMS)
def stack(request):
    made = Stack(request.param)
    yield made
    made.close()


def crafted(algorithm: str) -> SignatureSet:
    """Edge values, exceptional sums (u1 G = +-u2 Q, infinity), keys that are none."""
    if algorithm == "SM2":
        items = [*sm2_edges(), *exceptional()]
    else:
        items = ecdsa_edges(P256 if algorithm == "ECDSA_P256" else SECP256K1)
    columns = [
        np.frombuffer(b"".join(getattr(item, name) for item in items), np.uint8).reshape(len(items), -1)
        for name in ("digest", "signature", "key_bytes")
    ]
    codes = np.array([item.code for item in items], np.uint8)
    return SignatureSet(algorithm, *columns, np.zeros(len(items), np.uint8), codes, [item.name for item in items])


@pytest.mark.parametrize("which", ["random", "crafted"])
def test_on_every_curve(stack, which):
    made = crafted(stack.algorithm)
    if which == "random":
        made = make_signatures(stack.algorithm, 500, seed=3, keys=9, fault_share=0.3)
    keys, indices = set_of(made)
    indices = np.append(indices, [keys.items, 2**32 - 1]).astype(np.uint32)  # two that name no key
    digests, signatures = (
        np.vstack([made.digests, made.digests[:2]]),
        np.vstack([made.signatures, made.signatures[:2]]),
    )
    batch, refused = stack.named(keys, digests, signatures, indices)
    assert refused.size >= 3
    stack.enroll(keys)
    before = stack.stats().hits
    by_tables = stack.by_tables.submit(batch).result(WAIT_S)
    assert stack.stats().hits == before + batch.items
    by_keys = stack.plain.submit(batch).result(WAIT_S)
    same(by_tables, by_keys, refused)
    read = np.setdiff1d(np.arange(made.items), refused)
    np.testing.assert_array_equal(by_tables.codes[read], made.codes[read])
    assert np.count_nonzero(by_tables.codes == Code.VALID) > 10
    stack.tables.release(keys)


def expected(result, made, refused) -> None:
    read = np.setdiff1d(np.arange(made.items), refused)
    np.testing.assert_array_equal(result.codes[read], made.codes[read])
    decided = np.unpackbits(result.decided, count=made.items, bitorder="little").astype(np.bool_)
    assert decided[read].all()


def test_a_set_with_more_keys_than_slots_is_split(fresh, signatures, monkeypatch):
    few(monkeypatch, 10)
    keys, indices = set_of(signatures)
    batch, refused = fresh.named(keys, signatures.digests, signatures.signatures, indices)
    fresh.tables.register(keys)
    until(lambda: fresh.stats().enrolled == 10)
    monkeypatch.setattr("verifier.keys._scheduler._SPLIT", 1.0)
    expected(fresh.by_tables.submit(batch).result(WAIT_S), signatures, refused)
    stats = fresh.stats()
    assert stats.hits > 0
    assert stats.misses > 0
    assert not keys.view.whole


def few(monkeypatch, slots: int) -> None:
    """Leaves room for so many keys."""
    real = TableShape.of

    def of(defines, *, gpu):
        shape = real(defines, gpu=gpu)
        return TableShape(RESERVED_SLOTS + slots, shape.rows, shape.slot_bytes)

    monkeypatch.setattr("verifier.keys._tables.TableShape.of", of)


def test_while_tables_are_built_evicted_and_given_away(fresh, signatures, monkeypatch):
    """Two sets that do not fit beside one another, and batches of both all the time."""
    few(monkeypatch, 5)
    monkeypatch.setattr("verifier.keys._tables._IDLE_S", 0.0)
    monkeypatch.setattr("verifier.keys._scheduler._SPLIT", 1.0)
    sets = [make_signatures("SM2", 200, seed=seed, keys=4, fault_share=0.2) for seed in (11, 12)]
    work = []
    for made in sets:
        keys, indices = set_of(made)
        fresh.tables.register(keys)
        work.append((made, *fresh.named(keys, made.digests, made.signatures, indices)))
    problems = []

    def ask(number: int) -> None:
        try:
            for turn in range(40):
                made, batch, refused = work[(number + turn) % 2]
                expected(fresh.by_tables.submit(batch).result(WAIT_S), made, refused)
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems
    stats = fresh.stats()
    assert stats.evictions > 0
    assert stats.hits > 0
    assert stats.misses > 0


def test_a_device_that_was_started_anew(fresh, signatures):
    keys, indices = set_of(signatures)
    batch, refused = fresh.named(keys, signatures.digests, signatures.signatures, indices)
    fresh.enroll(keys)
    built = fresh.stats().builds
    worker = fresh.fleet.workers[0]
    restarts = worker.restarts
    os.kill(worker.pid, signal.SIGKILL)
    for _ in range(5):
        expected(fresh.by_tables.submit(batch).result(WAIT_S), signatures, refused)
    until(lambda: worker.restarts > restarts and fresh.stats().builds > built and keys.view.whole)
    hits = fresh.stats().hits
    expected(fresh.by_tables.submit(batch).result(WAIT_S), signatures, refused)
    assert fresh.stats().hits == hits + batch.items


def test_a_plugin_that_was_replaced(fresh, signatures):
    keys, indices = set_of(signatures)
    batch, refused = fresh.named(keys, signatures.digests, signatures.signatures, indices)
    fresh.enroll(keys)
    built = fresh.stats().builds
    first = fresh.by_tables.submit(batch).result(WAIT_S)
    fresh.registry.load("sm2", force=True)
    second = fresh.by_tables.submit(batch).result(WAIT_S)
    expected(second, signatures, refused)
    until(lambda: fresh.stats().builds >= 2 * built and keys.view.whole)
    third = fresh.by_tables.submit(batch).result(WAIT_S)
    expected(third, signatures, refused)
    assert first.served_by != third.served_by
    fresh.registry.rollback("sm2")
    expected(fresh.by_tables.submit(batch).result(WAIT_S), signatures, refused)


def test_tables_that_are_gone_without_a_word(fresh, signatures):
    """The host still names slots that no device has: their items are run again, and none is KEY_INDEX."""
    keys, indices = set_of(signatures)
    batch, refused = fresh.named(keys, signatures.digests, signatures.signatures, indices)
    fresh.enroll(keys)
    fresh.tables.close()
    assert keys.view.whole
    fresh.registry.load("sm2", force=True)
    hits = fresh.stats().hits
    result = fresh.by_tables.submit(batch).result(WAIT_S)
    assert fresh.stats().hits == hits + batch.items  # it went by tables first
    expected(result, signatures, refused)
    same(result, fresh.plain.submit(batch).result(WAIT_S), refused)


def test_a_device_without_tables_of_some_keys_only(fresh, signatures):
    """As above, for some of the items of a batch."""
    keys, indices = set_of(signatures)
    batch, refused = fresh.named(keys, signatures.digests, signatures.signatures, indices)
    fresh.enroll(keys)
    fresh.tables.close()
    names = keys.view.names.copy()
    names[::2] += np.uint64(1 << 32)  # generations that nobody has built
    keys.publish(keys.view._replace(names=names))
    result = fresh.by_tables.submit(batch).result(WAIT_S)
    expected(result, signatures, refused)


def test_tables_on_one_device_only(fresh, signatures):
    fresh.tables.close()
    fresh.open_tables(("cpu:1",))
    keys, indices = set_of(signatures)
    batch, refused = fresh.named(keys, signatures.digests, signatures.signatures, indices)
    fresh.enroll(keys)
    assert [device for device, _ in fresh.stats().bytes_by_device] == ["cpu:1"]
    for _ in range(4):  # some of them on the other device
        expected(fresh.by_tables.submit(batch).result(WAIT_S), signatures, refused)


def test_a_pinned_version_goes_without_tables(fresh, signatures):
    keys, indices = set_of(signatures)
    batch, refused = fresh.named(keys, signatures.digests, signatures.signatures, indices)
    fresh.enroll(keys)
    hits = fresh.stats().hits
    key = fresh.registry.resolve("verify", "SM2", "sm2@1.0.0").key({}, batch.key.constant)
    pinned = type(batch)(key, batch.items, batch.inputs, batch.key_at, keys, batch.indices, refused)
    expected(fresh.by_tables.submit(pinned).result(WAIT_S), signatures, refused)
    assert fresh.stats().hits == hits


def test_encodings_of_keys(fresh, signatures):
    """Compressed keys: the table is the same point's."""
    valid = signatures.codes == Code.VALID
    made = SignatureSet(
        "SM2", *(c[valid] for c in (signatures.digests, signatures.signatures, signatures.keys)), None, None, []
    )
    rows, indices = np.unique(made.keys, axis=0, return_inverse=True)
    compressed = np.column_stack([2 + (rows[:, 63] & 1), rows[:, :32]]).astype(np.uint8)
    keys = KeySet.of("SM2", "SEC1_COMPRESSED", len(rows), Column(compressed.reshape(-1), 33))
    batch, _ = fresh.named(keys, made.digests, made.signatures, indices.reshape(-1))
    batch = type(batch)(fresh.key(3), batch.items, batch.inputs, 2, keys, batch.indices, batch.refused)
    fresh.enroll(keys)
    assert (fresh.by_tables.submit(batch).result(WAIT_S).codes == Code.VALID).all()
    assert fresh.stats().hits == batch.items


def test_a_set_that_found_no_room_gets_it_later(fresh, monkeypatch):
    few(monkeypatch, 4)
    monkeypatch.setattr("verifier.keys._tables._IDLE_S", 1e9)  # whatever this takes here, no key is idle so long
    sets = [make_signatures("SM2", 60, seed=seed, keys=4) for seed in (51, 52)]
    first, second = (set_of(made) for made in sets)
    fresh.enroll(first[0])
    fresh.tables.register(second[0])
    batch, _ = fresh.named(second[0], sets[1].digests, sets[1].signatures, second[1])
    assert (fresh.by_tables.submit(batch).result(WAIT_S).codes == Code.VALID).all()
    assert not second[0].view.names.any()  # the first one's are in use
    fresh.tables.release(first[0])
    assert (fresh.by_tables.submit(batch).result(WAIT_S).codes == Code.VALID).all()
    until(lambda: second[0].view.whole)
    hits = fresh.stats().hits
    assert (fresh.by_tables.submit(batch).result(WAIT_S).codes == Code.VALID).all()
    assert fresh.stats().hits == hits + batch.items


def test_the_key_that_was_idle_longest_leaves(fresh, monkeypatch):
    few(monkeypatch, 4)
    monkeypatch.setattr("verifier.keys._tables._IDLE_S", 0.0)
    sets = [make_signatures("SM2", 60, seed=seed, keys=4) for seed in (51, 52)]
    first, second = (set_of(made) for made in sets)
    fresh.enroll(first[0])
    batch, _ = fresh.named(second[0], sets[1].digests, sets[1].signatures, second[1])
    assert (fresh.by_tables.submit(batch).result(WAIT_S).codes == Code.VALID).all()  # which asks for its keys
    until(lambda: second[0].view.whole)
    assert not first[0].view.names.any()
    assert fresh.stats().evictions == 4
