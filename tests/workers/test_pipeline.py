"""The pipeline on every driver, in this process."""

from __future__ import annotations

import numpy as np
import pytest
from _bench import Bench
from _toy import (
    DIGEST,
    VERIFY,
    bits,
    check_digest,
    check_verify,
    fixed_batch,
    random_values,
    variable_batch,
)

from verifier.drivers import open_driver
from verifier.drivers.fake import Fault, open_fake
from verifier.errors import BackendError, PluginError
from verifier.model import Batch, Code
from verifier.workers import WorkerOptions
from verifier.workers._instance import Instance
from verifier.workers._layout import lay_out
from verifier.workers._messages import Job, OperationPlan, Plan
from verifier.workers._pipeline import Submitted, _measures
from verifier.workers._plan import usual_items
from verifier.workers._stages import MEASURE_EVERY


@pytest.fixture
def open_bench(manifest, build, make_bench):
    def bench(driver, **options) -> Bench:
        return make_bench(driver, manifest, build(driver.info.target), **options)

    return bench


@pytest.fixture
def small_chunks(device_id, open_bench) -> Bench:
    """Chunks of 32 items, 64 where the device works in place: a full launch of a GPU has a million."""
    return open_bench(
        open_driver(device_id), chunk_rounds=1, chunk_least_bytes=0, chunk_most_bytes=1, unified_chunk_items=64
    )


def chunk_of(bench: Bench, operation: int) -> int:
    """Items of a chunk: it depends on the device."""
    batch = fixed_batch(np.zeros((100, 1), np.uint8))
    job = Job(0, 0, 1, operation, (), None, lay_out([batch], 0, ()))
    if bench.driver.info.unified:
        return bench.options.unified_chunk_items
    return usual_items(_measures(bench.instance.operations[operation], job), bench.pipeline._bounds)


def sizes_around(bench: Bench, operation: int) -> list[int]:
    chunk = chunk_of(bench, operation)
    return [1, 31, 32, 33, chunk - 1, chunk, chunk + 1, 2 * chunk, 5 * chunk + 7]


def test_fixed_columns_around_chunk_boundaries(small_chunks):
    for items in sizes_around(small_chunks, VERIFY):
        batch = fixed_batch(np.random.default_rng(items).integers(0, 256, (items, 3), np.uint8), constant=b"\x01")
        (result,) = small_chunks.run(VERIFY, batch)
        check_verify(batch, result)


def test_full_launches_around_their_boundary(device_id, open_bench):
    """Chunks that fill the device, as in service: the slot is sized from them."""
    width, most = 3, 1 << 25
    bench = open_bench(
        open_driver(device_id), slot_bytes=most, chunk_rounds=1, chunk_least_bytes=0, unified_chunk_items=64
    )
    chunk = chunk_of(bench, VERIFY)
    assert (chunk + 1) * (width + 2) < most
    for items in (chunk - 1, chunk, chunk + 1, 2 * chunk + 33):
        values = np.random.default_rng(items).integers(0, 256, (items, width), np.uint8)
        (result,) = bench.run(VERIFY, fixed_batch(values))
        right = values.sum(axis=1) % 2 == 0
        assert np.unpackbits(result.decided, count=items, bitorder="little").all()
        np.testing.assert_array_equal(np.unpackbits(result.valid, count=items, bitorder="little"), right)
        np.testing.assert_array_equal(result.codes, np.where(right, Code.VALID, Code.INVALID))


def test_variable_columns_around_chunk_boundaries(small_chunks):
    for items in sizes_around(small_chunks, VERIFY):
        batch = variable_batch(random_values(items, items), constant=b"\x02\x03")
        (result,) = small_chunks.run(VERIFY, batch)
        check_verify(batch, result)


def test_outputs_around_chunk_boundaries(small_chunks):
    for items in sizes_around(small_chunks, DIGEST):
        batch = variable_batch(random_values(items, items), operation="digest")
        (result,) = small_chunks.run(DIGEST, batch)
        check_digest(batch, result)


def test_parts_at_any_boundary(small_chunks):
    parts = [variable_batch(random_values(items, items)) for items in (1, 33, 7, 64, 2)]
    parts.append(fixed_batch(np.arange(60, dtype=np.uint8).reshape(20, 3)))
    for part, result in zip(parts, small_chunks.run(VERIFY, *parts), strict=True):
        check_verify(part, result)


@pytest.mark.parametrize("memory", ["managed", "pinned", "device"])
def test_every_kind_of_bitmap_memory(device_id, open_bench, memory):
    bench = open_bench(open_driver(device_id), chunk_rounds=1, chunk_least_bytes=0, bitmap_memory=memory)
    for items in (33, 1000):
        batch = variable_batch(random_values(items, 5))
        (result,) = bench.run(VERIFY, batch)
        check_verify(batch, result)


def test_batches_in_flight_do_not_disturb_each_other(small_chunks):
    batches = [variable_batch(random_values(200 + i, i)) for i in range(6)]
    before: tuple[Submitted, Batch] | None = None
    for i, batch in enumerate(batches):
        submitted = small_chunks.submit(VERIFY, [batch], slot=i % 2)
        if before is not None:
            check_verify(before[1], small_chunks.finish(before[0], [before[1]])[0])
        before = submitted, batch
    assert before is not None
    check_verify(before[1], small_chunks.finish(before[0], [before[1]])[0])


def test_memory_stays_flat_over_equal_batches(device_id, open_bench):
    driver = open_driver(device_id)
    bench = open_bench(driver)
    batch = fixed_batch(np.ones((5000, 3), np.uint8))
    free = []
    for _ in range(3 * WorkerOptions().streams):  # each stream takes its memory the first time it is used
        bench.run(VERIFY, batch)
        free.append(driver.memory_free_bytes())
    if driver.info.kind != "cpu":  # the CPU's is everyone's
        assert len(set(free[WorkerOptions().streams :])) == 1


@pytest.mark.parametrize(
    "skipped", [("parity_sum",), ("parity_decide",), ("publish",), ("parity_sum", "parity_decide")], ids="+".join
)
@pytest.mark.parametrize("items", [200, 40_000], ids=["small", "large"])
@pytest.mark.parametrize("chunks", ["several chunks", "one chunk"])
def test_a_stage_that_does_not_run_leaves_its_items_undecided(device_id, open_bench, skipped, chunks, items):
    """Neither the slot nor the device's memory may lend an earlier batch's verdicts."""
    size = items // 128 * 32
    options = {"unified_chunk_items": 1 << 20}
    if chunks == "several chunks":
        options = {
            "unified_chunk_items": size,
            "chunk_most_bytes": 2 * size,
            "chunk_rounds": 1,
            "chunk_least_bytes": 0,
        }
    bench = open_bench(open_driver(device_id), **options)
    batch = fixed_batch(np.zeros((items, 2), np.uint8))
    assert bits(bench.run(VERIFY, batch)[0].valid, items) == [True] * items
    operation = bench.instance.operations[VERIFY]
    operation.stages = [stage for stage in operation.stages if stage.name not in skipped]
    (result,) = bench.run(VERIFY, batch)
    assert not bits(result.decided, items).count(True)
    assert not bits(result.valid, items).count(True)
    if "parity_sum" in skipped:
        assert not result.codes.any()


@pytest.mark.parametrize("call", ["copy_in", "fill", "launch parity_sum", "launch publish", "copy_out"])
def test_nothing_is_decided_after_a_failure(open_bench, call):
    driver = open_fake("fake:0", faults=[Fault(call, after=2 if call.startswith("launch") else 0, error="boom")])
    bench = open_bench(driver, chunk_rounds=1, chunk_least_bytes=0)
    batch = fixed_batch(np.zeros((200, 2), np.uint8))
    submitted = bench.submit(VERIFY, [batch])
    with pytest.raises(BackendError, match="boom") as caught:
        bench.pipeline.finish(submitted)
    # What was skipped behind the failure cannot be known here, so the whole process has to go.
    assert caught.value.sticky


def test_a_failure_leaves_no_bit_of_the_slot_decided(open_bench):
    """The bitmaps are read from the device only after success, so the slot keeps what the caller put there."""
    bench = open_bench(open_fake("fake:0", faults=[Fault("launch parity_sum", after=1, error="boom")]))
    batch = fixed_batch(np.zeros((200, 2), np.uint8))
    layout = lay_out([batch], 0, ())
    bench.slots[0][layout.valid : layout.nbytes] = 0
    submitted = bench.submit(VERIFY, [batch])
    with pytest.raises(BackendError):
        bench.pipeline.finish(submitted)
    assert not bench.slots[0][layout.valid : layout.nbytes].any()


def test_too_little_memory_fails_one_batch_and_no_other(open_bench):
    driver = open_fake("fake:0", memory_bytes=1 << 20)
    bench = open_bench(driver, chunk_rounds=1 << 10, bitmap_memory="pinned")
    small = fixed_batch(np.ones((100, 2), np.uint8))
    large = fixed_batch(np.ones((20_000, 30), np.uint8))
    check_verify(small, bench.run(VERIFY, small)[0])
    with pytest.raises(BackendError, match="out of memory") as caught:
        bench.submit(VERIFY, [large])
    assert not caught.value.sticky
    check_verify(small, bench.run(VERIFY, small)[0])


def test_a_state_that_does_not_fit_is_refused_with_both_sizes(manifest, image):
    driver = open_fake("fake:0", memory_bytes=100)
    plan = Plan(manifest.state, ())
    with pytest.raises(BackendError, match="256 bytes, 100 are free"):
        Instance(driver, plan, image)
    driver.close()  # refused while anything of it is open


def test_a_failed_load_frees_what_it_took(manifest, image):
    driver = open_fake("fake:0")
    free = driver.memory_free_bytes()
    with pytest.raises(PluginError, match="no_such_stage"):
        Instance(driver, Plan(manifest.state, (OperationPlan(("no_such_stage",), ()),)), image)
    assert driver.memory_free_bytes() == free
    driver.close()


def test_loads_and_unloads_leave_the_memory_flat(device_id, manifest, build):
    driver = open_driver(device_id)
    if driver.info.kind == "cpu":
        driver.close()
        pytest.skip("its memory is everyone's")
    image = build(driver.info.target)
    plan = Plan(manifest.state, tuple(OperationPlan(o.stages, ()) for o in manifest.operations))
    free = []
    for _ in range(200):
        Instance(driver, plan, image).close()
        free.append(driver.memory_free_bytes())
    assert len(set(free[5:])) == 1
    driver.close()


def test_loading_launches_every_stage_once(open_bench, manifest):
    driver = open_fake("fake:0")
    open_bench(driver)
    stages = [*manifest.state, *(stage for o in manifest.operations for stage in o.stages), "publish"]
    assert {call for call in driver.calls if call.startswith("launch")} == {f"launch {stage}" for stage in stages}


def test_a_batch_of_one_chunk_is_copied_once_each_way(open_bench):
    driver = open_fake("fake:0")
    bench = open_bench(driver)
    batch = variable_batch(random_values(100, 1), constant=b"salt")
    driver.calls.clear()
    bench.run(VERIFY, batch)
    assert [call for call in driver.calls if call.startswith("copy")] == ["copy_in", "copy_out"]


@pytest.mark.parametrize(("ramp", "chunk_waits"), [("none", 0), ("kernels", 1)])
def test_chunks_take_turns_over_the_streams(open_bench, ramp, chunk_waits):
    """The end waits for each stream where they are several. With a ramp a chunk's copies wait for those before it."""
    driver = open_fake("fake:0")
    bench = open_bench(driver, streams=3, chunk_rounds=1, chunk_least_bytes=0, chunk_ramp=ramp)
    chunk = chunk_of(bench, VERIFY)
    for chunks, streams in ((1, 0), (2, 2), (3, 3), (10, 3)):
        batch = fixed_batch(np.zeros((chunks * chunk, 1), np.uint8))
        driver.calls.clear()
        check_verify(batch, bench.run(VERIFY, batch)[0])
        assert driver.calls.count("wait") == streams + (chunks - 1) * chunk_waits


def test_a_batch_on_an_idle_device_begins_with_what_is_no_whole_round(open_bench):
    """And behind another batch it does not."""
    bench = open_bench(open_fake("fake:0"), chunk_rounds=2, chunk_least_bytes=0)
    chunk = chunk_of(bench, VERIFY)
    batch = fixed_batch(np.zeros((chunk + 20, 1), np.uint8))

    first, second = (bench.submit(VERIFY, [batch], slot) for slot in (0, 1))
    for submitted in (first, second):
        check_verify(batch, bench.finish(submitted, [batch])[0])
    assert first.sizes == [32, chunk - 12]
    assert second.sizes == [chunk, 20]


def test_how_the_time_divides_is_measured_on_some_batches(device_id, small_chunks):
    """A device that works in place has kernels and no copies; elsewhere events of every 16th batch say."""
    batch = fixed_batch(np.zeros((200, 2), np.uint8))
    found = []
    for _ in range(MEASURE_EVERY + 1):
        submitted = small_chunks.submit(VERIFY, [batch])
        small_chunks.pipeline.finish(submitted)
        found.append(submitted.stages)
    if small_chunks.driver.info.unified:
        assert all(stages[0] == stages[2] == 0 < stages[1] for stages in found)
        return
    assert [stages is not None for stages in found] == [True, *[False] * (MEASURE_EVERY - 1), True]
    assert all(ns >= 0 for ns in found[0])
