"""`verifier plugin` on files: new, check, pack, sign, keygen, lock."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from rich.console import Console
from rich.table import Table

from verifier.cli import _plugin_check, _plugin_template
from verifier.cli._console import text_of
from verifier.cli._plugin_tune import assignments, tune_
from verifier.drivers.build import host_target
from verifier.errors import ManifestError, VerifierError
from verifier.manifest import DEFAULT, Choice
from verifier.registry import (
    PluginSource,
    bundle_bytes,
    find_source,
    offers,
    plugin_paths,
    read_bundle,
    read_source,
    shipped_folder,
    sign,
    write_lock,
)

__all__ = ["add_commands"]

PANEL = "Files"


def add_commands(app: typer.Typer) -> None:
    """Adds the commands that need no daemon."""
    for command, example in (
        (new, "verifier plugin new checksum"),
        (check, "verifier plugin check checksum --target sm_90"),
        (tune_, "verifier plugin tune sm4 --device cuda:0"),
        (pack, "verifier plugin pack checksum --target sm_90 --target x86-64-v3"),
        (keygen, "verifier plugin keygen site.key"),
        (sign_, "verifier plugin sign checksum-1.0.0.bundle --key site.key"),
        (lock, "verifier plugin lock checksum --lock-file site.lock"),
    ):
        app.command(command.__name__.rstrip("_"), epilog=f"Example: [bold]{example}[/bold]", rich_help_panel=PANEL)(
            command
        )


def new(
    name: Annotated[str, typer.Argument(help="Small letters, digits and _.")],
    folder: Annotated[Path, typer.Option(help="Where the plugin's folder is made.")] = Path(),
) -> None:
    """Make a working plugin to start from, with known answers and a test."""
    try:
        made = _plugin_template.write(name, folder)
    except (ValueError, OSError) as error:
        raise _fail(text_of(error)) from None
    typer.echo(f"{made} is made. Next: verifier plugin check {made}")


def check(
    plugin: Annotated[str, typer.Argument(help="A plugin's folder or bundle, or a shipped plugin's name.")],
    target: Annotated[list[str] | None, typer.Option(help="Build only for these: sm_90, x86-64-v3, ...")] = None,
    device: Annotated[list[str] | None, typer.Option(help="Run only on these devices: cuda:0, cpu, ...")] = None,
    variant: Annotated[
        list[str] | None, typer.Option(help="Check these variants, or all: the default build and every variant.")
    ] = None,
    tunable: Annotated[list[str] | None, typer.Option(help="NAME=VALUE of the manifest.")] = None,
    no_run: Annotated[bool, typer.Option("--no-run", help="Build only.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Build a plugin for every target available and run its known answers on the devices here.

    Reports build time, size, and each GPU kernel's registers and spills. Status 1 where anything is wrong.
    """
    source = _find(plugin)
    try:
        choices = _choices(source, variant or [""], assignments(tunable or ()))
    except ManifestError as error:
        raise _fail(str(error)) from None
    targets = target or _plugin_check.available_targets()
    builds = [build for choice in choices for build in _plugin_check.build_all(source, targets, choice)]
    runs = [] if no_run else [run for choice in choices for run in _plugin_check.run_all(source, device, choice)]
    if as_json:
        report = {
            "plugin": source.label,
            "digest": source.digest,
            "builds": [build.report() for build in builds],
            "runs": [dataclasses.asdict(run) for run in runs],
        }
        typer.echo(json.dumps(report, indent=2))
    else:
        _print_check(source, builds, runs)
    if any(build.problem for build in builds) or any(run.problem for run in runs):
        raise typer.Exit(1)


def pack(
    plugin: Annotated[str, typer.Argument(help="A plugin's folder, or a shipped plugin's name.")],
    target: Annotated[
        list[str] | None,
        typer.Option(help="Build for these; compute_80 is PTX. Default: every target available, and PTX."),
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Default: NAME-VERSION.bundle.")] = None,
) -> None:
    """Pack a plugin with what is built of it into one file that loads where there is no compiler.

    Two packs of one tree with the same compilers are equal byte for byte.
    """
    source = _find(plugin)
    builds = _plugin_check.build_all(source, target or _plugin_check.default_pack_targets())
    for build in builds:
        if build.problem:
            raise _fail(build.problem)
    if not builds:
        raise _fail("there is neither a C++ compiler nor NVRTC to build with: `verifier devices` says how to get one")
    images = {build.target: build.image for build in builds if build.image is not None}
    path = output or Path(f"{source.name}-{source.version}.bundle")
    bundle = dataclasses.replace(source, images=images, signature=None)
    _write(path, bundle_bytes(bundle), 0o644)
    typer.echo(f"{path}: {source.label} for {', '.join(sorted(images))}, digest {read_bundle(path).digest}")


def keygen(
    path: Annotated[Path, typer.Argument(help="The private key's file; the public one's gets .pub behind it.")],
) -> None:
    """Make an Ed25519 key pair for signing bundles. Existing files are never replaced."""
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    public_path = path.with_name(path.name + ".pub")
    try:
        _create(path, private, 0o600)
        _create(public_path, public, 0o644)
    except OSError as error:
        raise _fail(text_of(error)) from None
    typer.echo(
        f"{path} is secret. Daemons that may load what it signs name {public_path} in plugins.public_key_files"
    )


def sign_(
    bundle: Annotated[Path, typer.Argument(help="A bundle; the signature is written into it.")],
    key: Annotated[Path, typer.Option(help="A private key made by keygen.")],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Leave the bundle and write here.")] = None,
) -> None:
    """Sign a bundle. A signature that it bears already is replaced."""
    try:
        private = serialization.load_pem_private_key(key.read_bytes(), None)
    except OSError as error:
        raise _fail(text_of(error)) from None
    except (ValueError, TypeError) as error:
        raise _fail(f"{key}: not a private key without a password: {error}") from None
    if not isinstance(private, Ed25519PrivateKey):
        raise _fail(f"{key}: not an Ed25519 key")
    if bundle.is_dir():
        raise _fail(f"{bundle}: a folder is not signed but its bundle: verifier plugin pack {bundle}")
    source = _read(bundle)
    path = output or bundle
    _write(path, bundle_bytes(sign(source, private)), 0o644)
    typer.echo(f"{path}: {source.label} is signed, digest {source.digest}")


def lock(
    plugins: Annotated[list[Path] | None, typer.Argument(help="Folders and bundles.")] = None,
    lock_file: Annotated[Path | None, typer.Option(help="Add their digests to this file.")] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Forget what the file listed before.")] = False,
    shipped: Annotated[bool, typer.Option("--shipped", help="Write the shipped plugins' own lock file.")] = False,
) -> None:
    """Allow plugins to load by listing their digests in a lock file."""
    if shipped == bool(plugins) or (lock_file is None and not shipped):
        raise _fail("give plugins and --lock-file, or --shipped alone")
    paths = list(plugin_paths(shipped_folder())) if shipped else list(plugins or ())
    path = lock_file or shipped_folder() / "plugins.lock"
    sources = [_read(plugin) for plugin in paths]
    try:
        write_lock(path, sources, replace=replace or shipped)
    except (VerifierError, OSError) as error:
        raise _fail(str(error)) from None
    for source in sources:
        typer.echo(f"{source.label} {source.digest}")


def _choices(source: PluginSource, variants: Sequence[str], tunables: dict[str, str]) -> list[Choice]:
    """The choices that variants stand for; "all": the default build and every variant, but for those whose library is
    not here. Raises ManifestError."""
    manifest = source.manifest
    missing = {offer.variant for offer in offers(manifest, host_target()) if offer.library is None}
    every = [DEFAULT, *(name for name in manifest.variants if name not in missing)]
    names = [name for v in variants for name in (every if v == "all" else (v,))]
    return [manifest.choice(name, tunables) for name in dict.fromkeys(names)]


def _print_check(
    source: PluginSource, builds: Sequence[_plugin_check.Build], runs: Sequence[_plugin_check.Run]
) -> None:
    console = Console(markup=False, highlight=False)
    console.print(f"{source.label}, digest {source.digest}", soft_wrap=True)
    table = Table(box=None, pad_edge=False)
    for heading in ("target", "variant", "built in", "bytes", "kernel", "registers", "spilled bytes", "stack"):
        table.add_column(heading, overflow="fold")
    for build in builds:
        if build.image is None:
            table.add_row(build.target, build.choice, "failed", "", "", "", "", "")
            continue
        rows = [(k.name, str(k.registers), str(k.spill_stores + k.spill_loads), str(k.stack)) for k in build.kernels]
        head = (build.target, build.choice, f"{build.seconds:.1f} s", str(len(build.image.data)))
        table.add_row(*head, *(rows[0] if rows else ("", "", "", "")))
        for row in rows[1:]:
            table.add_row("", "", "", "", *row)
    console.print(table)
    for problem in [build.problem for build in builds if build.problem]:
        console.print(problem)
    for run in runs:
        outcome = run.problem or f"{run.answers} known answers are right"
        console.print(f"{run.device}, {run.choice}: {outcome}", soft_wrap=True)


def _read(path: Path) -> PluginSource:
    try:
        return read_source(path)
    except VerifierError as error:
        raise _fail(str(error)) from None


def _find(plugin: str) -> PluginSource:
    """By path or, where there is none, by a shipped plugin's name."""
    try:
        return find_source(Path(plugin) if Path(plugin).exists() else plugin, ())
    except VerifierError as error:
        raise _fail(str(error)) from None


def _write(path: Path, data: bytes, mode: int) -> None:
    """In place by one rename, so that whoever watches sees a whole file."""
    scratch = path.with_name(f".{path.name}.new")
    try:
        scratch.unlink(missing_ok=True)
        _create(scratch, data, mode)
        scratch.replace(path)
    except OSError as error:
        with suppress(OSError):
            scratch.unlink()
        raise _fail(f"{path}: {error.strerror}") from None


def _create(path: Path, data: bytes, mode: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)


def _fail(problem: str) -> typer.Exit:
    typer.echo(problem, err=True)
    return typer.Exit(1)
