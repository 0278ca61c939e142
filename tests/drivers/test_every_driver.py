"""What holds for every driver."""

from __future__ import annotations

import dataclasses
import hashlib
import threading

import numpy as np
import pytest

from verifier.drivers import BatchStruct, Image
from verifier.drivers.build import build_image
from verifier.errors import BackendError, PluginError
from verifier.model import Code

SEED = 20240501


def sums_of(data: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    totals = np.concatenate(([0], np.cumsum(data, dtype=np.uint64)))
    return totals[offsets[1:]] - totals[offsets[:-1]]


def test_known_answers(toy, stream, parity_vectors):
    for group in parity_vectors["groups"]:
        cases = group["cases"]
        values = [bytes.fromhex(case["inputs"]["input"]) for case in cases]
        digest = group["operation"] == "digest"
        outcome = toy.run(
            stream,
            len(cases),
            np.frombuffer(b"".join(values), np.uint8),
            offsets=np.cumsum([0, *map(len, values)]),
            salt=bytes.fromhex(group.get("constant", "")),
            kind={"MESSAGE": 1, "DIGEST": 2}[group.get("parameters", {}).get("input_kind", "MESSAGE")],
            stages=("parity_digest",) if digest else ("parity_sum", "parity_decide"),
        )
        assert [Code(code).name for code in outcome.codes] == [case["code"] for case in cases]
        assert outcome.decided.all()
        if digest:
            assert [row.tobytes().hex() for row in outcome.digests] == [case["outputs"]["digest"] for case in cases]


@pytest.mark.parametrize("items", [1, 31, 32, 33, 1000, 5000])
def test_fixed_width_columns_of_every_size(toy, stream, items):
    data = np.random.default_rng(SEED + items).integers(0, 256, items * 32, dtype=np.uint8)
    outcome = toy.run(stream, items, data, stride=32, kind=2)
    even = data.reshape(items, 32).sum(axis=1) % 2 == 0
    assert np.array_equal(outcome.codes, np.where(even, Code.VALID, Code.INVALID))
    assert np.array_equal(outcome.valid, even)
    assert outcome.decided.all()


def test_variable_width_columns(toy, stream):
    generator = np.random.default_rng(SEED)
    lengths = generator.integers(0, 70, 5000)
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    data = generator.integers(0, 256, offsets[-1], dtype=np.uint8)
    outcome = toy.run(stream, 5000, data, offsets=offsets)
    sums = sums_of(data, offsets)
    expected = np.where(lengths == 0, Code.INPUT_LENGTH, np.where(sums % 2 == 0, Code.VALID, Code.INVALID))
    assert (lengths == 0).any()
    assert np.array_equal(outcome.codes, expected)
    assert np.array_equal(outcome.valid, expected == Code.VALID)
    digests = toy.run(stream, 5000, data, offsets=offsets, stages=("parity_digest",)).digests
    assert np.array_equal(digests.view("<u8").ravel(), sums)


def test_what_stays_open_is_not_decided(toy, stream):
    data = np.ones(64, np.uint8)
    outcome = toy.run(stream, 64, data, stride=1, stages=("parity_sum",))
    assert (outcome.codes == Code.RETRY).all()
    assert not outcome.decided.any()
    assert not outcome.valid.any()


def test_an_empty_launch_does_nothing(toy, stream):
    stream.launch(toy.stages["parity_digest"], BatchStruct())
    stream.synchronize()


def test_the_batch_structure_is_copied_by_launch(toy, stream):
    batch = toy._batch(32)
    stream.fill(toy.codes, Code.INVALID, 32)
    stream.launch(toy.stages["publish"], batch)
    batch.codes = batch.valid = batch.decided = 8  # would fault
    batch.items = 1 << 30
    stream.synchronize()


def test_two_streams_at_once(driver, parity, open_parity):
    failures = []

    def work(seed: int) -> None:
        driver.attach()
        toy, stream = open_parity(parity, 3000), driver.stream()
        generator = np.random.default_rng(seed)
        for _ in range(10):
            data = generator.integers(0, 256, 3000 * 8, dtype=np.uint8)
            outcome = toy.run(stream, 3000, data, stride=8)
            if not np.array_equal(outcome.valid, data.reshape(-1, 8).sum(axis=1) % 2 == 0):
                failures.append(seed)
        stream.close()
        toy.close()

    threads = [threading.Thread(target=work, args=(SEED + i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_copies_and_fills(driver, stream):
    data = np.random.default_rng(SEED).integers(0, 256, 100_003, dtype=np.uint8)
    back = np.zeros_like(data)
    buffer = driver.allocate(data.size)
    stream.copy_in(buffer.address, data)
    stream.fill(buffer.address + 10, 0xAB, 5)
    stream.copy_out(back, buffer.address)
    stream.synchronize()
    buffer.close()
    data[10:15] = 0xAB
    assert np.array_equal(back, data)


@pytest.mark.parametrize("kind", ["allocate_managed", "allocate_pinned"])
def test_shared_memory_is_seen_from_both_sides(driver, stream, kind):
    buffer = getattr(driver, kind)(4096)
    buffer.array[:] = 7
    back = np.zeros(4096, np.uint8)
    stream.copy_out(back, buffer.address)
    stream.fill(buffer.address, 9, 2048)
    stream.synchronize()
    assert (back == 7).all()
    assert (buffer.array[:2048] == 9).all()
    assert (buffer.array[2048:] == 7).all()
    buffer.close()


def test_memory_is_aligned_to_64_bytes(driver):
    buffers = [driver.allocate(n) for n in (0, 1, 65)]
    assert all(buffer.address % 64 == 0 for buffer in buffers[1:])
    assert [buffer.nbytes for buffer in buffers] == [0, 1, 65]
    for buffer in buffers:
        buffer.close()


def test_registered_memory_is_used_in_place(driver, stream):
    array = np.zeros(1 << 16, np.uint8)
    buffer = driver.register(array)
    stream.fill(buffer.address, 3, array.size)
    stream.synchronize()
    buffer.close()
    assert (array == 3).all()


def test_arrays_must_be_contiguous_bytes(driver, stream):
    with pytest.raises(ValueError, match=r"source: .* contiguous"):
        stream.copy_in(0, np.zeros((8, 8), np.uint8)[:, 0])
    with pytest.raises(ValueError, match="destination: float64"):
        stream.copy_out(np.zeros(8), 0)
    with pytest.raises(ValueError, match="array: "):
        driver.register(np.zeros(64, np.uint8)[::2])


def test_events_measure_and_order(driver, stream):
    other = driver.stream()
    buffer = driver.allocate_pinned(1)
    buffer.array[0] = 0
    first = stream.record()
    stream.fill(buffer.address, 1, 1)
    second = stream.record()
    other.wait(second)
    back = np.zeros(1, np.uint8)
    other.copy_out(back, buffer.address)
    other.synchronize()
    assert back[0] == 1
    second.synchronize()
    assert second.reached()
    assert second.elapsed_ns(first) >= 0
    for thing in (first, second, other, buffer):
        thing.close()


def test_a_missing_stage_or_constant_is_named(toy):
    with pytest.raises(PluginError, match="stage 'nonsense'"):
        toy.module.function("nonsense")
    with pytest.raises(PluginError, match="constant 'nonsense'"):
        toy.module.constant("nonsense")


def test_functions_say_their_lanes(toy, driver):
    for stage in toy.stages.values():
        assert stage.lanes >= stage.threads >= 1
        assert stage.lanes % stage.threads == 0
    assert toy.module.function("publish") is toy.module.function("publish")


def test_two_builds_side_by_side(driver, parity, parity_files, image_cache, stream, open_parity):
    odd = build_image(parity_files, "parity.cu", driver.info.target, {"VALID_PARITY": 1}, cache=image_cache)
    assert odd.digest != parity.digest
    toys = [open_parity(image, 64) for image in (parity, odd, parity)]
    data = np.arange(64, dtype=np.uint8)
    results = [toy.run(stream, 64, data, stride=1).valid for toy in toys]
    assert np.array_equal(results[0], data % 2 == 0)
    assert np.array_equal(results[1], data % 2 == 1)
    assert np.array_equal(results[2], results[0])
    toys[0].close()
    assert np.array_equal(toys[2].run(stream, 64, data, stride=1).valid, results[0])
    for toy in toys[1:]:
        toy.close()


def test_images_that_do_not_fit_are_refused(driver, parity, parity_files, image_cache):
    with pytest.raises(PluginError, match="for sm_10, this device runs"):
        driver.load(dataclasses.replace(parity, target="sm_10"))
    with pytest.raises(PluginError, match="digest"):
        driver.load(dataclasses.replace(parity, data=parity.data + b"\0"))
    rubbish = b"not an image" * 100
    with pytest.raises(PluginError, match="cannot be loaded"):
        driver.load(Image(parity.target, rubbish, hashlib.sha256(rubbish).hexdigest()))
    foreign = parity_files | {
        "abi.cuh": parity_files["abi.cuh"].replace(b"#define ABI_VERSION 1u", b"#define ABI_VERSION 2u")
    }
    with pytest.raises(PluginError, match="ABI 2"):
        driver.load(build_image(foreign, "parity.cu", parity.target, {}, cache=image_cache))
    bare = {"bare.cu": b'#ifdef __CUDACC_RTC__\nextern "C" __global__ void f() {}\n#endif\n'}
    with pytest.raises(PluginError, match="plugin_info"):
        driver.load(build_image(bare, "bare.cu", parity.target, {}, cache=image_cache))


def test_closing_out_of_order_is_refused(driver, parity):
    module, stream = driver.load(parity), driver.stream()
    buffers = driver.allocate(64), driver.allocate_pinned(64)
    with pytest.raises(BackendError, match="still open: 2 buffers, 1 module, 1 stream"):
        driver.close()
    for child in (stream, *buffers, module):
        child.close()
        child.close()


def test_what_is_closed_is_not_used(driver, parity):
    module, stream = driver.load(parity), driver.stream()
    function = module.function("publish")
    module.close()
    with pytest.raises(BackendError, match="module: it is closed"):
        module.function("publish")
    with pytest.raises(BackendError, match="module: it is closed"):
        stream.launch(function, BatchStruct())
    stream.close()
    with pytest.raises(BackendError, match="stream: it is closed"):
        stream.fill(0, 0, 0)
    driver.close()
    with pytest.raises(BackendError, match="device: it is closed"):
        driver.allocate(64)
    with pytest.raises(BackendError, match="device: it is closed"):
        driver.load(parity)
    driver.close()


def test_memory_comes_back(driver):
    before = driver.memory_free_bytes()
    assert 0 < before <= driver.info.memory_bytes
    buffers = [driver.allocate(1 << 20) for _ in range(64)]
    for buffer in buffers:
        buffer.close()
    if driver.info.kind != "cpu":  # the system's free memory is not this process's alone
        assert driver.memory_free_bytes() == before


def test_more_memory_than_there_is(driver):
    with pytest.raises(BackendError, match="out of memory") as caught:
        driver.allocate(1 << 60)
    assert not caught.value.sticky
    driver.synchronize()
