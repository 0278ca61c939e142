"""Batches in many chunks of long items: their constant and codes are on the device once for all of them."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from _bench import Bench
from _toy import bits

from verifier.drivers import open_driver
from verifier.drivers.fake import Fault, open_fake
from verifier.errors import BackendError
from verifier.model import Batch, BatchKey, BatchResult, Code, Column
from verifier.regions import Region, map_memory
from verifier.workers._borrowed import find_borrowed
from verifier.workers._layout import lay_out

MASK = 0
RESULT_S = 60.0
WIDTH = 256
KEY = b"a key that shows"
CHUNK = {"streams": 3, "chunk_both_ways_bytes": 32 * (WIDTH + 4), "unified_chunk_items": 64}


@pytest.fixture
def open_bench(mask, make_bench):
    def bench(driver, **options) -> Bench:
        return make_bench(driver, *mask(driver.info.target), **{**CHUNK, **options})

    return bench


def batch_of(items: int, key: bytes = KEY) -> Batch:
    random = np.random.default_rng(items)
    data = random.integers(0, 256, (items, WIDTH), np.uint8)
    counters = random.integers(0, 256, (items, 4), np.uint8)
    columns = (
        Column.fixed("data", data.tobytes(), WIDTH, items),
        Column.fixed("counter", counters.tobytes(), 4, items),
    )
    return Batch(BatchKey("mask", "mask/PARITY", (), key), items, columns)


def check(batch: Batch, result: BatchResult) -> None:
    data, counters = (column.data.reshape(batch.items, -1) for column in batch.inputs)
    key = batch.key.constant[0] if batch.key.constant else 0
    np.testing.assert_array_equal(result.outputs[0], data ^ np.tile(counters, WIDTH // 4) ^ key)
    assert (result.codes == Code.VALID).all()
    assert all(bits(result.decided, batch.items))
    assert all(bits(result.valid, batch.items))


@pytest.mark.parametrize("ramp", ["none", "all"])
@pytest.mark.parametrize("memory", ["managed", "device"])
@pytest.mark.parametrize("streams", [1, 3])
def test_sizes_around_chunk_boundaries(device_id, open_bench, ramp, memory, streams):
    bench = open_bench(open_driver(device_id), chunk_ramp=ramp, bitmap_memory=memory, streams=streams)
    for items in (1, 32, 33, 64, 65, 331, 1000):
        for key in (KEY, b""):
            batch = batch_of(items, key)
            check(batch, bench.run(MASK, batch)[0])


def test_batches_in_flight_have_constants_and_codes_of_their_own(device_id, open_bench):
    bench = open_bench(open_driver(device_id))
    batches = [batch_of(200 + i, bytes([i])) for i in range(2)]
    for _ in range(3):
        submitted = [bench.submit(MASK, [batch], slot) for slot, batch in enumerate(batches)]
        for each, batch in zip(submitted, batches, strict=True):
            check(batch, bench.finish(each, [batch])[0])


def test_data_that_stays_in_a_region(device_id, make_worker, mask):
    worker = make_worker(device_id, **CHUNK)
    worker.start()
    worker.load(1, *mask(worker.device.target))
    batch = batch_of(1000)
    data, counters = batch.inputs
    fd = os.memfd_create("test")
    os.truncate(fd, 1 << 20)
    region = Region(fd, 1 << 20, changeable=False)
    try:
        map_memory(region.fd, region.nbytes)[1001:][: data.data.size] = data.data
        place = region.memory[1001:][: data.data.size]
        there = replace(batch, inputs=(replace(data, data=place, region=region), counters))
        assert find_borrowed(lay_out([there], len(KEY), (WIDTH,)), there.key, [there])
        check(batch, worker.run(1, MASK, there.key, [there]).result(RESULT_S)[0])
    finally:
        region.retire()


def test_a_constant_comes_in_once_and_codes_go_out_once(open_bench):
    driver = open_fake("fake:0")
    bench = open_bench(driver)
    batch = batch_of(320)
    driver.calls.clear()
    check(batch, bench.run(MASK, batch)[0])
    calls = Counter(driver.calls)
    assert calls["copy_in"] == 2 * 10 + 1
    assert calls["copy_out"] == 10 + 1
    assert calls["fill"] == 1
    assert calls["wait"] == 2 + 3  # two streams for the constant, and the end for all three


@pytest.mark.parametrize("call", ["copy_in", "fill", "wait", "launch mask_all", "launch publish", "copy_out"])
@pytest.mark.parametrize("later", [False, True])
def test_nothing_is_decided_after_a_failure_in_any_chunk(open_bench, call, later):
    warm_ups = 1 if call.startswith("launch") else 0
    last = {"copy_in": 20, "fill": 0, "wait": 4, "copy_out": 10}.get(call, 9)
    fault = Fault(call, after=warm_ups + last * later, error="boom")
    bench = open_bench(open_fake("fake:0", faults=[fault]))
    submitted = bench.submit(MASK, [batch_of(320)])
    with pytest.raises(BackendError, match="boom") as caught:
        bench.pipeline.finish(submitted)
    assert caught.value.sticky


def held(bench: Bench) -> bytes:
    """All of the device's memory of the pipeline."""
    buffers = [bench.pipeline._whole[0].buffer, *(stream._columns.buffer for stream in bench.pipeline._streams)]
    stream = bench.driver.stream()
    copies = []
    for buffer in buffers:
        if buffer is not None:
            copies.append(np.zeros(buffer.nbytes, np.uint8))
            stream.copy_out(copies[-1], buffer.address)
    stream.synchronize()
    stream.close()
    return b"".join(copy.tobytes() for copy in copies)


def test_a_devices_memory_keeps_no_key(device_id, open_bench):
    driver = open_driver(device_id)
    if driver.info.unified:
        driver.close()
        pytest.skip("it works in the slot itself")
    bench = open_bench(driver)
    batch = batch_of(320)
    check(batch, bench.run(MASK, batch)[0])
    assert KEY in held(bench), "or the next assertion could not fail"
    check(batch, bench.finish(bench.submit(MASK, [batch], secret=True), [batch])[0])
    assert KEY not in held(bench)


def test_a_submission_that_fails_on_its_way_leaves_no_key_and_the_next_is_well(open_bench):
    """The second stream finds no memory: the first has the constant by then."""
    fault = Fault("allocate", after=3, error="out of memory")  # of the state, for all chunks, and the first stream
    bench = open_bench(open_fake("fake:0", faults=[fault]))
    batch = batch_of(320)
    with pytest.raises(BackendError, match="out of memory") as caught:
        bench.submit(MASK, [batch], secret=True)
    assert not caught.value.sticky
    assert bench.driver.calls.count("copy_in") > 2
    assert KEY not in held(bench)
    check(batch, bench.run(MASK, batch)[0])
