"""`verifier bench`: measures this machine's devices, and says what fraction of their limits is reached."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from verifier.bench.report import amount, provider_of, swept
from verifier.cli._console import widened
from verifier.errors import VerifierError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from verifier.bench.records import Record

__all__ = ["register"]

_HELP = """Measure the devices of this machine.

Every result is checked for right answers before it is timed, is the median of several runs, and stands beside
what the device could do at most, measured in the same run. Peers are CPU libraries on the same items, one core.

Suites: kernels (data on the device), pipeline (from page-locked memory), daemon (in its process, router on), e2e (by
gRPC). Sweeps: batch, streams, threads (of a block), variants, keys (their encoding), bitmaps (where they lie).

Examples:

    verifier bench --quick                      every suite, small batches, under two minutes

    verifier bench --device cuda:0 --case 'sm2*' --output bench/results/h200.jsonl

    verifier bench --device cpu --threads 1     a core, beside the libraries

    verifier bench plot bench/results --folder docs/plots
"""

app = typer.Typer(help=_HELP, invoke_without_command=True, no_args_is_help=False)


def register(parent: typer.Typer) -> None:
    """Adds the commands."""
    parent.add_typer(app, name="bench")


@app.callback()
def bench(
    context: typer.Context,
    device: Annotated[str, typer.Option(help="cuda:0, cpu, or auto: the first GPU, else the CPU.")] = "auto",
    suite: Annotated[list[str] | None, typer.Option(help="Only these suites.")] = None,
    case: Annotated[list[str] | None, typer.Option(help="Only cases of this name; * and ? match.")] = None,
    sweep: Annotated[list[str] | None, typer.Option(help="Also at many settings: batch, streams, ...")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Small batches, few runs, two minutes.")] = False,
    peers: Annotated[bool, typer.Option(help="Also time the CPU libraries that are installed.")] = True,
    threads: Annotated[int, typer.Option(min=0, help="CPU threads; 0: all.")] = 0,
    output: Annotated[Path | None, typer.Option(help="Add the records to this file of JSON lines.")] = None,
    plots: Annotated[Path | None, typer.Option(help="Write plots and a page of this run to this folder.")] = None,
) -> None:
    """Runs the benchmarks."""
    if context.invoked_subcommand is not None:
        return
    from verifier.bench.run import QUICK_S, SUITES, Plan, Run
    from verifier.bench.sweeps import AXES
    from verifier.drivers import list_devices

    suites = _among("--suite", suite, SUITES)
    axes = _among("--sweep", sweep, AXES)
    console = widened(Console(markup=False, highlight=False))
    try:
        device = list_devices()[0].id if device == "auto" else device
        plan = Plan(
            device,
            cast("Any", suites or SUITES),
            tuple(case or ()),
            cast("Any", axes),
            quick,
            peers,
            threads,
            QUICK_S if quick else None,
        )
        if not plan.cases:
            from verifier.bench.cases import CASES

            raise typer.BadParameter(
                f"no case is named {', '.join(case or [])}; there are {', '.join(c.name for c in CASES)}"
            )
        records = _run(console, Run(plan), output)
    except (VerifierError, IndexError) as error:
        typer.echo(str(error) or "no device: `verifier devices` says what is missing", err=True)
        raise typer.Exit(1) from None
    if output:
        console.print(f"{len(records)} records added to {output}")
    if plots:
        _write_plots(console, records, plots)


@app.command()
def counts(
    write: Annotated[bool, typer.Option("--write", help="Keep them as the shipped kernels' counts.")] = False,
) -> None:
    """Count the field operations of an item, by the kernel source itself, compiled for this CPU.

    Example: verifier bench counts
    """
    from verifier.bench.counts import count_all, write_counts
    from verifier.registry import shipped_folder

    found = {}
    table = Table("case", "multiplications", "squarings", "together", "linear", "inversions", "products mod n")
    try:
        for counted, counts_ in count_all(shipped_folder()):
            found[counted.case] = counts_
            values = (
                counts_.multiplications,
                counts_.squarings,
                counts_.products,
                counts_.additions,
                counts_.inversions,
                counts_.order_multiplications,
            )
            table.add_row(counted.case, *(f"{value:,.5g}" for value in values))
    except VerifierError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from None
    console = widened(Console(markup=False, highlight=False))
    console.print(table)
    if write:
        write_counts(found)


@app.command()
def plot(
    results: Annotated[list[Path], typer.Argument(help="Files of JSON lines, or folders of them.")],
    folder: Annotated[Path, typer.Option(help="Where index.html and the plots go.")] = Path("bench-plots"),
) -> None:
    """Draw results: a page that needs nothing else, and each plot as SVG and PNG.

    Example: verifier bench plot results.jsonl --folder plots
    """
    from verifier.bench.records import read_records, records_in

    try:
        records = [r for path in results for r in (records_in(path) if path.is_dir() else read_records(path))]
    except (OSError, VerifierError) as error:
        typer.echo(f"{error.filename}: {error.strerror}" if isinstance(error, OSError) else str(error), err=True)
        raise typer.Exit(1) from None
    _write_plots(Console(markup=False, highlight=False), records, folder)


def _among(option: str, given: list[str] | None, allowed: tuple[str, ...]) -> tuple[str, ...]:
    for name in given or ():
        if name not in allowed:
            raise typer.BadParameter(f"{option} {name}: there are {', '.join(allowed)}")
    return tuple(given or ())


def _run(console: Console, run: Any, output: Path | None) -> list[Record]:
    from verifier.bench.records import append_records

    records: list[Record] = []
    began = time.monotonic()
    progress = Progress(SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn(), console=console)
    with progress:
        task = progress.add_task("limits")
        run.told = lambda what: progress.update(task, description=what)
        for record in run.records():
            records.append(record)
            if output:  # at once: what was measured is kept, whatever comes after it
                append_records(output, [record])
            progress.console.print(_line(record))
    console.print(_table(records))
    console.print(f"took {time.monotonic() - began:.0f} s")
    if run.left_out:
        console.print(f"left out for time: {', '.join(run.left_out)}. Without --quick nothing is.", soft_wrap=True)
    return records


def _write_plots(console: Console, records: Sequence[Record], folder: Path) -> None:
    from verifier.bench.page import write_page

    written, problem = write_page(records, folder)
    console.print(f"written: {', '.join(str(path) for path in written)}", soft_wrap=True)
    if problem:
        console.print(problem, soft_wrap=True)


def _setting(record: Record) -> str:
    return " ".join(filter(None, (provider_of(record), *map(str, swept(record)))))


def _line(record: Record) -> str:
    point = _setting(record)
    return f"{record.case}  batch {record.batch:,}  {point}  {amount(record.rate, record.unit)}"


def _table(records: list[Record]) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("case", "batch", "setting", "median", "spread", "of limit", "includes"):
        table.add_column(heading, overflow="fold", no_wrap=heading == "case")
    for record in records:
        limit = f"{record.fraction_of_limit:.1%} of {record.limit}" if record.fraction_of_limit else ""
        table.add_row(
            record.case,
            f"{record.batch:,}" if record.batch else "",
            _setting(record),
            amount(record.rate, record.unit),
            f"{record.spread:.0%}" if record.runs > 1 else "",
            limit,
            ", ".join(record.includes),
        )
    return table
