"""The report of a dataset: two Parquet files to compute with, and one page to read.

    summary.parquet    file, row_group (-1: the whole file), verdict, signatures, error
    failures.parquet   file, row_group, row, verdict, block, transaction, why
    report.html        the same in short

The same verdicts give the same rows, in whatever order and however often interrupted they were made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from node_adapter.ledger._files import replacing
from node_adapter.ledger._outcome import UNREADABLE, Failure, Outcome

__all__ = ["totals", "write_report"]

_SUMMARY = pa.schema(
    [
        ("file", pa.string()),
        ("row_group", pa.int32()),
        ("verdict", pa.string()),
        ("signatures", pa.int64()),
        ("error", pa.string()),
    ]
)
_FAILURES = pa.schema(
    [
        ("file", pa.string()),
        ("row_group", pa.int32()),
        ("row", pa.int64()),
        ("verdict", pa.string()),
        ("block", pa.string()),
        ("transaction", pa.string()),
        ("why", pa.string()),
    ]
)
_SHOWN = 1000  # failures on the page; the Parquet file has all

_PAGE = Template("""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Ledger verification: $title</title>
<style>
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif }
body { max-width: 70rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.4rem } .good { color: #1a7f37 } .bad { color: #cf222e }
table { border-collapse: collapse; width: 100%; margin: 1rem 0 }
th, td { text-align: left; padding: .3rem .8rem; border-bottom: 1px solid #8884; overflow-wrap: anywhere }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums }
</style></head><body>
<h1>Ledger verification: $title</h1>
<p class="$tone">$verdict</p>
<h2>Signatures by verdict</h2>
<table><tr><th>verdict</th><th class="number">signatures</th></tr>$counts</table>
<h2>Files</h2>
<table><tr><th>file</th><th class="number">row groups</th><th class="number">signatures</th>
<th class="number">not valid</th><th>SHA-256</th></tr>$files</table>
<h2>Verified with</h2>
<table><tr><th>plugin</th><th>digest</th></tr>$plugins</table>
$unreadable
$failures
</body></html>
""")


def totals(outcomes: Iterable[Outcome]) -> Counter[str]:
    """Signatures by verdict; what could not be read counts as UNREADABLE, a row group or file each."""
    found: Counter[str] = Counter()
    for outcome in outcomes:
        found.update({UNREADABLE: 1} if outcome.error else outcome.counts)
    return found


def write_report(outcomes: Sequence[Outcome], folder: Path, title: str) -> None:
    """Writes the three files into `folder`, each whole or not at all. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    summary = [
        {"file": o.path, "row_group": o.row_group, "verdict": verdict, "signatures": count, "error": o.error}
        for o in outcomes
        for verdict, count in (sorted(o.counts.items()) if not o.error else [(UNREADABLE, 0)])
    ]
    failures = [
        {"file": outcome.path, "row_group": outcome.row_group, **failure._asdict()}
        for outcome in outcomes
        for failure in outcome.failures
    ]
    for name, rows, schema in (("summary", summary, _SUMMARY), ("failures", failures, _FAILURES)):
        with replacing(folder / f"{name}.parquet") as temporary:
            pq.write_table(pa.Table.from_pylist(rows, schema), temporary, compression="zstd")
    with replacing(folder / "report.html") as temporary:
        temporary.write_text(_page(outcomes, title), encoding="utf-8")


def _page(outcomes: Sequence[Outcome], title: str) -> str:
    counts = totals(outcomes)
    good = all(outcome.valid for outcome in outcomes)
    bad = sum(count for verdict, count in counts.items() if verdict != "VALID")
    unreadable = [o for o in outcomes if o.error]
    failures = [(o, failure) for o in outcomes for failure in o.failures]
    plugins = {pair for outcome in outcomes for pair in outcome.plugins.items()}
    return _PAGE.substitute(
        title=escape(title),
        tone="good" if good else "bad",
        verdict="Every signature is valid." if good else f"{bad:,} are not valid, not verifiable or not readable.",
        counts=_rows([(verdict, f"{count:,}") for verdict, count in sorted(counts.items())], numbers={1}),
        files=_rows(_files(outcomes), numbers={1, 2, 3}),
        plugins=_rows(sorted(plugins)),
        unreadable=_section(
            "Not readable",
            ("file", "row group", "error"),
            [(o.path, "all" if o.row_group < 0 else str(o.row_group), o.error) for o in unreadable],
        ),
        failures=_section(
            "Not valid" + (f" (the first {_SHOWN:,} of {len(failures):,})" if len(failures) > _SHOWN else ""),
            ("file", "transaction", "verdict", "why"),
            [_shown(outcome, failure) for outcome, failure in failures[:_SHOWN]],
        ),
    )


def _shown(outcome: Outcome, failure: Failure) -> tuple[str, ...]:
    return outcome.path, failure.transaction, failure.verdict, failure.why


def _files(outcomes: Sequence[Outcome]) -> list[tuple[str, ...]]:
    by_file: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        by_file.setdefault(outcome.path, []).append(outcome)
    return [
        (
            path,
            f"{sum(o.row_group >= 0 for o in found):,}",
            f"{sum(sum(o.counts.values()) for o in found):,}",
            f"{sum(len(o.failures) for o in found):,}",
            found[0].digest,
        )
        for path, found in by_file.items()
    ]


def _section(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return ""
    head = "".join(f"<th>{escape(name)}</th>" for name in heads)
    return f"<h2>{escape(title)}</h2><table><tr>{head}</tr>{_rows(rows)}</table>"


def _rows(rows: Iterable[Sequence[Any]], numbers: Iterable[int] = ()) -> str:
    right = set(numbers)
    return "".join(
        "<tr>"
        + "".join(
            f'<td class="number">{escape(str(cell))}</td>' if place in right else f"<td>{escape(str(cell))}</td>"
            for place, cell in enumerate(row)
        )
        + "</tr>"
        for row in rows
    )
