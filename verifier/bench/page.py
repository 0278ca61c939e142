"""Results as one page that needs nothing else: tables, and plots as SVG inside it."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any

from verifier.bench.paper import paper_tables
from verifier.bench.plots import draw_plots
from verifier.bench.records import Record
from verifier.bench.report import amount, newest, swept

__all__ = ["write_page"]

_STYLE = """\
body { font: 15px/1.4 system-ui, sans-serif; margin: 2rem auto; max-width: 75rem; padding: 0 1rem; color: #222; }
table { border-collapse: collapse; margin: 1rem 0; } th, td { padding: .2rem .7rem; text-align: left; }
tr:nth-child(even) { background: #f4f4f4; } th { border-bottom: 2px solid #888; } td.n { text-align: right; }
svg { max-width: 100%; height: auto; }
"""
_HEADINGS = ("case", "batch", "setting", "median", "spread", "of the limit", "includes", "commit", "date")


def write_page(records: Iterable[Record], folder: Path) -> tuple[list[Path], str]:
    """Writes index.html, and each plot as SVG and PNG: (what was written, what is missing and how to get it)."""
    latest = newest(records)
    folder.mkdir(parents=True, exist_ok=True)
    written, drawings, problem = [], [], ""
    try:
        figures = draw_plots(latest)
    except ImportError:
        figures, problem = {}, "plots are left out: they need matplotlib, `pip install 'verifier[plot]'`"
    for name, figure in figures.items():
        drawing = _svg(figure)
        drawings.append(drawing[drawing.index("<svg") :])
        (folder / f"{name}.svg").write_text(drawing, encoding="utf-8")
        figure.savefig(folder / f"{name}.png", dpi=150)
        written += [folder / f"{name}.svg", folder / f"{name}.png"]
    page = folder / "index.html"
    page.write_text(_page(latest, drawings), encoding="utf-8")
    return [page, *written], problem


def _svg(figure: Any) -> str:
    """Text stays text, and equal records give equal files."""
    from matplotlib import rc_context

    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "verifier"}):
        file = io.StringIO()
        figure.savefig(file, format="svg", metadata={"Date": None})
    return file.getvalue()


def _page(records: Sequence[Record], drawings: Sequence[str]) -> str:
    parts = ["<!doctype html><html lang=en><meta charset=utf-8><title>verifier: measurements</title>"]
    parts += [f"<style>{_STYLE}</style><h1>Measurements</h1>", *(f"<figure>{d}</figure>" for d in drawings)]
    for device in dict.fromkeys(record.device for record in records):
        mine = [record for record in records if record.device == device]
        about = {f"{r.machine}, driver {r.driver} {r.cuda}, {r.settings.get('compiler', '')}" for r in mine}
        parts.append(f"<h2>{escape(device)}</h2><p>{escape('; '.join(sorted(about)))}</p>{_table(mine)}")
    for title, rows in paper_tables(records):
        body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows[1:])
        head = "".join(f"<th>{escape(cell)}</th>" for cell in rows[0])
        parts.append(f"<h2>{escape(title)}</h2><table><tr>{head}</tr>{body}</table>")
    commands = sorted({record.command for record in records if record.command})
    parts.append("<h2>Commands</h2>" + "".join(f"<pre>{escape(command)}</pre>" for command in commands))
    return "\n".join(parts) + "</html>\n"


def _table(records: Sequence[Record]) -> str:
    rows = []
    for record in records:
        limit = f"{record.fraction_of_limit:.1%} of {record.limit}" if record.fraction_of_limit else ""
        cells = (
            record.case,
            f"{record.batch:,}" if record.batch else "",
            " ".join(map(str, swept(record))),
            amount(record.rate, record.unit),
            f"{record.spread:.0%}" if record.runs > 1 else "",
            limit,
            ", ".join(record.includes),
            record.commit,
            record.date,
        )
        rows.append("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>")
    return f"<table><tr>{''.join(f'<th>{h}</th>' for h in _HEADINGS)}</tr>{''.join(rows)}</table>"
