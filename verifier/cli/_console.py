"""What commands print to: a bar while they take a while, and tables that are as wide as they need."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

__all__ = ["progress_on", "widened"]

_PIPED_WIDTH = 160  # columns of a table that no terminal bounds


def progress_on(console: Console) -> Progress:
    """A bar with counts and the time so far; none where the console is quiet. Use it in a with statement."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console, disable=console.quiet)


def widened(console: Console) -> Console:
    """The console, wide where it is no terminal: a file or pipe has no width that tables must be folded to."""
    if not console.is_terminal:
        console.width = _PIPED_WIDTH
    return console
