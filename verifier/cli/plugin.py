"""`verifier plugin`: the plugins of a running daemon, and plugins as files."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any

import typer
from google.protobuf.json_format import MessageToDict
from rich.console import Console
from rich.table import Table

from verifier.cli import _plugin_files
from verifier.cli._admin import AdminListener, ask, asks_daemon
from verifier.cli._plugin_tune import assignments
from verifier.v1 import admin_pb2

__all__ = ["register"]

SHORT_DIGEST = 12
PIPED_WIDTH = 240  # columns of a table that no terminal bounds

app = typer.Typer(
    help="Manage the plugins of a running daemon, and make, check, pack, sign and lock plugins.", no_args_is_help=True
)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Plugin = Annotated[str, typer.Argument(help="name, name@version or name@version#generation.")]


def register(parent: typer.Typer) -> None:
    """Adds the commands."""
    parent.add_typer(app, name="plugin")


def _example(text: str) -> str:
    return f"Example: [bold]{text}[/bold]"


@app.command("list", epilog=_example("verifier plugin list --json"), rich_help_panel="Running daemon")
@asks_daemon
def list_(daemon: AdminListener, as_json: AsJson = False) -> None:
    """List every instance, also failed and unloaded ones."""
    answer = ask(daemon, lambda stub: stub.List(admin_pb2.ListPluginsRequest()))
    rows = [
        (
            i.label,
            _state(i.state),
            "*" if i.active else "",
            " ".join(i.devices),
            str(i.leases),
            _builds(dict(i.builds)),
            i.digest[:SHORT_DIGEST],
            i.reason,
        )
        for i in answer.instances
    ]
    _print(answer, as_json, ("plugin", "state", "active", "devices", "leases", "build", "digest", "reason"), rows)


@app.command(
    epilog=_example("verifier plugin load sm4 --variant sliced --tunable SLICED_THREADS=256"),
    rich_help_panel="Running daemon",
)
@asks_daemon
def load(
    daemon: AdminListener,
    plugin: Annotated[str, typer.Argument(help="name, name@version, or a folder or bundle.")],
    inactive: Annotated[bool, typer.Option("--inactive", help="Only for callers that pin its version.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Although this version is loaded.")] = False,
    variant: Annotated[str, typer.Option(help="Of the manifest; default: none. Left out: as configured.")] = "",
    tunable: Annotated[list[str] | None, typer.Option(help="NAME=VALUE of the manifest.")] = None,
    as_json: AsJson = False,
) -> None:
    """Load a plugin and, if every device gives every known answer, make it the default."""
    path = Path(plugin)
    name = str(path.resolve()) if path.exists() else plugin
    request = admin_pb2.LoadPluginRequest(
        plugin=name, keep_inactive=inactive, force=force, variant=variant, tunables=assignments(tunable or ())
    )
    _change(daemon, as_json, lambda stub: stub.Load(request))


@app.command(epilog=_example("verifier plugin unload sm2@1.0.0 --wait"), rich_help_panel="Running daemon")
@asks_daemon
def unload(
    daemon: AdminListener,
    plugin: Plugin,
    wait: Annotated[bool, typer.Option("--wait", help="Until its memory is free.")] = False,
    timeout_s: Annotated[float, typer.Option(min=0, help="How long it may drain; 0: the daemon's default.")] = 0.0,
    as_json: AsJson = False,
) -> None:
    """Take instances out: no new batches, and freed when the last one in flight is answered."""
    request = admin_pb2.UnloadPluginRequest(plugin=plugin, wait=wait, timeout_s=timeout_s)
    _change(daemon, as_json, lambda stub: stub.Unload(request))


@app.command(epilog=_example("verifier plugin reload sm2"), rich_help_panel="Running daemon")
@asks_daemon
def reload(daemon: AdminListener, plugin: Plugin, as_json: AsJson = False) -> None:
    """Load a served plugin again from where it came from, even if nothing changed."""
    _change(daemon, as_json, lambda stub: stub.Reload(admin_pb2.ReloadPluginRequest(plugin=plugin)))


@app.command(epilog=_example("verifier plugin activate sm2@1.1.0"), rich_help_panel="Running daemon")
@asks_daemon
def activate(daemon: AdminListener, plugin: Plugin, as_json: AsJson = False) -> None:
    """Make a loaded instance its plugin's default."""
    _change(daemon, as_json, lambda stub: stub.Activate(admin_pb2.ActivatePluginRequest(plugin=plugin)))


@app.command(epilog=_example("verifier plugin rollback sm2"), rich_help_panel="Running daemon")
@asks_daemon
def rollback(daemon: AdminListener, plugin: Plugin, as_json: AsJson = False) -> None:
    """Return to the instance that the active one replaced."""
    _change(daemon, as_json, lambda stub: stub.Rollback(admin_pb2.RollbackPluginRequest(plugin=plugin)))


@app.command(epilog=_example("verifier plugin confirm sm2"), rich_help_panel="Running daemon")
@asks_daemon
def confirm(daemon: AdminListener, plugin: Plugin, as_json: AsJson = False) -> None:
    """Keep the active instance for good: what it replaced is let go of."""
    _change(daemon, as_json, lambda stub: stub.Confirm(admin_pb2.ConfirmPluginRequest(plugin=plugin)))


@app.command(epilog=_example("verifier plugin history sm2"), rich_help_panel="Running daemon")
@asks_daemon
def history(
    daemon: AdminListener,
    plugin: Annotated[str, typer.Argument(help="name or name@version; all where left out.")] = "",
    as_json: AsJson = False,
) -> None:
    """Show what became of every instance, oldest first."""
    answer = ask(daemon, lambda stub: stub.History(admin_pb2.PluginHistoryRequest(plugin=plugin)))
    rows = [(_time(t.at_unix_ms), t.label, _state(t.state), t.reason) for t in answer.transitions]
    _print(answer, as_json, ("time", "plugin", "state", "reason"), rows)


@app.command(epilog=_example("verifier plugin audit --limit 20"), rich_help_panel="Running daemon")
@asks_daemon
def audit(
    daemon: AdminListener,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="The newest so many.")] = 100,
    as_json: AsJson = False,
) -> None:
    """Show who did what, oldest first."""
    answer = ask(daemon, lambda stub: stub.Audit(admin_pb2.AuditRequest(limit=limit)))
    rows = [
        (_time(r.at_unix_ms), r.actor, r.operation, r.label or r.target, r.outcome, r.digest[:SHORT_DIGEST], r.detail)
        for r in answer.records
    ]
    _print(answer, as_json, ("time", "actor", "operation", "plugin", "outcome", "digest", "detail"), rows)


_plugin_files.add_commands(app)


def _change(daemon: AdminListener, as_json: bool, call: Callable[[Any], Any]) -> None:
    answer = ask(daemon, call)
    if as_json:
        typer.echo(json.dumps(MessageToDict(answer, preserving_proto_field_name=True), indent=2))
    else:
        reason = f" ({answer.reason})" if answer.reason else ""
        typer.echo(f"{answer.label} is {_state(answer.state)}{reason}, digest {answer.digest}")


def _print(answer: Any, as_json: bool, headings: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> None:
    if as_json:
        typer.echo(json.dumps(MessageToDict(answer, preserving_proto_field_name=True), indent=2))
        return
    table = Table(box=None, pad_edge=False)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*row)
    console = Console(markup=False, highlight=False)
    if not console.is_terminal:
        console.width = PIPED_WIDTH
    console.print(table)


def _builds(builds: dict[str, str]) -> str:
    """The variant and the tunables, once where all devices have the same."""
    texts = set(builds.values())
    if len(texts) <= 1:
        return "".join(texts)
    return ", ".join(f"{device}: {text}" for device, text in sorted(builds.items()))


def _state(number: int) -> str:
    return admin_pb2.PluginState.Name(number).removeprefix("PLUGIN_STATE_")


def _time(unix_ms: int) -> str:
    return datetime.datetime.fromtimestamp(unix_ms / 1000, datetime.UTC).isoformat(" ", "milliseconds")
