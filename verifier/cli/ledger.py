"""`verifier ledger`: a chain's history to Parquet, and its verification in bulk."""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from node_adapter.errors import AdapterError
from node_adapter.formats import fisco
from verifier.cli._console import complain
from verifier.cli._formats import BlockFormat, ChainId, Crypto, Reader, SpentFile, block_reader, read_file
from verifier.errors import VerifierError

if TYPE_CHECKING:
    from node_adapter.ledger import Group, Options, Outcome, Plan

__all__ = ["register"]

EXIT_NOT_VALID = 1
EXIT_FAILED = 2

_app = typer.Typer(help="Export a chain's history to Parquet, and verify it in bulk.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    app.add_typer(_app, name="ledger")


@_app.command("export")
def export_(
    files: Annotated[list[Path], typer.Argument(help="The chain's own files.", show_default=False)],
    format_: Annotated[BlockFormat, typer.Option("--format", help="What the files hold.", show_default=False)],
    out: Annotated[Path, typer.Option(help="The folder of the dataset: one Parquet file a source file.")],
    chain_id: ChainId = None,
    spent: SpentFile = None,
    crypto: Crypto = fisco.Crypto.sm2,
    group_rows: Annotated[int, typer.Option(min=1, help="Rows of a row group, about.")] = 65_536,
    jobs: Annotated[int, typer.Option(min=1, help="Files that are read at the same time, in processes.")] = 1,
) -> None:
    """Write every signature of these files to Parquet, ready for `verifier ledger verify`.

    Example: verifier ledger export --format ethereum --out ledger blocks-*.rlp

    Ends with 0 when all files were read to their end. 2: one broke off; what came before is in the dataset, and
    `verify` says so, too.
    """
    if jobs > 1 and format_ is BlockFormat.bitcoin:
        raise typer.BadParameter(
            "Bitcoin's blocks spend what earlier ones made: one job reads them", param_hint="--jobs"
        )
    with _failures():
        read = block_reader(format_, chain_id=chain_id, spent=spent, crypto=crypto)
        names = [file.name for file in files]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise typer.BadParameter(
                f"several files would be written to {', '.join(twice)}.parquet; export them apart"
            )
        broken = False
        with _progress("files") as progress, _processes(jobs) as run:
            work = run(partial(_export_file, read, out, group_rows), files)
            for text, error in progress.track(work, total=len(files), description="exporting"):
                progress.console.print(text, highlight=False, soft_wrap=True)
                if error:
                    broken = True
                    complain(error, "cannot be read")
    raise typer.Exit(EXIT_FAILED if broken else 0)


def _export_file(read: Reader, out: Path, group_rows: int, file: Path) -> tuple[str, str]:
    """What was exported, and where the file broke off."""
    from node_adapter.ledger import export

    target = out / f"{file.name}.parquet"
    done = export(read(read_file(file)), target, group_rows=group_rows)
    text = (
        f"{target}: {done.blocks} blocks, {done.transactions} transactions, {done.rows} rows, "
        f"{done.not_verifiable} not verifiable"
    )
    return text, f"{file}: {done.error}" if done.error else ""


@contextmanager
def _processes(count: int) -> Iterator[Callable[..., Iterable[tuple[str, str]]]]:
    """`map` over so many processes, or in this one."""
    if count == 1:
        yield map
        return
    with ProcessPoolExecutor(count, multiprocessing.get_context("spawn")) as pool:
        yield pool.map


@_app.command()
def verify(
    dataset: Annotated[Path, typer.Argument(help="A Parquet file, or a folder of them.", show_default=False)],
    device: Annotated[
        list[str] | None, typer.Option(help="Devices of this machine, as in the setting devices.use. [default: auto]")
    ] = None,
    processes: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=64,
            help="Processes that read for this machine's devices; 1: none but this one. "
            "[default: with a GPU one for 4 cores, 8 at most; else 1]",
        ),
    ] = None,
    ray: Annotated[
        str | None,
        typer.Option(help="Verify over a Ray cluster: its address, auto for the one this machine is in, or local."),
    ] = None,
    cpus: Annotated[int, typer.Option(min=1, help="CPUs of one actor, where the cluster has no GPU.")] = 1,
    checkpoint: Annotated[
        Path | None, typer.Option(help="What is done already, to go on with. [default: beside the report]")
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="The report's folder. [default: DATASET.report beside the dataset]")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")] = False,
) -> None:
    """Verify every signature of a dataset. A run that was cut off goes on where it stopped when it is started again.

    Examples:

    verifier ledger verify ledger
    verifier ledger verify ledger --device cuda:0 --report /tmp/report
    verifier ledger verify ledger --device cuda:0 --processes 6
    verifier ledger verify ledger --ray auto

    Ends with 0 if every signature is valid. 1: some are not, or cannot be verified. 2: something could not be read
    or decided; the next run tries it again.
    """
    if ray is not None and processes is not None:
        raise typer.BadParameter(
            "a cluster's actors read for themselves; leave out one of both", param_hint="--processes"
        )
    folder = report or dataset.parent / f"{dataset.name}.report"
    console = Console(quiet=as_json)
    with _failures():
        from node_adapter.ledger import Checkpoint, Options, plan_dataset, write_report

        dataset.stat()  # a misspelt name gets no report
        with console.status("reading the files' digests") as status:
            plan = plan_dataset(dataset, lambda path: status.update(f"read {path.name}"))
        options = Options(tuple(device or ("auto",)), ray, cpus, processes)
        with Checkpoint(checkpoint or folder / "checkpoint.jsonl") as done:
            outcomes = _verify(plan, done, options, console)
        write_report(outcomes, folder, dataset.name)
    raise typer.Exit(_conclude(outcomes, folder, console, as_json))


def _verify(plan: Plan, done: Any, options: Options, console: Console) -> list[Outcome]:
    from node_adapter.ledger import verify_dataset

    with _progress("rows", console) as progress:
        bar = progress.add_task("verifying", total=plan.rows)

        def advance(group: Group, _: Outcome) -> None:
            progress.advance(bar, group.rows)

        return verify_dataset(plan, done, options, advance)


def _conclude(outcomes: list[Outcome], folder: Path, console: Console, as_json: bool) -> int:
    from node_adapter.ledger import totals

    counts = totals(outcomes)
    failures = sum(len(outcome.failures) for outcome in outcomes)
    valid = all(outcome.valid for outcome in outcomes)
    errors = [
        {"file": outcome.path, "row_group": outcome.row_group, "error": outcome.error}
        for outcome in outcomes
        if outcome.error
    ]
    found = {
        "valid": valid,
        "signatures": dict(sorted(counts.items())),
        "row_groups": sum(outcome.row_group >= 0 for outcome in outcomes),
        "failures": failures,
        "errors": errors,
        "report": str(folder / "report.html"),
    }
    if as_json:
        typer.echo(json.dumps(found, indent=2, ensure_ascii=False))
    for outcome in outcomes:
        if outcome.error:
            place = outcome.path if outcome.row_group < 0 else f"{outcome.path}, row group {outcome.row_group}"
            text = f"[red]not read[/red]: {place}: {outcome.error}"
            Console(stderr=True).print(text, highlight=False, soft_wrap=True)
    texts = ", ".join(f"{count:,} {verdict}" for verdict, count in sorted(counts.items())) or "no signatures"
    console.print(f"{texts}; report in {folder / 'report.html'}", highlight=False, soft_wrap=True)
    if all(outcome.decided for outcome in outcomes):
        return 0 if valid else EXIT_NOT_VALID
    return EXIT_FAILED


def _progress(what: str, console: Console | None = None) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(what),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=bool(console and console.quiet),
    )


@contextmanager
def _failures() -> Iterator[None]:
    """Turns what goes wrong into a message and the exit status."""
    try:
        yield
    except ModuleNotFoundError as error:
        extra = {"pyarrow": "bulk", "ray": "cluster"}.get((error.name or "").partition(".")[0])
        if extra is None:
            raise
        complain(f"{error.name} is missing: pip install 'verifier[{extra}]'")
        raise typer.Exit(EXIT_FAILED) from None
    except (AdapterError, VerifierError, OSError, ValueError) as error:
        complain(error)
        raise typer.Exit(EXIT_FAILED) from None
