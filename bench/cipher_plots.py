"""Draws what cipher_tables.py measured.

    python bench/cipher_plots.py [bench/results/cipher-tables.jsonl] [docs]

One SVG for the sizes of SKINNY, one for the builds of the three ciphers; the last measurement of each figure counts.
Needs matplotlib, which nothing else does.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt

plt.switch_backend("svg")
plt.rcParams["svg.hashsalt"] = "ciphers"  # the same figures give the same file

COLOURS = {"cpu": "tab:gray", "device": "tab:green", "host": "tab:blue"}


def latest(path: Path) -> list[dict[str, Any]]:
    """The last figure of every kind."""
    figures = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    keyed = {(f["table"], f["build"], f["mode"], f["nbytes"], f["where"]): f for f in figures}
    return list(keyed.values())


def rate(figure: dict[str, Any]) -> float:
    """Gigabits a second."""
    return float(8e-9 * figure["nbytes"] / figure["seconds"])


def draw_sizes(figures: list[dict[str, Any]], path: Path) -> None:
    """Throughput of SKINNY by the size of the data."""
    chart, axes = plt.subplots(1, 2, figsize=(10, 4), sharey=True)
    for axis, mode in zip(axes, ("ECB", "CTR"), strict=True):
        found = [f for f in figures if f["table"] == "skinny" and f["mode"] == mode]
        for build, where in dict.fromkeys((f["build"], f["where"]) for f in found):
            line = sorted((f["nbytes"], rate(f)) for f in found if (f["build"], f["where"]) == (build, where))
            axis.plot(*zip(*line, strict=True), marker=".", label=f"{build}, {where}")
        axis.set(xscale="log", yscale="log", title=f"SKINNY-128-256, {mode}", xlabel="bytes")
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("Gb/s")
    axes[1].legend(fontsize=7)
    save(chart, path)


def draw_builds(figures: list[dict[str, Any]], path: Path) -> None:
    """Throughput of every build at the largest size, CTR."""
    chart, axes = plt.subplots(1, 3, figsize=(12, 4.5))
    for axis, table in zip(axes, ("skinny", "kuznyechik", "hight"), strict=True):
        found = [f for f in figures if f["table"] == table and f["mode"] == "CTR"]
        largest = {
            where: max(f["nbytes"] for f in found if f["where"] == where) for where in {f["where"] for f in found}
        }
        bars = [f for f in found if f["nbytes"] == largest[f["where"]]]
        names = [f"{f['build']}, {f['where']}" for f in bars]
        drawn = axis.barh(names, [rate(f) for f in bars], color=[COLOURS[f["where"]] for f in bars])
        axis.bar_label(drawn, fmt="%.2f", padding=2, fontsize=7)
        axis.set(title=f"{table}, CTR", xlabel="Gb/s")
        axis.margins(x=0.15)
        axis.tick_params(axis="y", labelsize=7)
        axis.invert_yaxis()
    save(chart, path)


def save(chart: Any, path: Path) -> None:
    """Writes an SVG without a date in it."""
    chart.tight_layout()
    chart.savefig(path, metadata={"Date": None})
    print(path)


def main() -> None:
    """Draws both."""
    root = Path(__file__).resolve().parents[1]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, nargs="?", default=root / "bench" / "results" / "cipher-tables.jsonl")
    parser.add_argument("folder", type=Path, nargs="?", default=root / "docs")
    options = parser.parse_args()
    figures, folder = latest(options.results), options.folder
    draw_sizes(figures, folder / "cipher-sizes.svg")
    draw_builds(figures, folder / "cipher-builds.svg")


if __name__ == "__main__":
    main()
