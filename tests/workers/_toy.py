"""Batches of the toy plugin, and what becomes of them, computed here."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from verifier.model import Batch, BatchKey, BatchResult, Code, Column

VERIFY, DIGEST = 0, 1  # indices of the toy's operations
MESSAGE = (1,)


def fixed_batch(values: np.ndarray, *, constant: bytes = b"", operation: str = "verify") -> Batch:
    """A batch of the rows of `values`."""
    items, width = values.shape
    key = BatchKey("parity", f"{operation}/PARITY", MESSAGE if operation == "verify" else (), constant)
    return Batch(key, items, (Column.fixed("input", np.ascontiguousarray(values).tobytes(), width, items),))


def variable_batch(values: list[bytes], *, constant: bytes = b"", operation: str = "verify") -> Batch:
    """A batch of byte strings."""
    offsets = np.concatenate([[0], np.cumsum([len(value) for value in values])]).astype("<u4")
    key = BatchKey("parity", f"{operation}/PARITY", MESSAGE if operation == "verify" else (), constant)
    column = Column.variable("input", b"".join(values), offsets.tobytes(), len(values))
    return Batch(key, len(values), (column,))


def random_values(items: int, seed: int) -> list[bytes]:
    """Byte strings of 0 to 40 bytes."""
    generator = np.random.default_rng(seed)
    return [generator.bytes(int(length)) for length in generator.integers(0, 41, items)]


def values_of(batch: Batch) -> list[bytes]:
    """The byte strings of a batch's only column."""
    column = batch.inputs[0]
    data = column.data.tobytes()
    if column.offsets is None:
        return [data[i * column.stride : (i + 1) * column.stride] for i in range(batch.items)]
    return [data[a:b] for a, b in zip(column.offsets[:-1], column.offsets[1:], strict=True)]


def expected_codes(batch: Batch) -> list[int]:
    """What `verify` of the toy says, computed here."""
    salt = sum(batch.key.constant)
    return [
        Code.INPUT_LENGTH if not value else Code.INVALID if (sum(value) + salt) % 2 else Code.VALID
        for value in values_of(batch)
    ]


def bits(bitmap: np.ndarray, items: int) -> list[bool]:
    """A bitmap's bits; those past the last item must be 0."""
    unpacked = np.unpackbits(bitmap, bitorder="little").astype(bool)
    assert not unpacked[items:].any()
    return unpacked[:items].tolist()


def check_verify(batch: Batch, result: BatchResult) -> None:
    """Every item is decided, and as it should be."""
    codes = expected_codes(batch)
    assert result.items == batch.items
    assert bits(result.decided, batch.items) == [True] * batch.items
    assert result.codes.tolist() == codes
    assert bits(result.valid, batch.items) == [code == Code.VALID for code in codes]


def check_digest(batch: Batch, result: BatchResult) -> None:
    """Every item's digest is right."""
    (digest,) = result.outputs
    assert digest.shape == (batch.items, 8)
    assert digest.view("<u8").ravel().tolist() == [sum(value) for value in values_of(batch)]
    assert bits(result.valid, batch.items) == [True] * batch.items


def alive(pid: int) -> bool:
    """Whether a process runs (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
