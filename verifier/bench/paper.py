"""The source paper's comparisons with our figures: its figures 3, 4, 6 and 7.

3, 4   throughput by batch, and by streams
6      inversion by binary Euclid against Fermat's theorem
7      simultaneous against separate multiplication

The paper's own algorithm is the variant `paper` of the plugin sm2; the others change one thing of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from verifier.bench.records import Record
from verifier.bench.report import amount, swept

__all__ = ["paper_tables"]

CASES = ("sm2-verify-unknown", "sm2-verify-unknown-cpu")
TITLES = {
    "batch": "SM2 by batch (the paper's figure 3)",
    "streams": "SM2 by streams (its figure 4)",
}
# Variants of sm2: what each stands beside, and in which figure.
PAIRS = (
    ("Inversion: Euclid against Fermat (its figure 6)", "paper", "paper_fermat"),
    ("Multiplication: simultaneous against separate (its figure 7)", "paper", "paper_separate"),
)


def paper_tables(records: Iterable[Record]) -> list[tuple[str, list[tuple[str, ...]]]]:
    """Titles and rows, headings first, of those comparisons that there are records for."""
    mine = [record for record in records if record.case in CASES and swept(record)]
    tables: list[tuple[str, list[tuple[str, ...]]]] = []
    for axis, title in TITLES.items():
        rows = [_row(record) for record in mine if swept(record)[:1] == (axis,)]
        if rows:
            tables.append((title, [("device", axis, "rate"), *rows]))
    for title, first, second in PAIRS:
        rows = _pair(mine, first, second)
        if rows:
            tables.append((title, [("device", first, second, "ratio", "default"), *rows]))
    return tables


def _row(record: Record) -> tuple[str, ...]:
    return record.device, str(swept(record)[1]), amount(record.rate, record.unit)


def _pair(records: Sequence[Record], first: str, second: str) -> list[tuple[str, ...]]:
    rows = []
    for device in dict.fromkeys(record.device for record in records):
        rates = {
            swept(record)[1]: record
            for record in records
            if record.device == device and swept(record)[:1] == ("variant",)
        }
        if first in rates and second in rates:
            ratio = f"{rates[first].rate / rates[second].rate:.2f}"
            cells = (amount(rates[name].rate, "items/s") if name in rates else "" for name in (first, second))
            usual = amount(rates["default"].rate, "items/s") if "default" in rates else ""
            rows.append((device, *cells, ratio, usual))
    return rows
