"""Enrolled keys on a GPU: known answers with every window that has another layout, and rates only in the bench."""

from __future__ import annotations

import numpy as np
import pytest

from verifier.bench.rig import Rig
from verifier.bench.signatures import make_signatures
from verifier.drivers import list_devices
from verifier.keys import RESERVED_SLOTS
from verifier.keys._memory import row_count
from verifier.manifest import load_manifest
from verifier.model import Code, Column
from verifier.registry import common_folder, shipped_folder

from .conftest import PLUGIN, WAIT_S, Stack, same, set_of

GENERATION = 5


@pytest.fixture(scope="module")
def gpu():
    if not any(device.id == "cuda:0" for device in list_devices()):
        pytest.skip("no NVIDIA GPU here")
    return "cuda:0"


@pytest.mark.gpu
@pytest.mark.parametrize("algorithm", PLUGIN)
@pytest.mark.parametrize("window", [4, 8, 12])
def test_rows_side_by_side_and_verdicts(gpu, algorithm, window):
    """A table written row by row, in one batch for all keys, gives the verdicts of the keys."""
    folder = shipped_folder() / PLUGIN[algorithm]
    choice = load_manifest(folder).choice("", {"WINDOW_KEY": window, "KEY_SLOTS": 512})
    made = make_signatures(algorithm, 20_000, seed=4, keys=200, fault_share=0.05)
    keys, indices = set_of(made)
    good = np.flatnonzero(keys.usable)
    rows = row_count(window)
    names = np.zeros((rows, good.size, 3), "<u4")
    names[:, :, 0] = np.arange(good.size) + RESERVED_SLOTS
    names[:, :, 1], names[:, :, 2] = GENERATION, np.arange(rows)[:, None]
    bytes_of = keys.keys.data.reshape(-1, 64)[good]
    with Rig(gpu, folder, common_folder(), choice=choice) as rig:

        def run(operation: str, columns: dict[str, Column], items: int) -> np.ndarray:
            slot = rig.fill(operation, algorithm, columns, items)
            rig.run(slot)
            return slot.codes.copy()

        key = Column(np.tile(bytes_of, (rows, 1)).reshape(-1), 64)
        row = Column(names.reshape(-1).view(np.uint8), 12)
        assert (run("tabulate", {"row": row, "key": key}, rows * good.size) == Code.VALID).all()
        slots = np.ascontiguousarray(names[0, :, :2])
        slot = Column(slots.reshape(-1).view(np.uint8), 8)
        assert (run("enroll", {"slot": slot, "key": Column(bytes_of.reshape(-1), 64)}, good.size) == Code.VALID).all()
        place = np.full(keys.items, -1)
        place[good] = np.arange(good.size)
        items = np.flatnonzero(place[indices] >= 0)
        columns = {
            "input": Column(made.digests[items].reshape(-1), 32),
            "signature": Column(made.signatures[items].reshape(-1), 64),
            "slot": Column(slots[place[indices[items]]].reshape(-1).view(np.uint8), 8),
        }
        np.testing.assert_array_equal(run("verify_enrolled", columns, items.size), made.codes[items])


@pytest.mark.gpu
def test_beside_the_cpu(gpu):
    """A daemon's parts on both: the same verdicts from tables and from keys, wherever a batch runs."""
    stack = Stack("SM2", [gpu, "cpu"])
    try:
        made = make_signatures("SM2", 20_000, seed=6, keys=300, fault_share=0.05)
        keys, indices = set_of(made)
        batch, refused = stack.named(keys, made.digests, made.signatures, indices)
        stack.enroll(keys)
        result = stack.by_tables.submit(batch).result(WAIT_S)
        assert stack.stats().hits == batch.items
        same(result, stack.plain.submit(batch).result(WAIT_S), refused)
    finally:
        stack.close()
