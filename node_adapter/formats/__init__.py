"""What real chains sign: files taken apart into the columns that a daemon verifies."""

from node_adapter.formats._signed import (
    Outcome,
    Record,
    Signed,
    Unsigned,
    Unverifiable,
    Verdict,
    settle,
    verify_signed,
)

__all__ = ["Outcome", "Record", "Signed", "Unsigned", "Unverifiable", "Verdict", "settle", "verify_signed"]
