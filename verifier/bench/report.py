"""Records as tables for people: `python -m verifier.bench.report README.md bench/results`."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from verifier.bench.records import Record, records_in

__all__ = ["SWEEPS", "amount", "figures_table", "newest", "rewrite", "swept"]

BEGIN, END = "<!-- figures: written by script/figures from bench/results -->", "<!-- /figures -->"
SWEEPS = (
    "batch",
    "streams",
    "block-threads",
    "variant",
    "keys",
    "bitmaps",
)  # keys of Record.settings that make a point of a sweep
_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def amount(value: float, unit: str) -> str:
    """A rate or a time with a sensible prefix: 35.4 M items/s, 0.931 ms."""
    if unit == "s":
        return f"{value * 1e3:.3f} ms" if value < 1 else f"{value:.2f} s"
    for size, prefix in _PREFIXES:
        if value >= size:
            return (
                f"{value / size:.3g} {prefix} {unit}"
                if value / size < 1000
                else f"{value / size:.0f} {prefix} {unit}"
            )
    return f"{value:.3g} {unit}"


def newest(records: Iterable[Record]) -> list[Record]:
    """The latest record of every case, device, batch and point of a sweep, in the order of their first appearance."""
    found: dict[tuple[object, ...], Record] = {}
    for record in records:
        key = (record.case, record.device, record.batch, *swept(record))
        if key not in found or record.date >= found[key].date:
            found[key] = record
    return list(found.values())


def swept(record: Record) -> tuple[str | int | float, ...]:
    """The axis and the point that a record belongs to; nothing where it is of no sweep."""
    return next(((axis, record.settings[axis]) for axis in SWEEPS if axis in record.settings), ())


def figures_table(records: Iterable[Record]) -> str:
    """Two Markdown tables: rates of GPUs at the largest batch of every case, and CPU rates as ratios.

    A CPU's time on a shared machine is noise; its ratio to a library's in the same run is not.
    """
    latest = [record for record in newest(records) if not swept(record)]
    return "\n".join([*_gpu_rows(latest), "", *_cpu_rows(latest)])


def _gpu_rows(records: Iterable[Record]) -> Iterable[str]:
    largest: dict[tuple[str, str], Record] = {}
    for record in records:
        key = (record.case, record.device)
        told = record.cuda and not record.case.startswith(("limit-", "swap/")) and "-1-latency" not in record.case
        if told and record.batch >= largest.get(key, record).batch:
            largest[key] = record
    yield "| case | median | batch | includes | of the limit | device |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for record in largest.values():
        limit = f"{record.fraction_of_limit:.0%} of {record.limit}" if record.fraction_of_limit else ""
        yield (
            f"| {record.case} | {amount(record.rate, record.unit)} | {record.batch:,} | {', '.join(record.includes)} "
            f"| {limit} | {record.device} |"
        )


def _cpu_rows(records: Iterable[Record]) -> Iterable[str]:
    rates = {record.case: record for record in records if "-unknown-cpu" in record.case}
    ours = [case for case in rates if case.endswith("-unknown-cpu")]
    if not ours:
        return
    peers = sorted({case.partition("-unknown-cpu-")[2] for case in rates} - {""})
    yield f"| one CPU core | {' | '.join(f'÷ {peer}' for peer in peers)} | compiler |"
    yield f"| --- |{' --- |' * (len(peers) + 1)}"
    for case in ours:
        cells = [
            f"{rates[case].rate / rates[f'{case}-{peer}'].rate:.3g}" if f"{case}-{peer}" in rates else ""
            for peer in peers
        ]
        yield f"| {case} | {' | '.join(cells)} | {rates[case].settings.get('compiler', '')} |"


def rewrite(text: str, table: str) -> str:
    """`text` with the table between its markers. Raises ValueError where these are missing."""
    before, found, rest = text.partition(BEGIN)
    _, closed, after = rest.partition(END)
    if not (found and closed):
        raise ValueError(f"the markers {BEGIN} and {END} are missing")
    return f"{before}{BEGIN}\n{table}\n{END}{after}"


def main(readme: Path, results: Path) -> None:
    """Writes the table of all results into a file."""
    table = figures_table(records_in(results))
    readme.write_text(rewrite(readme.read_text(encoding="utf-8"), table), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
