"""`verifier devices`: what can run plugins here, and what is missing."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from verifier.drivers import Device, probe_devices
from verifier.manifest import load_manifest
from verifier.registry import Offer, offers, plugin_paths, shipped_folder

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("devices")(_devices)


def _devices(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the devices of this machine, the compilers for them, the libraries for the CPU, and what is missing.

    Ends with status 1 where no device can be used.

    Example: verifier devices --json
    """
    devices = probe_devices()
    providers = {device.id: _providers(device) for device in devices}
    if as_json:
        described = [
            asdict(device) | {"providers": [_described(*named) for named in providers[device.id]]}
            for device in devices
        ]
        typer.echo(json.dumps(described, indent=2))
    else:
        _print(devices)
        for device_id, named in providers.items():
            for plugin, offer in named:
                found = f"by {offer.library.label}" if offer.library else f"not used: {offer.problem}"
                asked = "" if offer.automatic or not offer.library else ", where it is chosen by name"
                typer.echo(f"{device_id}: {plugin}, {offer.variant}: {found}{asked}")
    if not any(device.info for device in devices):
        raise typer.Exit(1)


def _providers(device: Device) -> list[tuple[str, Offer]]:
    """The libraries that shipped plugins name for such a device, by plugin."""
    if device.info is None:
        return []
    manifests = [load_manifest(path) for path in plugin_paths(shipped_folder())]
    return [(manifest.name, offer) for manifest in manifests for offer in offers(manifest, device.info.target)]


def _described(plugin: str, offer: Offer) -> dict[str, str]:
    library = offer.library.label if offer.library else ""
    return {"plugin": plugin, "variant": offer.variant, "library": library, "problem": offer.problem}


def _print(devices: list[Device]) -> None:
    console = Console()
    table = Table(box=None, pad_edge=False)
    for heading in ("device", "name", "target", "units", "memory", "driver", "compiler"):
        table.add_column(heading, overflow="fold")
    for device in devices:
        info = device.info
        if info is None:
            table.add_row(device.id, "not usable", "", "", "", "", device.compiler or "none")
            continue
        memory = f"{info.memory_bytes / 2**30:.0f} GiB"
        compiler = device.compiler or "none"
        table.add_row(device.id, info.name, info.target, str(info.units), memory, info.driver_version, compiler)
    console.print(table)
    for device in devices:
        if device.problem:
            where = f"{device.id}: " if device.info else ""
            console.print(f"{where}{device.problem}", markup=False, highlight=False, soft_wrap=True)
