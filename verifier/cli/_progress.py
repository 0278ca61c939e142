"""The bar of commands that take a while."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

__all__ = ["progress_on"]


def progress_on(console: Console) -> Progress:
    """A bar with counts and the time so far; none where the console is quiet. Use it in a with statement."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console, disable=console.quiet)
