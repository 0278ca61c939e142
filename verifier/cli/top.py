"""`verifier top`: a running daemon, live in the terminal."""

from __future__ import annotations

import json
import sys
import time
import urllib.error
import urllib.request
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

__all__ = ["register"]

_HELP = """Shows a running daemon: throughput, latency, queue, verdicts, devices and plugins.

It reads the daemon's status listener (status.listen), the same as the status page. Ends with status 1 where no
daemon answers, and with --once also where the daemon does not serve.

Examples:

  verifier top

  verifier top --once

  verifier top --json | jq .rates_per_s
"""

_TIMEOUT_S = 5.0
_BARS = " ▁▂▃▄▅▆▇█"
_COLOURS = {"valid": "green", "invalid": "red", "malformed": "yellow", "undetermined": "bright_black"}
_GOOD, _CHANGING = ("up", "active", "warm", "serving"), ("degraded", "draining", "starting", "loading", "selftest")


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command(help=_HELP)(top)


def top(
    url: Annotated[
        str, typer.Option(help="The daemon's status listener.", envvar="VERIFIER_STATUS_URL")
    ] = "http://127.0.0.1:9465",
    interval_s: Annotated[float, typer.Option("--interval", min=0.1, help="Seconds between two looks.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Look once and end.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print what the daemon says; one object a look.")] = False,
) -> None:
    """Shows a running daemon."""
    try:
        if as_json or once:
            status = _ask(url)
            if as_json:
                print(json.dumps(status), flush=True)
            else:
                Console().print(_screen(status, Console().width))
            while as_json and not once and not sys.stdout.closed:
                time.sleep(interval_s)
                print(json.dumps(_ask(url)), flush=True)
            raise typer.Exit(0 if status["state"] == "serving" else 1)
        _watch(url, interval_s)
    except OSError as error:
        _fail(url, error)
    except KeyboardInterrupt:
        raise typer.Exit(0) from None


def _watch(url: str, interval_s: float) -> None:
    console = Console()
    status = _ask(url)
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            live.update(_screen(status, console.width), refresh=True)
            time.sleep(interval_s)
            try:
                status = _ask(url)
            except OSError:
                status = status | {"state": "no answer"}


def _ask(url: str) -> dict[str, Any]:
    """Raises OSError where nobody answers, or not with a status."""
    if not url.startswith(("http://", "https://")):
        raise OSError("the address must begin with http:// or https://")
    try:
        with urllib.request.urlopen(f"{url.rstrip('/')}/status.json", timeout=_TIMEOUT_S) as answer:
            status: dict[str, Any] = json.load(answer)
    except ValueError:
        raise OSError("what answers there is no daemon") from None
    if "rates_per_s" not in status:
        raise OSError("what answers there is no daemon")
    return status


def _fail(url: str, error: OSError) -> NoReturn:
    reason = error.reason if isinstance(error, urllib.error.URLError) else error
    print(f"verifier: no daemon's status at {url}: {reason}; see status.listen of the daemon", file=sys.stderr)
    raise typer.Exit(1)


def _screen(status: dict[str, Any], width: int) -> RenderableType:
    parts = (_head(status), _figures(status, width), _verdicts(status), _devices(status), _plugins(status))
    return Padding(Group(*(Padding(part, (0, 0, 1, 0)) for part in parts)), (1, 2, 0, 2))


def _head(status: dict[str, Any]) -> RenderableType:
    where = ", ".join(status["listen"])
    return Text.assemble(
        ("verifier", "bold"),
        "  ",
        (f"● {status['state']}", _colour(status["state"])),
        (f"  {status['version']} · up {_span(status['up_s'])} · {where}", "dim"),
    )


def _figures(status: dict[str, Any], width: int) -> RenderableType:
    rates, latency, queue, history = (status[name] for name in ("rates_per_s", "latency_s", "queue", "history"))
    room = max(min(width - 64, 60), 10)
    table = Table.grid(padding=(0, 3, 0, 0))
    rows: tuple[tuple[str, str, str, list[float | None]], ...] = (
        ("items/s", _short(rates["items"]), f"{_short(rates['calls'])} calls/s", history["items_per_s"]),
        ("p99", _seconds(latency["p99"]), f"median {_seconds(latency['p50'])}", history["p99_s"]),
        ("queue", _short(queue["items"]), f"items, {queue['bytes'] / 2**20:.1f} MiB", history["queue_items"]),
        ("refused", _short(rates["refused"]), f"calls/s, open calls: {queue['calls']}", []),
    )
    for name, value, more, values in rows:
        table.add_row(f"[dim]{name}", f"[bold]{value}", f"[dim]{more}", f"[cyan]{_line(values, room)}")
    return table


def _verdicts(status: dict[str, Any]) -> RenderableType:
    text = Text()
    for name, colour in _COLOURS.items():
        total = status["verdicts"].get(name, {"total": 0.0})["total"]
        text.append("■ ", colour).append(f"{name} ", "dim").append(f"{total:,.0f}   ")
    return text


def _devices(status: dict[str, Any]) -> RenderableType:
    table = _table("device", "state", "what it is", "items/s", "times lost", right=(3, 4))
    for device in status["devices"]:
        lost = str(device["faults"])
        rate = _short(device["items_per_s"])
        table.add_row(device["id"], _state(device["state"]), escape(device["name"]), rate, lost)
    return table


def _plugins(status: dict[str, Any]) -> RenderableType:
    table = _table("plugin", "state", "serves", "on", "items/s", "since", right=(4, 5))
    for plugin in status["plugins"]:
        rate = plugin["items_per_s"]
        reason = f"\n[dim]{escape(plugin['reason'])}" if plugin["reason"] else ""
        missing = f"\n[yellow]not {', '.join(plugin['missing_devices'])}" if plugin["missing_devices"] else ""
        table.add_row(
            escape(plugin["label"]),
            _state(plugin["state"]) + reason,
            ", ".join(plugin["operations"]),
            ", ".join(plugin["devices"]) + missing,
            "" if rate is None else _short(rate),
            _span(status["at_unix"] - plugin["changed_unix"]),
        )
    return table


def _table(*headings: str, right: tuple[int, ...]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for place, heading in enumerate(headings):
        table.add_column(heading, justify="right" if place in right else "left", overflow="fold")
    return table


def _state(state: str) -> str:
    return f"[{_colour(state)}]{state}[/]"


def _colour(state: str) -> str:
    return "green" if state in _GOOD else "yellow" if state in _CHANGING else "red"


def _line(values: list[float | None], room: int) -> str:
    """The newest values as a row of blocks."""
    shown = values[-room:]
    peak = max((value or 0.0 for value in shown), default=0.0)
    steps = len(_BARS) - 1
    return "".join(_BARS[0 if not value else max(1, round(steps * value / peak))] for value in shown)


def _short(value: float) -> str:
    for size, unit in ((1e9, " G"), (1e6, " M"), (1e4, " k")):
        if value >= size:
            shown = value / (1e3 if unit == " k" else size)
            return f"{shown:.{2 if shown < 10 else 1 if shown < 100 else 0}f}{unit}"
    return f"{value:,.0f}" if value >= 10 or value == 0 else f"{value:.1f}"


def _seconds(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.2f} s" if value >= 1 else f"{value * 1e3:.1f} ms" if value >= 1e-3 else f"{value * 1e6:.0f} µs"


def _span(seconds: float) -> str:
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"
