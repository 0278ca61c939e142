"""What an item costs in field operations: a change of the formulas or of the windows is seen here."""

from __future__ import annotations

import pytest

from verifier.bench.counts import COUNTED, count, written_counts
from verifier.registry import shipped_folder


@pytest.fixture(autouse=True)
def compile_fast(monkeypatch):
    monkeypatch.setenv("CXXFLAGS", "-O1")


LONG = ("paper_fermat", "paper_separate")  # each is a build of its own


@pytest.mark.parametrize(
    "counted",
    [
        pytest.param(each, id=each.case, marks=[pytest.mark.long] if each.choice.variant in LONG else [])
        for each in COUNTED
    ],
)
def test_the_counts_are_what_is_written(counted):
    """`verifier bench counts --write` keeps new ones, where the change is meant."""
    assert count(counted, shipped_folder()) == written_counts()[counted.case]


def test_every_count_is_written():
    assert [counted.case for counted in COUNTED] == list(written_counts())


def test_what_tables_hold_changes_no_count():
    """And the verdicts are right in a build that counts."""
    counted, windows = COUNTED[0], {"WINDOW_G_CPU": 8}
    filled = count(counted, shipped_folder(), defines=windows)
    assert count(counted, shipped_folder(), defines=windows, real_tables=True) == filled
    # 32 additions instead of 13, eight multiplications and three squarings each.
    written = written_counts()[counted.case]
    assert filled.multiplications == written.multiplications + 19 * 8
    assert filled.squarings == written.squarings + 19 * 3
