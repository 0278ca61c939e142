"""Verification with enrolled keys, and what enrolling costs.

sm2-verify-enrolled          window 8, 10,000 keys, and 22 for G; on the CPU window 5 and 64 keys
sm2-verify-enrolled-largest  window 12, the largest of which 40 GB hold 10,000 keys, and 24 for G; on a GPU only
...-sustained                batch after batch, two under way
...-kernel                   with the columns on the device already
...-8192-latency             seconds from the order to the verdicts
...-keys                     tables written in a second
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from verifier.bench.counts import written_counts
from verifier.bench.limits import Limits, tightest
from verifier.bench.records import Record
from verifier.bench.rig import Rig, Slot
from verifier.bench.signatures import SignatureSet, make_signatures
from verifier.errors import SelfTestError
from verifier.keys import RESERVED_SLOTS
from verifier.keys._memory import row_count
from verifier.model import Code, Column

if TYPE_CHECKING:
    from verifier.bench.cases import Settings

__all__ = ["LARGEST", "WINDOW_8", "measure_enrolled"]

ITEM_BYTES = 32 + 64 + 8
KEYS, KEYS_CPU = 10_000, 64
WINDOW_8: Mapping[str, int] = {"KEY_SLOTS": 10_240, "WINDOW_KEY": 8, "WINDOW_G": 22}
LARGEST: Mapping[str, int] = {"KEY_SLOTS": 10_240, "WINDOW_KEY": 12, "WINDOW_G": 24}
_GENERATION = 1000
_EVERY_ROW = 2**32 - 1
_AT_ONCE = 2048  # keys of a batch that writes tables: the daemon's own are no larger


def measure_enrolled(
    name: str, algorithm: str, tunables: Mapping[str, int]
) -> Callable[[Rig, Limits, Settings], Iterator[Record]]:
    """Measures on a rig that was built with `tunables`, which a CPU's is not: it has the defaults."""

    def measure(rig: Rig, limits: Limits, settings: Settings) -> Iterator[Record]:
        cpu = rig.info.unified
        suffix = "-cpu" if cpu else ""
        keys = KEYS_CPU if cpu else KEYS
        window = 5 if cpu else tunables["WINDOW_KEY"]
        made = make_signatures(algorithm, min(settings.batch, 1 << 16), keys=keys)
        rows, indices = np.unique(made.keys, axis=0, return_inverse=True)
        about: dict[str, str | int | float] = {"window": window, "enrolled_keys": len(rows)}
        about |= {} if cpu else {"window_g": tunables["WINDOW_G"]}
        seconds = _enroll(rig, algorithm, rows, window, settings.runs)
        many = min(len(rows), _AT_ONCE)
        yield Record.of_times(
            f"{name}-keys{suffix}", rig.info, many, seconds, many, includes=("transfer", "parsing"), settings=about
        )
        slots = np.zeros((made.items, 2), "<u4")
        slots[:, 0], slots[:, 1] = indices.reshape(-1) + RESERVED_SLOTS, _GENERATION
        includes = ("parsing",) if cpu else ("transfer", "parsing")

        def loaded(items: int) -> Slot:
            slot = rig.fill("verify_enrolled", algorithm, _columns(made, slots, items), items)
            rig.run(slot)
            _check(slot, f"{name} at {items} items")
            return slot

        items = settings.batch
        slot = loaded(items)
        field = (
            None if cpu else limits.of_field(algorithm, written_counts().get(name))
        )  # counted with a GPU's windows
        link = tightest(limits.of_link(ITEM_BYTES), field)
        if settings.pipeline or cpu:
            times = rig.times(slot, settings.runs)
            yield Record.of_times(
                f"{name}{suffix}", rig.info, items, times, items, includes=includes, limit=link, settings=about
            )
        if settings.pipeline and not cpu:
            times = rig.sustained_times(slot, settings.runs)
            _check(slot, f"{name}, batch after batch")
            yield Record.of_times(
                f"{name}-sustained", rig.info, items, times, items, includes=includes, limit=link, settings=about
            )
        if settings.kernels and not cpu:
            times = rig.kernel_times(slot, settings.runs)
            _check(slot, f"{name} kernels")
            yield Record.of_times(
                f"{name}-kernel", rig.info, items, times, items, includes=("parsing",), limit=field, settings=about
            )
        if settings.pipeline and not cpu:
            slot = loaded(8192)
            yield Record.of_times(
                f"{name}-8192-latency",
                rig.info,
                8192,
                rig.times(slot, 10 * settings.runs),
                8192,
                unit="s",
                includes=includes,
                limit=("launch", limits.launch),
                settings=about,
            )

    return measure


def _enroll(rig: Rig, algorithm: str, rows: np.ndarray, window: int, runs: int) -> list[float]:
    """Enrols every key from the first free slot on; the times of batches of `_AT_ONCE` keys' tables."""
    seconds: list[float] = []
    # As the daemon does: a GPU writes a key's rows side by side, a CPU one after the other.
    parts = np.array([_EVERY_ROW]) if rig.info.unified else np.arange(row_count(window))
    for begin in range(0, len(rows), _AT_ONCE):
        keys = rows[begin : begin + _AT_ONCE]
        places = np.arange(len(keys)) + begin + RESERVED_SLOTS
        names = np.zeros((parts.size, len(keys), 3), "<u4")
        names[:, :, 0], names[:, :, 1] = places, _GENERATION
        names[:, :, 2] = parts[:, None]
        columns = {
            "row": Column(names.reshape(-1).view(np.uint8), 12),
            "key": Column(np.tile(keys, (parts.size, 1)).reshape(-1), 64),
        }
        slot = rig.fill("tabulate", algorithm, columns, names.shape[0] * names.shape[1])
        rig.run(slot)
        _check(slot, "tabulate")
        if not begin:  # rows that no slot serves yet are written each time
            seconds = rig.times(slot, runs)
        columns = {
            "slot": Column(np.ascontiguousarray(names[0, :, :2]).reshape(-1).view(np.uint8), 8),
            "key": Column(keys.reshape(-1), 64),
        }
        slot = rig.fill("enroll", algorithm, columns, len(keys))
        rig.run(slot)
        _check(slot, "enroll")
    return seconds


def _columns(made: SignatureSet, slots: np.ndarray, items: int) -> dict[str, Column]:
    take = np.arange(items) % made.items
    return {
        "input": Column(made.digests[take].reshape(-1), 32),
        "signature": Column(made.signatures[take].reshape(-1), 64),
        "slot": Column(slots[take].reshape(-1).view(np.uint8), 8),
    }


def _check(slot: Slot, what: str) -> None:
    """Everything here is valid."""
    wrong = np.flatnonzero(slot.codes != Code.VALID)
    if wrong.size:
        raise SelfTestError(f"{what}: item {wrong[0]} of {slot.items} is {Code(int(slot.codes[wrong[0]]))!r}")
