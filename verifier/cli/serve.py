"""`verifier serve` and `verifier config`."""

from __future__ import annotations

import os
import resource
import signal
import sys
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Annotated, Any, NoReturn

import typer

from verifier.cli._service_manager import notify
from verifier.collector import keep_what_is_there
from verifier.config import Settings, load_settings, parse_overrides, show
from verifier.errors import ConfigError, VerifierError
from verifier.telemetry import set_up_logs

__all__ = ["register"]

MOST_FILES = 1 << 20

_LOOK_S = 0.2

_SERVE_HELP = """Runs the daemon until SIGTERM or SIGINT.

Settings come from a TOML file, then VERIFIER_SECTION__NAME in the environment, then the command line; the later
one wins, and an unknown name is an error. `verifier config --show` prints all of them.

Examples:

  verifier serve

  verifier serve --config /etc/verifier/verifier.toml --listen unix:/run/verifier/work.sock

  verifier serve --device cpu --plugin sm2 --log-format json

  verifier serve --set scheduling.batch_delay_s=0.001 --set server.drain_s=5
"""

_CONFIG_HELP = """Prints or checks the settings that `verifier serve` would have.

Examples:

  verifier config --show > verifier.toml

  verifier config --check --config verifier.toml
"""

ConfigFile = Annotated[Path | None, typer.Option("--config", "-c", help="TOML file.", envvar="VERIFIER_CONFIG")]
Assignments = Annotated[
    list[str] | None, typer.Option("--set", metavar="SECTION.NAME=VALUE", help="Any setting; lists are JSON.")
]


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command(help=_SERVE_HELP)(serve)
    app.command(help=_CONFIG_HELP)(config)


def serve(
    file: ConfigFile = None,
    listen: Annotated[
        list[str] | None, typer.Option(help="host:port or unix:/path for work; may be repeated.")
    ] = None,
    device: Annotated[list[str] | None, typer.Option(help="auto, cpu or cuda:N; may be repeated.")] = None,
    plugin: Annotated[
        list[str] | None, typer.Option(help="A name, name@version or folder; may be repeated. Default: all.")
    ] = None,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error.")] = None,
    log_format: Annotated[str | None, typer.Option(help="console or json.")] = None,
    assignments: Assignments = None,
) -> None:
    """Runs the daemon."""
    flags: list[tuple[str, str, Any]] = [
        ("server", "listen", listen),
        ("devices", "use", device),
        ("plugins", "load", plugin),
        ("log", "level", log_level),
        ("log", "format", log_format),
    ]
    settings = _settings(file, assignments, flags)
    set_up_logs(settings.log.level, settings.log.format)
    raise typer.Exit(_serve(settings))


def _serve(settings: Settings) -> int:
    # Imported late: --help and config --show need neither devices nor gRPC.
    from verifier.daemon import Daemon

    _raise_file_limit()
    stop = _stop_on_signals()
    try:
        daemon = Daemon(settings)
        keep_what_is_there()
        daemon.start()
    except VerifierError as error:
        _fail(error)
    urgent = f" and for urgent calls on {' '.join(daemon.urgent_addresses)}" if daemon.urgent_addresses else ""
    print(f"verifier ready on {' '.join(daemon.addresses)}{urgent}", flush=True)
    notify("READY=1")
    _wait(stop)
    notify("STOPPING=1")
    left = daemon.stop()
    return 1 if left else 0


def _raise_file_limit() -> None:
    """Lets the daemon open as many files as it may: a connection takes one, and a shell often gives 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        # Refused where the hard limit is above fs.nr_open, which may have been lowered since.
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _stop_on_signals() -> SimpleQueue[int]:
    """Gets the first SIGTERM or SIGINT; a second one ends the process at once.

    A queue, whose `put` may come amid its own `get`: an Event waits for ever where it is set amid its own `wait`.
    """
    stop: SimpleQueue[int] = SimpleQueue()
    stopping = False

    def handle(number: int, _: FrameType | None) -> None:
        nonlocal stopping
        if stopping:
            os._exit(128 + number)
        stopping = True
        stop.put(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, handle)
    return stop


def _wait(stop: SimpleQueue[int]) -> int:
    """The signal. Looks for it now and then: one that comes just before the thread sleeps does not wake it."""
    while True:
        with suppress(Empty):
            return stop.get(timeout=_LOOK_S)


def config(
    file: ConfigFile = None,
    show_all: Annotated[bool, typer.Option("--show", help="Print every setting as TOML.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Only say whether they are right.")] = False,
    assignments: Assignments = None,
) -> None:
    """Prints or checks the settings."""
    if show_all == check:
        _fail(ConfigError("one of --show and --check is needed"))
    settings = _settings(file, assignments, [])
    if show_all:
        print(show(settings), end="")
        return
    from verifier.daemon import Daemon

    try:
        Daemon(settings)  # not started: it refuses listeners that nothing protects
    except VerifierError as error:
        _fail(error)
    print("the configuration is right")


def _settings(file: Path | None, assignments: list[str] | None, flags: list[tuple[str, str, Any]]) -> Settings:
    try:
        overrides = parse_overrides(assignments or ())
        for section, name, value in flags:
            if value:
                overrides.setdefault(section, {})[name] = value
        return load_settings(file, overrides)
    except ConfigError as error:
        _fail(error)


def _fail(error: VerifierError) -> NoReturn:
    for problem in str(error).splitlines():
        print(f"verifier: {problem}", file=sys.stderr)
    raise typer.Exit(2)
