"""The command line: `verifier --help`."""

from __future__ import annotations

import importlib
import io
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from verifier import __version__

__all__ = ["app", "main"]

app = typer.Typer(
    name="verifier",
    help="Verification middleware for blockchain nodes.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(asked: bool) -> None:
    if asked:
        print(f"verifier {__version__}")
        raise typer.Exit


@app.callback()
def _logs_do_not_mix_with_results(
    version: Annotated[  # noqa: ARG001
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    from verifier.telemetry import set_up_logs

    set_up_logs("warning", "console")


# Each module adds its commands with `register(app)`; those that are not named like their module stand below.
_MODULES = ("serve", "demo", "chain", "verify", "devices", "plugin", "cipher", "bench", "ledger", "health", "top")
_ELSEWHERE = {"config": "serve"}


def _register(arguments: Sequence[str] = ()) -> None:
    """Imports the module of the command that is asked for, or all: they take longer than many commands do."""
    word = next((argument for argument in arguments if not argument.startswith("-")), "")
    asked = _ELSEWHERE.get(word, word)
    for name in (asked,) if asked in _MODULES else _MODULES:
        module: Any = importlib.import_module(f"verifier.cli.{name}")
        module.register(app)


def main() -> None:
    """The entry point of `verifier`."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # a terminal that is not UTF-8 gets ? for a table's lines
        sys.stdout.reconfigure(errors="replace")
    _register(sys.argv[1:])
    app()
