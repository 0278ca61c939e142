"""What a result must be."""

from __future__ import annotations

import numpy as np
from _by_hand import batch, judge

from verifier.model import BatchResult

RNG = np.random.default_rng(20260730)


def _values(items):
    return RNG.integers(0, 256, items, dtype=np.uint8)


def assert_right(result: BatchResult, values) -> None:
    whole = judge(batch(values))
    np.testing.assert_array_equal(result.valid, whole.valid)
    np.testing.assert_array_equal(result.decided, whole.decided)
    np.testing.assert_array_equal(result.codes, whole.codes)
    np.testing.assert_array_equal(result.outputs[0], whole.outputs[0])


def assert_undetermined(result: BatchResult, items: int) -> None:
    assert result.items == items
    assert not result.decided.any()
    assert not result.valid.any()
    assert not result.codes.any()
