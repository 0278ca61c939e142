"""What commands print to: a bar while they take a while, and tables that are as wide as they need."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

__all__ = ["complain", "progress_on", "text_of", "widened"]

_PIPED_WIDTH = 160  # columns of a table that no terminal bounds


def progress_on(console: Console) -> Progress:
    """A bar with counts and the time so far; none where the console is quiet. Use it in a with statement."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console, disable=console.quiet)


def text_of(problem: object) -> str:
    """An error in words: of a file, which and why."""
    if isinstance(problem, OSError) and problem.filename and problem.strerror:
        return f"{problem.filename}: {problem.strerror}"
    return str(problem)


def complain(problem: object, what: str = "error") -> None:
    """Says on standard error what went wrong. The text is printed as it is: it may name files, and extras in []."""
    Console(stderr=True).print(f"[red]{what}[/red]: {escape(text_of(problem))}", highlight=False, soft_wrap=True)


def widened(console: Console) -> Console:
    """The console, wide where it is no terminal: a file or pipe has no width that tables must be folded to."""
    if not console.is_terminal:
        console.width = _PIPED_WIDTH
    return console
