"""What an item costs in field operations: a change of the formulas or of the windows is seen here."""

from __future__ import annotations

import pytest

from verifier.bench.counts import COUNTED, Counts, count
from verifier.registry import shipped_folder

# On a GPU: the generator's window is 16, and sixteen items share an inversion modulo n.
WRITTEN = {
    "sm2-verify-unknown": Counts(1431, 1630, 2109, 0, 0, 0),
    "p256-verify-unknown": Counts(1431, 1630, 2109, 0, 27.8125, 0.0625),
    "secp256k1-verify-unknown": Counts(927, 878, 1324, 0, 27.8125, 0.0625),
    "secp256k1-recover": Counts(1015.9375, 1145.75, 1323, 0.0625, 27.8125, 0.0625),
}


@pytest.fixture(autouse=True)
def compile_fast(monkeypatch):
    monkeypatch.setenv("CXXFLAGS", "-O1")


@pytest.mark.parametrize("counted", COUNTED, ids=lambda counted: counted.case)
def test_the_counts_are_what_is_written(counted):
    assert count(counted, shipped_folder()) == WRITTEN[counted.case]


def test_every_count_is_written():
    assert [counted.case for counted in COUNTED] == list(WRITTEN)


def test_what_tables_hold_changes_no_count():
    """And the verdicts are right in a build that counts."""
    counted, windows = COUNTED[0], {"WINDOW_G_CPU": 8}
    filled = count(counted, shipped_folder(), defines=windows)
    assert count(counted, shipped_folder(), defines=windows, real_tables=True) == filled
    # A window of half the bits has twice the additions, eight multiplications and three squarings each.
    written = WRITTEN[counted.case]
    assert filled.multiplications == written.multiplications + 16 * 8
    assert filled.squarings == written.squarings + 16 * 3
