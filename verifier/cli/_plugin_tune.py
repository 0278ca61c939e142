"""`verifier plugin tune`: finds the fastest variant and tunables of a plugin on the devices here."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from verifier.cli._console import widened
from verifier.drivers import list_devices
from verifier.errors import VerifierError
from verifier.manifest import Choice, kind_of
from verifier.registry import PluginSource, RegistryOptions, Tuned, TuningFile, find_source, tune
from verifier.registry._tuning_search import Found
from verifier.workers import Fleet, WorkerOptions

__all__ = ["assignments", "tune_"]

SLOT_BYTES = 256 << 20


def tune_(
    plugin: Annotated[str, typer.Argument(help="A shipped plugin's name, or a folder or bundle.")],
    device: Annotated[list[str] | None, typer.Option(help="Only these devices: cuda:0, cpu, ...")] = None,
    limit_s: Annotated[float, typer.Option(min=1, help="Try nothing more after so long, on each device.")] = 600.0,
    tunable: Annotated[
        list[str] | None, typer.Option(help="NAME=VALUE that is given, as in the daemon's plugins.tunables.")
    ] = None,
    cache_folder: Annotated[Path | None, typer.Option(help="The daemon's plugins.cache_folder, where set.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Measure and print; keep nothing.")] = False,
) -> None:
    """Measure every variant and tunable of a plugin and keep the fastest for the next load on the device.

    Each choice first gives every known answer. What wins must be 2 % faster than the default. The choice holds for
    this device, driver, compiler and these bytes of the plugin; daemons use it at their next load, unless
    plugins.tuned is false. Nothing else should run on the device meanwhile.
    """
    console = Console(markup=False, highlight=False)
    try:
        source = find_source(Path(plugin) if Path(plugin).exists() else plugin, ())
        base = source.manifest.choice("", assignments(tunable or ()))
        devices = device or [info.id for info in list_devices()]
        for device_id in devices:
            _tune_one(console, source, device_id, base, limit_s, cache_folder, dry_run)
    except (VerifierError, OSError) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from None


def assignments(texts: Sequence[str]) -> dict[str, str]:
    """NAME=VALUE of the command line. Ends the command where one is not of that form."""
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name or not value:
            typer.echo(f"--tunable {text}: must be NAME=VALUE", err=True)
            raise typer.Exit(1)
        found[name] = value
    return found


def _tune_one(
    console: Console,
    source: PluginSource,
    device: str,
    base: Choice,
    limit_s: float,
    cache: Path | None,
    dry_run: bool,
) -> None:
    fleet = Fleet([device], WorkerOptions(slot_bytes=SLOT_BYTES, slots=2))
    fleet.start()
    try:
        if _choices(source, fleet.workers[0].device.target) == 1:
            console.print(f"{source.label} on {device}: there is nothing to choose")
            return
        bar = Progress(SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn(), console=console)
        with bar:
            task = bar.add_task(f"{source.label} on {device}")

            def told(step: str) -> None:
                bar.update(task, description=f"{source.label} on {device}: {step}")

            options = RegistryOptions(trust="any", cache=cache, tuned=False)
            tuned, found = tune(source, fleet, options, limit_s=limit_s, base=base, told=told)
    finally:
        fleet.close()
    _print(console, tuned, found)
    if not dry_run:
        TuningFile.of_cache(cache).put(tuned)
        console.print(f"kept in {TuningFile.of_cache(cache).path}", soft_wrap=True)


def _choices(source: PluginSource, target: str) -> int:
    manifest, kind = source.manifest, kind_of(target)
    variants = sum(kind in variant.targets for variant in manifest.variants.values())
    return 1 + variants + sum(tunable.measured and kind in tunable.targets for tunable in manifest.tunables.values())


def _print(console: Console, tuned: Tuned, found: Found) -> None:
    widened(console)
    console.print(f"{tuned.plugin} on {tuned.device}; * is the choice")
    choices = Table(box=None, pad_edge=False)
    choices.add_column("choice", overflow="fold")
    choices.add_column("to the default", justify="right")
    for choice in found.tried:
        gain = found.gain(choice)
        text = choice.text + (" *" if choice == found.choice else "")
        choices.add_row(text, "left out" if gain is None else f"{gain:.3f}")
    console.print(choices)
    operations = Table(box=None, pad_edge=False)
    for heading in ("operation", "default, items/s", "choice, items/s", "fastest alone"):
        operations.add_column(heading, overflow="fold", justify="left" if heading[0] in "of" else "right")
    for operation, rate in sorted(found.default_rates.items()):
        chosen = found.rates.get(operation, 0.0)
        operations.add_row(operation, f"{rate:,.0f}", f"{chosen:,.0f}", found.fastest(operation).text)
    console.print(operations)
