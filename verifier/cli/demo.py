"""`verifier demo`: a permissioned chain whose validators verify through a daemon."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from node_adapter.chain import Report, Simulation, make_pool
from node_adapter.errors import AdapterError
from verifier.cli._local import daemon_address
from verifier.errors import VerifierError

__all__ = ["register"]

EXIT_MISMATCH = 1
EXIT_FAILED = 2


def register(app: typer.Typer) -> None:
    """Adds the command."""

    @app.command()
    def demo(
        blocks: Annotated[int, typer.Option(min=1, help="Blocks to build.")] = 10,
        transactions: Annotated[int, typer.Option(min=1, help="Transactions in a block.")] = 100,
        validators: Annotated[int, typer.Option(min=4, help="Validators of the chain.")] = 4,
        faults: Annotated[float, typer.Option(min=0, max=1, help="Share of transactions that are spoilt.")] = 0.1,
        seed: Annotated[int, typer.Option(help="Everything but the times follows from it.")] = 1,
        address: Annotated[
            str | None, typer.Option(help="A daemon's host:port. Without it one is started for this run.")
        ] = None,
        timeout: Annotated[float, typer.Option(min=0.1, help="Seconds that a batch may take.")] = 60.0,
        as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
    ) -> None:
        """Run a simulated permissioned chain against a daemon.

        Its clients sign transfers with SM2 and spoil a share of them; its validators verify every block through the
        daemon and must reject exactly those. Ends with 0 if they did, 1 if not, 2 if the daemon failed.
        """
        console = Console(quiet=as_json)
        errors = Console(stderr=True)
        try:
            with _progress(console) as progress:
                bar = progress.add_task("signing transactions (once; kept in the cache)", total=blocks * transactions)
                pool = make_pool(
                    seed,
                    blocks * transactions,
                    fault_share=faults,
                    progress=lambda done, _: progress.update(bar, completed=done),
                )
                progress.update(bar, completed=blocks * transactions)
                with daemon_address(address, ("sm2",)) as target:
                    simulation = Simulation(
                        target,
                        pool,
                        seed=seed,
                        validators=validators,
                        block_transactions=transactions,
                        timeout_s=timeout,
                    )
                    bar = progress.add_task(f"{validators} validators build blocks", total=len(pool.entries))
                    report = simulation.run(lambda committed: progress.advance(bar, committed))
        except (AdapterError, VerifierError) as error:
            errors.print(f"[red]{type(error).__name__}[/red]: {error}", highlight=False, soft_wrap=True)
            raise typer.Exit(EXIT_FAILED) from None
        figures = summary(report, pool.signed)
        if as_json:
            typer.echo(json.dumps(figures, indent=2))
        _print(console, figures)
        for mismatch in report.mismatches[:20]:
            errors.print(f"[red]mismatch[/red]: {mismatch}", highlight=False, soft_wrap=True)
        raise typer.Exit(0 if report.ok else EXIT_MISMATCH)


@contextmanager
def _progress(console: Console) -> Iterator[Progress]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=console.quiet) as progress:
        yield progress


def summary(report: Report, signed: int) -> dict[str, Any]:
    """The figures of a run. Latencies are of one batch, from the node's side, in milliseconds."""
    blocks = np.array([q.seconds for q in report.questions if q.kind == "transactions"]) * 1e3
    votes = np.array([q.seconds for q in report.questions if q.kind != "transactions"]) * 1e3
    return {
        "ok": report.ok,
        "blocks": report.blocks,
        "transactions": report.transactions,
        "signed_now": signed,
        "seconds": round(report.seconds, 3),
        "transactions_per_s": round(report.transactions / report.seconds, 1),
        "verifications": report.verifications,
        "verifications_per_s": round(report.verifications / report.seconds, 1),
        "block_latency_ms": _percentiles(blocks),
        "vote_latency_ms": _percentiles(votes),
        "sync": None
        if report.sync is None
        else {"signatures": report.sync.items, "seconds": round(report.sync.seconds, 3)},
        "served": [
            {"plugin": plugin, "device": device, "signatures": count}
            for (plugin, device), count in sorted(report.served.items())
        ],
        "rejected": dict(sorted(report.rejected.items())),
        "expected": dict(sorted(report.expected.items())),
        "faults": dict(sorted(report.by_fault.items())),
        "state": report.states[0],
        "mismatches": list(report.mismatches),
    }


def _percentiles(values: Any) -> dict[str, float]:
    p50, p99 = np.percentile(values, [50, 99])
    return {"p50": round(float(p50), 2), "p99": round(float(p99), 2)}


def _print(console: Console, figures: dict[str, Any]) -> None:
    table = Table(show_header=False, title="Run", title_justify="left")
    served = "\n".join(f"{s['plugin']} on {s['device']}: {s['signatures']} signatures" for s in figures["served"])
    rows = {
        "chain": f"{figures['blocks']} blocks, {figures['transactions']} transactions in {figures['seconds']} s",
        "throughput": f"{figures['transactions_per_s']} transactions/s, "
        f"{figures['verifications_per_s']} verifications/s by all validators",
        "latency of a block's batch": f"p50 {figures['block_latency_ms']['p50']} ms, "
        f"p99 {figures['block_latency_ms']['p99']} ms",
        "latency of votes": f"p50 {figures['vote_latency_ms']['p50']} ms, p99 {figures['vote_latency_ms']['p99']} ms",
        "a late node catches up": f"{figures['sync']['signatures']} signatures in {figures['sync']['seconds']} s",
        "served by": served,
        "state of every validator": figures["state"],
    }
    for name, value in rows.items():
        table.add_row(name, value)
    console.print(table)
    rejections = Table("rejected because", "expected", "found", title="Rejections", title_justify="left")
    for reason in sorted({*figures["expected"], *figures["rejected"]}):
        expected, found = figures["expected"].get(reason, 0), figures["rejected"].get(reason, 0)
        rejections.add_row(reason, str(expected), str(found), style="" if expected == found else "red")
    console.print(rejections)
    if figures["ok"]:
        console.print("[green]Exactly the spoilt transactions were rejected, each for its reason.[/green]")
