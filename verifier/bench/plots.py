"""Records as plots. Needs matplotlib, the extra `plot`.

Colours are those that people with other eyes tell apart too (Okabe and Ito 2008).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from verifier.bench.records import Record
from verifier.bench.report import newest, swept

__all__ = ["AXIS_TITLES", "draw_plots"]

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
AXIS_TITLES = {
    "batch": "batch, items",
    "streams": "streams",
    "block-threads": "threads of a block",
    "variant": "variant",
    "keys": "encoding of keys",
    "bitmaps": "memory of the verdict bitmaps",
}


def draw_plots(records: Iterable[Record]) -> dict[str, Any]:
    """Figures by name, for those records that there are. Raises ImportError without matplotlib."""
    from matplotlib.figure import Figure

    latest = newest(records)
    figures: dict[str, Any] = {}
    for device in dict.fromkeys(record.device for record in latest):
        of_device = [record for record in latest if record.device == device]
        name = "".join(c if c.isalnum() else "-" for c in device.lower()).strip("-")
        for axis, title in AXIS_TITLES.items():
            lines = _lines(of_device, axis)
            if lines:
                figure = Figure(figsize=(8, 4.5), layout="constrained")
                _draw_lines(figure.subplots(), lines, title, f"{device}: verifications by {title.split(',')[0]}")
                figures[f"{name}-{axis}"] = figure
        bars = [record for record in of_device if record.fraction_of_limit and not swept(record)]
        if bars:
            figure = Figure(figsize=(8, 0.32 * len(bars) + 1.2), layout="constrained")
            _draw_bars(figure.subplots(), bars, f"{device}: share of the limit that is reached")
            figures[f"{name}-limits"] = figure
    return figures


def _lines(records: Sequence[Record], axis: str) -> dict[str, list[tuple[Any, float]]]:
    lines: dict[str, list[tuple[Any, float]]] = {}
    for record in records:
        point = swept(record)
        if point and point[0] == axis:
            lines.setdefault(record.case, []).append((point[1], record.rate))
    return lines


def _draw_lines(axes: Any, lines: dict[str, list[tuple[Any, float]]], x: str, title: str) -> None:
    numbers = all(isinstance(value, int) for line in lines.values() for value, _ in line)
    for colour, (case, line) in zip(COLOURS * (len(lines) // len(COLOURS) + 1), lines.items(), strict=False):
        points = sorted(line) if numbers else line
        style = "-" if numbers else ""
        axes.plot([p[0] for p in points], [p[1] for p in points], marker="o", ls=style, color=colour, label=case)
    if numbers:
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
    else:
        axes.tick_params(axis="x", rotation=30)
        axes.set_ylim(bottom=0)
    axes.set_xlabel(x)
    axes.set_ylabel("items/s")
    axes.set_title(title)
    axes.grid(visible=True, which="major", alpha=0.3)
    axes.figure.legend(loc="outside lower center", ncols=3)


def _draw_bars(axes: Any, records: Sequence[Record], title: str) -> None:
    limits = list(dict.fromkeys(record.limit for record in records))
    for limit, colour in zip(limits, COLOURS * (len(limits) // len(COLOURS) + 1), strict=False):
        mine = [record for record in records if record.limit == limit]
        axes.barh(
            [index for index, record in enumerate(records) if record.limit == limit],
            [100 * (record.fraction_of_limit or 0) for record in mine],
            color=colour,
            label=limit,
        )
    # In the order of the records, whatever their limits.
    order = [f"{record.case} ({record.batch:,})" for record in records]
    axes.set_yticks(range(len(order)), order)
    axes.invert_yaxis()
    axes.set_xlim(0, 105)
    axes.set_xlabel("% of the limit")
    axes.set_title(title)
    axes.margins(y=0.01)
    axes.figure.legend(loc="outside lower center", ncols=3, title="limit")
