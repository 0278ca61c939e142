"""What the device can do at most: measured in the same run as everything that is a fraction of it."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from verifier.bench.counts import Counts
from verifier.bench.records import Record
from verifier.bench.rig import Rig
from verifier.drivers import Driver
from verifier.model import Column

__all__ = ["Limits", "measure_limits", "tightest"]

CEILINGS = Path(__file__).parent / "ceilings"
OPERATIONS_AN_ITEM, FIELD_OPERATIONS_AN_ITEM = 8192, 1024  # in ceilings.cu
FIELDS = ("SM2", "ECDSA_P256", "ECDSA_SECP256K1")
_COPY_BYTES = 256 << 20
_LANES = 16 * 1024  # of a multiprocessor: several ms, beside which a launch is nothing


@dataclass(frozen=True, slots=True)
class Limits:
    """Rates of one device. Copies are between page-locked host memory and the device; 0 where it works in place."""

    wide_multiply_adds: float  # 32 × 32 + 64 bits, operations/s
    logic: float  # three-input logic on 32 bits, operations/s
    copy_in: float  # bytes/s, one way alone
    copy_out: float
    copy_both: float  # bytes/s each way, both at once
    launch: float  # s, from the order to the known end of an empty launch with small copies
    products: Mapping[str, float] = field(default_factory=dict)  # of the field, operations/s, by algorithm
    squares: Mapping[str, float] = field(default_factory=dict)

    def records(self, rig: Rig) -> list[Record]:
        """The limits as records of their own."""
        rates = {
            "wide-multiply-adds": self.wide_multiply_adds,
            "logic": self.logic,
            **{f"field-products-{name.lower()}": rate for name, rate in self.products.items()},
            **{f"field-squares-{name.lower()}": rate for name, rate in self.squares.items()},
        }
        copies = {"copy-in": self.copy_in, "copy-out": self.copy_out, "copy-both": self.copy_both}
        named = [
            *((name, rate, "operations/s") for name, rate in rates.items()),
            *((name, rate, "bytes/s") for name, rate in copies.items()),
            ("launch", self.launch, "s"),
        ]
        return [
            Record.of_times(f"limit-{name}", rig.info, 0, [value if unit == "s" else 1 / value], 1.0, unit=unit)
            for name, value, unit in named
            if value
        ]

    def of_link(self, bytes_in: float) -> tuple[str, float] | None:
        """What the link allows for items of so many bytes, items/s."""
        return ("copy in", self.copy_in / bytes_in) if self.copy_in else None

    def of_field(self, algorithm: str, counts: Counts | None) -> tuple[str, float] | None:
        """What the field's products and squares alone allow, items/s."""
        if counts is None or algorithm not in self.products:
            return None
        seconds = counts.multiplications / self.products[algorithm] + counts.squarings / self.squares[algorithm]
        return "field multiplications", 1 / seconds


def tightest(*limits: tuple[str, float] | None) -> tuple[str, float] | None:
    """The lowest of those that are known."""
    return min((limit for limit in limits if limit), key=lambda limit: limit[1], default=None)


def measure_limits(rig: Rig, runs: int = 7) -> Limits:
    """Measures with a rig whose plugin is `CEILINGS`."""

    def rate(operation: str, algorithm: str, operations: int = OPERATIONS_AN_ITEM) -> float:
        items = 1 << 12 if rig.info.unified else rig.info.units * _LANES
        column = {"input": Column.fixed("input", np.zeros(items, np.uint8), 1, items)}
        slot = rig.fill(operation, algorithm, column, items)
        return items * operations / statistics.median(rig.kernel_times(slot, runs))

    multiply, logic = rate("multiply", "WIDE_MULTIPLY_ADD"), rate("logic", "LOGIC")
    products = {name: rate("multiply", name, FIELD_OPERATIONS_AN_ITEM) for name in FIELDS}
    squares = {name: rate("square", name, FIELD_OPERATIONS_AN_ITEM) for name in FIELDS}
    one = rig.fill("nothing", "NOTHING", {"input": Column.fixed("input", np.zeros(32, np.uint8), 1, 32)}, 32)
    launch = statistics.median(rig.times(one, 50 * runs, warm_up=20))
    copies = (0.0, 0.0, 0.0) if rig.info.unified else _copy_rates(rig.driver, rig, runs)
    return Limits(multiply, logic, *copies, launch, products, squares)


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
