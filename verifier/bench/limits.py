"""What the device can do at most: measured in the same run as everything that is a fraction of it."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from verifier.bench.records import Record
from verifier.bench.rig import Rig
from verifier.drivers import Driver
from verifier.model import Column

__all__ = ["Limits", "measure_limits"]

CEILINGS = Path(__file__).parent / "ceilings"
OPERATIONS_AN_ITEM = 8192  # in ceilings.cu
_COPY_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """Rates of one device. Copies are between page-locked host memory and the device; 0 where it works in place."""

    wide_multiply_adds: float  # 32 × 32 + 64 bits, operations/s
    logic: float  # three-input logic on 32 bits, operations/s
    copy_in: float  # bytes/s, one way alone
    copy_out: float
    copy_both: float  # bytes/s each way, both at once
    launch: float  # s, from the order to the known end of an empty launch with small copies

    def records(self, rig: Rig) -> list[Record]:
        """The limits as records of their own."""
        units = {
            "wide_multiply_adds": "operations/s",
            "logic": "operations/s",
            "copy_in": "bytes/s",
            "copy_out": "bytes/s",
            "copy_both": "bytes/s",
            "launch": "s",
        }
        return [
            Record.of_times(
                f"limit-{name.replace('_', '-')}", rig.info, 0, [value if unit == "s" else 1 / value], 1.0, unit=unit
            )
            for name, unit in units.items()
            if (value := getattr(self, name))
        ]


def measure_limits(rig: Rig, runs: int = 7) -> Limits:
    """Measures with a rig whose plugin is `CEILINGS`."""
    items = max(1 << 12, rig.info.units * 1024 if not rig.info.unified else 0)
    column = {"input": Column.fixed("input", np.zeros(items, np.uint8), 1, items)}

    def rate(operation: str, algorithm: str) -> float:
        slot = rig.fill(operation, algorithm, column, items)
        return items * OPERATIONS_AN_ITEM / statistics.median(rig.kernel_times(slot, runs))

    multiply, logic = rate("multiply", "WIDE_MULTIPLY_ADD"), rate("logic", "LOGIC")
    one = rig.fill("nothing", "NOTHING", {"input": Column.fixed("input", np.zeros(32, np.uint8), 1, 32)}, 32)
    launch = statistics.median(rig.times(one, 50 * runs, warm_up=20))
    copies = (0.0, 0.0, 0.0) if rig.info.unified else _copy_rates(rig.driver, rig, runs)
    return Limits(multiply, logic, *copies, launch)


def _copy_rates(driver: Driver, rig: Rig, runs: int) -> tuple[float, float, float]:
    size = min(_COPY_BYTES, rig.memory.size // 2)
    there, back = rig.memory[:size], rig.memory[size : 2 * size]
    with (
        closing(driver.allocate(size)) as first,
        closing(driver.allocate(size)) as second,
        closing(driver.stream()) as inward,
        closing(driver.stream()) as outward,
    ):

        def into() -> None:
            inward.copy_in(first.address, there)

        def out() -> None:
            outward.copy_out(back, second.address)

        def rate(*copies: Callable[[], None]) -> float:
            seconds = []
            for _ in range(runs + 1):
                driver.synchronize()
                started = time.perf_counter()
                for copy in copies:
                    copy()
                driver.synchronize()
                seconds.append(time.perf_counter() - started)
            return size / statistics.median(seconds[1:])

        return rate(into), rate(out), rate(into, out)
