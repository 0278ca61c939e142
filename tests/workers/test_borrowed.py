"""Columns that stay in regions: read there, whatever is merged or cut, and counted."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import numpy as np
import pytest
from _toy import DIGEST, VERIFY, check_digest, check_verify, fixed_batch, variable_batch
from _waiting import until

from verifier.errors import NotFoundError
from verifier.model import Batch
from verifier.regions import Region, map_memory
from verifier.scheduling._work import cut
from verifier.workers._borrowed import LEAST_BYTES, find_borrowed
from verifier.workers._layout import lay_out

RESULT_S = 60


def in_region(batch: Batch, region: Region, at: int) -> Batch:
    """The batch with its column's data in the region."""
    (column,) = batch.inputs
    place = region.memory[at : at + column.data.size]
    writable = map_memory(region.fd, region.nbytes)
    writable[at : at + column.data.size] = column.data
    return dataclasses.replace(batch, inputs=(dataclasses.replace(column, data=place, region=region),))


@pytest.fixture(params=[False, True], ids=["ours", "a client's"])
def region(request):
    """Memory of 4 MiB, of a front end or of a client."""
    fd = os.memfd_create("test")
    os.truncate(fd, 4 << 20)
    made = Region(fd, 4 << 20, changeable=request.param)
    yield made
    made.retire()


@pytest.fixture
def worker(make_worker, manifest, build, device_id):
    made = make_worker(device_id, slot_bytes=4 << 20)
    made.start()
    made.load(1, manifest, build(made.device.target))
    return made


def rows(items: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (items, 32), dtype=np.uint8)


def strings(items: int, seed: int) -> list[bytes]:
    generator = np.random.default_rng(seed)
    return [generator.bytes(int(size)) for size in generator.integers(0, 90, items)]


@pytest.mark.parametrize("make", [lambda: fixed_batch(rows(5000, 1)), lambda: variable_batch(strings(5000, 1))])
@pytest.mark.parametrize("at", [0, 64, 1001])
def test_one_batch(worker, region, make, at):
    batch = in_region(make(), region, at)
    assert find_borrowed(lay_out([batch], 0, ()), batch.key, [batch])
    check_verify(batch, worker.run(1, VERIFY, batch.key, [batch]).result(RESULT_S)[0])


def test_what_is_merged(worker, region):
    """Parts in the region beside parts in memory of the parent, small ones and empty ones."""
    parts = [
        variable_batch(strings(3000, 2)),
        in_region(variable_batch(strings(4000, 3)), region, 0),
        in_region(fixed_batch(rows(3000, 4)), region, 1 << 20),
        variable_batch([]),
        in_region(variable_batch(strings(20, 5)), region, 3 << 20),
        in_region(fixed_batch(rows(4096, 6)), region, (3 << 20) + 4096),
    ]
    assert len(find_borrowed(lay_out(parts, 0, ()), parts[0].key, parts)) == 3
    for part, result in zip(parts, worker.run(1, VERIFY, parts[0].key, parts).result(RESULT_S), strict=True):
        check_verify(part, result)


def test_what_is_cut(worker, region):
    """Pieces of a batch, with outputs, in chunks of their own on a device that copies."""
    for batch in (
        in_region(fixed_batch(rows(20000, 7), operation="digest"), region, 0),
        in_region(variable_batch(strings(20000, 8), operation="digest"), region, 0),
    ):
        pieces = [cut(batch, 0, 8192), cut(batch, 8192, 20000)]
        assert all(find_borrowed(lay_out([piece], 0, ()), piece.key, [piece]) for piece in pieces)
        for piece in pieces:
            check_digest(piece, worker.run(1, DIGEST, piece.key, [piece]).result(RESULT_S)[0])


def test_a_small_column_is_copied(region):
    batch = in_region(fixed_batch(np.zeros((LEAST_BYTES // 32 - 1, 32), np.uint8)), region, 0)
    assert find_borrowed(lay_out([batch], 0, ()), batch.key, [batch]) == ()


def test_a_new_process_gets_the_regions_anew(worker, region):
    batch = in_region(fixed_batch(rows(5000, 9)), region, 0)
    check_verify(batch, worker.run(1, VERIFY, batch.key, [batch]).result(RESULT_S)[0])
    before = worker.pid
    os.kill(before, 9)
    until(lambda: worker.pid not in (None, before) and worker.room() > 0)
    check_verify(batch, worker.run(1, VERIFY, batch.key, [batch]).result(RESULT_S)[0])


def test_a_region_is_gone_when_its_last_batch_is_done(worker):
    gone = []
    region = Region.create(1 << 20, gone.append)
    region.hold()
    batch = in_region(fixed_batch(rows(5000, 10)), region, 0)
    worker.run(1, VERIFY, batch.key, [batch]).result(RESULT_S)
    assert _maps(worker.pid) == 1
    region.retire()
    with pytest.raises(NotFoundError, match="not registered any more"):
        region.hold()
    assert not gone
    check_verify(batch, worker.run(1, VERIFY, batch.key, [batch]).result(RESULT_S)[0])
    region.release()
    assert gone == [region]
    worker.unmap(region.id)
    until(lambda: _maps(worker.pid) == 0)
    worker.unmap(region.id)  # unknown by now: no error
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(region.fd)


def _maps(pid: int) -> int:
    return Path(f"/proc/{pid}/maps").read_text().count("verifier-region")
