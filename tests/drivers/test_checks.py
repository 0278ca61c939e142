"""What drivers ask of arrays."""

from __future__ import annotations

import numpy as np
import pytest

from verifier.drivers._checks import address_of


@pytest.mark.parametrize("array", [np.zeros(100, np.uint8), np.zeros(100, np.uint8)[17:60], np.zeros(0, np.uint8)])
@pytest.mark.parametrize("writable", [True, False])
def test_an_arrays_address_is_its_first_bytes(array, writable):
    array.flags.writeable = writable
    assert address_of(array) == array.ctypes.data
