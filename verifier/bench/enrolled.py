"""Enrolled keys for measurements: tables built on the device, and the names of their slots as a column."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from verifier.bench.rig import Rig, columns_of
from verifier.bench.signatures import SignatureSet
from verifier.errors import SelfTestError
from verifier.model import Code, Column

__all__ = ["enroll_keys", "enrolled_columns"]

GENERATION = 1
EVERY_ROW = (1 << 32) - 1


def enroll_keys(rig: Rig, signatures: SignatureSet) -> npt.NDArray[np.intp]:
    """Enrols the set's keys in the plugin's first slots; the slot of every item. Raises SelfTestError where a key is
    refused."""
    keys, slots = np.unique(signatures.keys, axis=0, return_inverse=True)
    names = np.zeros((len(keys), 3), "<u4")
    names[:, 0], names[:, 1], names[:, 2] = np.arange(len(keys)), GENERATION, EVERY_ROW
    key = Column.fixed("key", keys.ravel(), 64, len(keys))
    for operation, name, width in (("tabulate", "row", 12), ("enroll", "slot", 8)):
        data = np.ascontiguousarray(names[:, : width // 4]).view(np.uint8).ravel()
        columns = {name: Column.fixed(name, data, width, len(keys)), "key": key}
        slot = rig.fill(operation, signatures.algorithm, columns, len(keys))
        rig.run(slot)
        if not (slot.codes == Code.VALID).all():
            raise SelfTestError(f"{operation}: a key of {signatures.algorithm} is refused")
    return slots.reshape(-1)


def enrolled_columns(signatures: SignatureSet, slots: npt.NDArray[np.intp]) -> dict[str, Column]:
    """The columns of a set whose items' keys are in `slots`."""
    columns = columns_of(signatures)
    names = np.zeros((signatures.items, 2), "<u4")
    names[:, 0], names[:, 1] = slots, GENERATION
    columns["slot"] = Column.fixed("slot", names.view(np.uint8).ravel(), 8, signatures.items)
    return columns
