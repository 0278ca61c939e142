"""The known-answer gate: what it runs, and that each of its checks fires."""

from __future__ import annotations

import dataclasses
import itertools
from concurrent.futures import Future

import numpy as np
import pytest

from verifier.drivers.build import build_image
from verifier.errors import BackendError, SelfTestError
from verifier.registry import PluginSource, RegistryOptions, common_folder
from verifier.registry._answers import parse_answers
from verifier.registry._selftest import IN_FLIGHT, SIZES, self_test

IDS = itertools.count(1_000_000)  # no registry comes this far


class Watched:
    """A real worker whose batches are noted and whose results may be changed on their way."""

    def __init__(self, worker, change=None):
        self._worker = worker
        self._change = change
        self.device = worker.device
        self.fits = worker.fits
        self.sizes: list[tuple[str, int]] = []
        self.unread = 0
        self.most_unread = 0

    def run(self, instance_id, operation_index, key, parts, deadline=None):
        self.sizes.append((key.operation + (f"+{key.constant.hex()}" if key.constant else ""), parts[0].items))
        self.unread += 1
        self.most_unread = max(self.most_unread, self.unread)
        inner = self._worker.run(instance_id, operation_index, key, parts, deadline)
        watched = self

        class Read(Future):
            def result(self, timeout=None):
                watched.unread -= 1
                results = inner.result(timeout)
                return [watched._change(result) for result in results] if watched._change else results

        return Read()


@pytest.fixture
def loaded(fleet, make, image_cache):
    """The toy on one worker: (worker, instance id, manifest, known answers)."""
    source = PluginSource.read(make("p"), common_folder())
    worker = fleet.workers[0]
    image = build_image(
        source.compiled, source.manifest.source, worker.device.target, source.manifest.defines, cache=image_cache
    )
    number = next(IDS)
    worker.load(number, source.manifest, image)
    yield (
        worker,
        number,
        source.manifest,
        parse_answers(source.manifest, source.files["vectors.json"], "vectors.json"),
    )
    worker.unload(number)


def run(loaded, change=None, *, chunk_items=1200):
    worker, number, manifest, groups = loaded
    watched = Watched(worker, change)
    self_test(watched, number, manifest, groups, chunk_items=chunk_items, timeout_s=60)
    return watched


@pytest.mark.parametrize("chunk_items", [0, 1200])
def test_what_enrols_runs_once_and_whole(loaded, chunk_items):
    """Repeated cases would write one place twice at a time."""
    worker, number, manifest, groups = loaded
    operations = tuple(operation.model_copy(update={"role": "enroll"}) for operation in manifest.operations)
    manifest = manifest.model_copy(update={"operations": operations})
    watched = run((worker, number, manifest, groups), chunk_items=chunk_items)
    assert [items for _, items in watched.sizes] == [len(group) for group in groups]


def test_every_group_whole_and_all_sizes_and_a_full_chunk_of_every_operation(loaded):
    watched = run(loaded)
    seen = set()
    for group in loaded[3]:
        name = group.key.operation + (f"+{group.key.constant.hex()}" if group.key.constant else "")
        first = group.operation_index not in seen
        assert {(name, size) for size in (*(SIZES if first else ()), len(group))} <= set(watched.sizes)
        seen.add(group.operation_index)
    assert SIZES == (1, 31, 32, 33)
    assert [entry for entry in watched.sizes if entry[1] == 1200] == [
        ("verify/PARITY", 1200),
        ("digest/PARITY", 1200),
    ]


def test_the_brief_one_has_every_case(loaded):
    watched = run(loaded, chunk_items=0)
    assert [size for _, size in watched.sizes] == [size for group in loaded[3] for size in sorted({33, len(group)})]


def test_slots_are_left_to_others(loaded):
    assert run(loaded).most_unread == IN_FLIGHT


def test_a_chunk_shrinks_to_what_fits(loaded):
    items = 1 << 16
    watched = run(loaded, chunk_items=items)
    assert not loaded[0].fits(items, items * 40, 0)
    largest = max(size for _, size in watched.sizes)
    assert 1200 < largest < items
    assert items % largest == 0


def flip(array):
    changed = array.copy()
    changed[0] ^= 1
    return changed


def instead(**changes):
    """Replaces fields of a result by what functions make of it."""
    return lambda result: dataclasses.replace(result, **{name: make(result) for name, make in changes.items()})


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (instead(codes=lambda r: np.where(r.codes == 1, 2, r.codes)), "code: expected VALID, got INVALID"),
        (instead(codes=lambda r: np.zeros_like(r.codes)), "code: expected VALID, got UNDECIDED"),
        (instead(codes=lambda r: np.full_like(r.codes, 99)), "code: expected VALID, got 99"),
        (instead(valid=lambda r: flip(r.valid)), "bit of valid: expected True, got False"),
        (instead(decided=lambda r: flip(r.decided)), "bit of decided: expected True, got False"),
        (instead(outputs=lambda r: tuple(o ^ 1 for o in r.outputs)), "digest: expected 02.*0000, got 03.*0101"),
        (instead(outputs=lambda r: ()), "shape is wrong"),
        (instead(codes=lambda r: r.codes[:-1]), "shape is wrong"),
        (instead(items=lambda r: r.items + 1), "shape is wrong: 1 items were sent, 2 came back"),
    ],
)
def test_every_difference_is_an_error(loaded, change, problem):
    with pytest.raises(SelfTestError, match=problem):
        run(loaded, change)


def test_a_device_that_fails_is_a_backend_error(loaded):
    def fail(_result):
        raise BackendError("lost")

    with pytest.raises(BackendError, match="lost"):
        run(loaded, fail)


def test_an_answer_that_never_comes_is_an_error(loaded):
    worker, number, manifest, groups = loaded

    class Silent(Watched):
        def run(self, *_args):
            return Future()

    with pytest.raises(SelfTestError, match=r"cpu:0: a known answer took more than 0\.01 s"):
        self_test(Silent(worker), number, manifest, groups, chunk_items=0, timeout_s=0.01)


def test_the_chunk_follows_the_device(fleet):
    device = fleet.workers[0].device
    options = RegistryOptions()
    sizes = [options.chunk_items(dataclasses.replace(device, units=units)) for units in (1, 2, 16, 128)]
    assert sizes == [256, 512, 4096, 32768]
    assert options.chunk_items(dataclasses.replace(device, kind="cuda")) == 131072
