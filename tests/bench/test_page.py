"""Results as a page and as plots, with matplotlib and without."""

from __future__ import annotations

import sys

import pytest
from typer.testing import CliRunner

from verifier.bench.page import write_page
from verifier.bench.paper import paper_tables
from verifier.bench.records import Record, append_records
from verifier.bench.report import newest
from verifier.cli.bench import app


def record(rate=1e6, items=1024, **settings):
    return Record(
        "sm2-verify-unknown",
        "NVIDIA <H200>",
        items,
        rate,
        "items/s",
        limit="copy in",
        fraction_of_limit=0.5,
        settings=settings,
        command="verifier bench --sweep batch",
    )


SWEPT = [
    record(),
    *(record(1e3 * n, n, batch=n) for n in (1, 32, 1024)),
    *(record(1e6 * n, streams=n) for n in (1, 2, 4)),
    record(9e6, variant="default"),
    record(4e6, variant="paper"),
    record(3e6, variant="paper_fermat"),
    record(2e6, variant="paper_separate"),
]


def test_points_of_a_sweep_stand_apart():
    assert newest([*SWEPT, *SWEPT]) == SWEPT


def test_the_papers_comparisons():
    tables = dict(paper_tables(SWEPT))
    assert [title.partition("(")[2] for title in tables] == [
        "the paper's figure 3)",
        "its figure 4)",
        "its figure 6)",
        "its figure 7)",
    ]
    assert tables["SM2 by streams (its figure 4)"][1] == ("NVIDIA <H200>", "1", "1 M items/s")
    euclid = tables["Inversion: Euclid against Fermat (its figure 6)"]
    assert euclid[0] == ("device", "paper", "paper_fermat", "ratio", "default")
    assert euclid[1] == ("NVIDIA <H200>", "4 M items/s", "3 M items/s", "1.33", "9 M items/s")
    assert paper_tables([record()]) == []


def test_a_page_that_needs_nothing_else(tmp_path):
    pytest.importorskip("matplotlib")
    written, problem = write_page(SWEPT, tmp_path / "new")
    assert problem == ""
    names = {path.name for path in written}
    assert {"index.html", "nvidia--h200-batch.svg", "nvidia--h200-batch.png", "nvidia--h200-limits.svg"} <= names
    page = (tmp_path / "new" / "index.html").read_text()
    assert page.count("<svg") == 4  # batch, streams, variant, limits
    assert "NVIDIA &lt;H200&gt;" in page
    assert "its figure 7" in page
    for outside in ("src=", 'href="http', "@import"):
        assert outside not in page
    assert (tmp_path / "new" / "nvidia--h200-batch.png").read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_the_page_has_its_tables(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    results = tmp_path / "some.jsonl"
    append_records(results, SWEPT)
    done = CliRunner().invoke(app, ["plot", str(results), "--folder", str(tmp_path / "page")])
    assert done.exit_code == 0
    assert "pip install 'verifier[plot]'" in " ".join(done.output.split())
    assert [path.name for path in (tmp_path / "page").iterdir()] == ["index.html"]
    assert "4 M items/s" in (tmp_path / "page" / "index.html").read_text()
