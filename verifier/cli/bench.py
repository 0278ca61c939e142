"""`verifier bench`: measures this machine's devices, and says what fraction of their limits is reached."""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from verifier.bench.report import amount

if TYPE_CHECKING:
    from verifier.bench.records import Record

__all__ = ["register"]

_HELP = """Measure the devices of this machine.

Every result is checked for right answers before it is timed, is the median of several runs, and stands beside
what the device could do at most, measured in the same run. Peers are CPU libraries on the same items, one core.

Examples:

    verifier bench --quick                      every case, small batches, under two minutes

    verifier bench --device cuda:0 --case 'sm2*' --output bench/results/h200.jsonl

    verifier bench --device cpu --threads 1     a core, beside the libraries
"""


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("bench", help=_HELP)(bench)


def bench(
    device: Annotated[str, typer.Option(help="cuda:0, cpu, or auto: the first GPU, else the CPU.")] = "auto",
    case: Annotated[list[str] | None, typer.Option(help="Only cases of this name; * and ? match.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Small batches and few runs.")] = False,
    sweep: Annotated[bool, typer.Option("--sweep", help="Many batch sizes.")] = False,
    peers: Annotated[bool, typer.Option(help="Also time the CPU libraries that are installed.")] = True,
    threads: Annotated[int, typer.Option(help="CPU threads; 0: all.")] = 0,
    output: Annotated[Path | None, typer.Option(help="Add the records to this file of JSON lines.")] = None,
) -> None:
    """Runs the benchmarks."""
    from verifier.bench.cases import CASES, Settings, peer_records
    from verifier.bench.limits import CEILINGS, measure_limits
    from verifier.bench.records import append_records
    from verifier.bench.rig import Rig
    from verifier.drivers import list_devices
    from verifier.registry._folders import shipped_folder

    console = Console()
    chosen = [c for c in CASES if not case or any(fnmatch(c.name, pattern) for pattern in case)]
    if not chosen:
        raise typer.BadParameter(
            f"no case is named {', '.join(case or [])}; there are {', '.join(c.name for c in CASES)}"
        )
    ids = [info.id for info in list_devices()]
    device = ids[0] if device == "auto" else device
    on_cpu = device.startswith("cpu")
    options: dict[str, Any] = {"threads": threads} if on_cpu and threads else {}
    batch = (2_048 if quick else 16_384) if on_cpu else (1 << 18 if quick else 1 << 20)
    sizes = tuple(1 << k for k in range(0, 23 if not on_cpu else 15)) if sweep else ()
    cipher_bytes = (1 << 20 if quick else 16 << 20) if on_cpu else (64 << 20 if quick else 256 << 20)
    settings = Settings(batch, 3 if quick else 9, cipher_bytes, sizes)
    root = shipped_folder()
    records: list[Record] = []
    progress = Progress(SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn(), console=console)
    with progress:
        task = progress.add_task("limits")
        with Rig(device, CEILINGS, root / "common", slot_bytes=512 << 20, **options) as rig:
            limits = measure_limits(rig)
            records += limits.records(rig)
        for each in chosen:
            progress.update(task, description=each.name)
            with Rig(device, root / each.plugin, root / "common", slot_bytes=1 << 30, **options) as rig:
                for record in each.measure(rig, limits, settings):
                    records.append(record)
                    progress.console.print(_line(record))
                if peers:
                    for record in peer_records(each.name, rig.info, settings.runs):
                        records.append(record)
                        progress.console.print(_line(record))
    console.print(_table(records))
    if output:
        append_records(output, records)
        console.print(f"{len(records)} records added to {output}")


def _line(record: Record) -> str:
    return f"{record.case}  batch {record.batch:,}  {amount(record.rate, record.unit)}"


def _table(records: list[Record]) -> Table:
    table = Table("case", "batch", "median", "spread", "of limit", "includes", title="Results")
    for record in records:
        limit = f"{record.fraction_of_limit:.1%} of {record.limit}" if record.fraction_of_limit else ""
        table.add_row(
            record.case,
            f"{record.batch:,}" if record.batch else "",
            amount(record.rate, record.unit),
            f"{record.spread:.0%}" if record.runs > 1 else "",
            limit,
            ", ".join(record.includes),
        )
    return table
