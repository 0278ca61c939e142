"""The command line: `verifier --help`."""

from __future__ import annotations

import importlib
from typing import Any

import typer

__all__ = ["app", "main"]

app = typer.Typer(
    name="verifier",
    help="Verification middleware for blockchain nodes.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def _logs_do_not_mix_with_results() -> None:
    from verifier.telemetry import set_up_logs

    set_up_logs("warning", "console")


# Each module adds its commands with `register(app)`.
_MODULES = ("serve", "demo", "chain", "verify", "devices", "plugin", "cipher", "bench", "ledger", "health", "top")


def _register() -> None:
    for name in _MODULES:
        module: Any = importlib.import_module(f"verifier.cli.{name}")
        module.register(app)


def main() -> None:
    """The entry point of `verifier`."""
    _register()
    app()
