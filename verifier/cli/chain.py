"""`verifier chain`: what a permissioned chain gains by the middleware, and whether it keeps its promises."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from node_adapter.errors import AdapterError
from verifier.cli._console import complain, progress_on, widened
from verifier.errors import VerifierError

if TYPE_CHECKING:
    from verifier.cli._chain_bench import Result

__all__ = ["register"]

EXIT_BROKEN = 1
EXIT_FAILED = 2

_BENCH = """Measure what a chain gains by the middleware.

Validators run as processes with their disks and sockets, with their transactions verified in the node by the usual
CPU library (OpenSSL for P-256, gmssl for SM2), and by a daemon on each device. A chain whose nodes take every
signature for valid shows what everything else costs: from it follow the share of verification, and Amdahl's
prediction, which stands beside each measurement.

Examples:

    verifier chain bench                                     P-256, this machine's CPU and its first GPU

    verifier chain bench --algorithm sm2 --transactions 2000 --output bench/results/chain.jsonl --plot chain.svg
"""

_STORM = """Break everything, and see whether the chain keeps its promises.

Each seed is one run on a simulated clock: f of the 3f + 1 validators are byzantine, messages are late or lost, the
network is parted, nodes and daemons crash. No forged transaction may come on an honest chain, no two honest nodes may
have different blocks, nothing committed may be lost, and all must be well some time after the storm. Signatures are
verified by the plugin on this machine's CPU. Ends with 1 if a promise was broken.

Examples:

    verifier chain storm --seeds 20

    verifier chain storm --validators 7 --first 1000 --seeds 100 --quiet
"""


class Algorithms(StrEnum):
    """What transactions are signed with."""

    P256 = "p256"
    SM2 = "sm2"


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    chain = typer.Typer(help="A permissioned chain to measure and to break.", no_args_is_help=True)
    chain.command("bench", help=_BENCH)(bench)
    chain.command("storm", help=_STORM)(storm)
    app.add_typer(chain, name="chain")


def bench(
    algorithm: Annotated[Algorithms, typer.Option(help="What transactions are signed with.")] = Algorithms.P256,
    transactions: Annotated[int, typer.Option(min=500, help="Transactions of a run.")] = 6_000,
    accounts: Annotated[int, typer.Option(min=2, help="Accounts that sign them.")] = 32,
    validators: Annotated[int, typer.Option(min=4, help="Validators of the chain.")] = 4,
    block: Annotated[int, typer.Option(min=1, help="Transactions in a block, at most.")] = 200,
    window: Annotated[
        int | None,
        typer.Option(
            min=1, help="Transactions that the client has under way: 1000, or a sixth of all if that is less."
        ),
    ] = None,
    receipt_delay_ms: Annotated[
        float,
        typer.Option(min=0, help="Received transactions wait so long for others, to be verified with them."),
    ] = 20.0,
    repeats: Annotated[int, typer.Option(min=1, help="Runs of each case; the median counts.")] = 3,
    seconds: Annotated[float, typer.Option(min=1, help="The longest that a run may take.")] = 30.0,
    device: Annotated[
        list[str] | None, typer.Option(help="Devices for the middleware: cpu, cuda:0. By default all that there are.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "--out", help="Add the records to this file of JSON lines.")
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw them here, as SVG or PNG (extra `plot`).")] = None,
) -> None:
    """Runs the experiment."""
    from node_adapter.chain import make_pool
    from node_adapter.client import Algorithm
    from verifier.bench.records import append_records
    from verifier.cli._chain_bench import Case, cases_on, draw, records_of, run_cases
    from verifier.drivers import list_devices

    console = Console()
    if window is None:
        window = min(1_000, transactions // 6)
    elif 4 * window > transactions:
        # What is sent at once goes on chain at once: no rate can be read from that.
        raise typer.BadParameter(f"--window {window}: a quarter of --transactions at most, {transactions // 4} here")
    with _errors():
        chosen = Algorithm.SM2 if algorithm is Algorithms.SM2 else Algorithm.ECDSA_P256
        present = [info.id for info in list_devices()]
        devices = device or [present[0], *(["cpu"] if present[0] != "cpu" else [])]
        if missing := [name for name in devices if name not in present]:
            raise typer.BadParameter(f"there is no {', '.join(missing)} here; there are {', '.join(present)}")
        with progress_on(console) as progress:
            bar = progress.add_task("signing transactions (once; kept in the cache)", total=transactions)
            pool = make_pool(
                1,
                transactions,
                algorithm=chosen,
                accounts=accounts,
                fault_share=0,
                progress=lambda done, _: progress.update(bar, completed=done),
            )
            progress.update(bar, completed=transactions)
            cases = cases_on(devices)
            bar = progress.add_task("running chains", total=2 * len(cases) * repeats)

            def begun(case: Case) -> None:
                progress.update(bar, advance=1, description=f"running chains: {case}")

            results = run_cases(
                pool,
                cases,
                validators=validators,
                block=block,
                window=window,
                receipt_delay_s=receipt_delay_ms / 1e3,
                repeats=repeats,
                seconds=seconds,
                begun=begun,
            )
        widened(console).print(_table(results))
        if output:
            records = records_of(results, pool, validators, block, window, receipt_delay_ms / 1e3)
            append_records(output, records)
            console.print(f"{len(records)} records added to {output}")
        if plot:
            draw(results, plot)
            console.print(f"drawn in {plot}")


def _table(results: list[Result]) -> Table:
    table = Table(
        "verification",
        "verified on",
        "tx/s",
        "spread",
        "p50",
        "p99",
        "node CPU",
        "daemon CPU",
        "share of node",
        "in calls",
        "waits",
        "gain tx/s",
        "gain CPU",
        "Amdahl",
        title="Transactions on chain",
        title_justify="left",
        caption="CPU: of all nodes, and of the daemon, for a transaction. Share of node: verification's part of the\n"
        "nodes' CPU, by the difference from no verification; in calls: as measured there, of the library, or of\n"
        "all that calls of the middleware take. Waits: the part of the time in which a proposal waits for\n"
        "verdicts. Gains are over the library.",
        caption_justify="left",
    )
    for result in results:
        median = result.median
        table.add_row(
            str(result.case),
            "receipt" if result.early else "proposal",
            f"{median.rate:,.0f}",
            f"{result.spread:.0%}",
            f"{median.p50_s * 1e3:.0f} ms",
            f"{median.p99_s * 1e3:.0f} ms",
            f"{median.node_cpu_s * 1e6:.0f} µs",
            f"{median.daemon_cpu_s * 1e6:.0f} µs",
            f"{result.share:.1%}",
            f"{result.measured_share:.1%}",
            f"{median.wait_share:.1%}",
            f"{result.gain:.2f}",
            f"{result.cpu_gain:.2f}",
            f"{result.predicted_gain:.2f}" if result.predicted_gain else "",
        )
    return table


def storm(
    seeds: Annotated[int, typer.Option(min=1, help="Runs.")] = 100,
    first: Annotated[int, typer.Option(min=0, help="The first seed.")] = 0,
    validators: Annotated[int, typer.Option(min=4, help="Validators of the chain.")] = 4,
    as_quiet: Annotated[bool, typer.Option("--quiet", help="Only broken promises.")] = False,
) -> None:
    """Runs the seeds."""
    from node_adapter import LocalVerifier
    from node_adapter.chain import (
        MEMBER_SCHEME,
        RememberedVerdicts,
        by_library,
        by_middleware,
        issue_members,
        make_pool,
    )
    from node_adapter.chain.safety import run_seed

    console = Console(quiet=as_quiet)
    errors = Console(stderr=True)
    broken = 0
    with _errors(), ExitStack() as stack:
        pool = make_pool(1, 120, accounts=8, fault_share=0.25)
        middleware = by_middleware(stack.enter_context(LocalVerifier(["sm2"])).client())
        verify = RememberedVerdicts(lambda q: by_library(q) if q.scheme == MEMBER_SCHEME else middleware(q))
        identities = issue_members(7, validators)
        progress = stack.enter_context(progress_on(console))
        bar = progress.add_task(f"storms over {validators} validators", total=seeds)
        for seed in range(first, first + seeds):
            outcome = run_seed(seed, identities, pool, verify)
            broken += bool(outcome.violations)
            for violation in outcome.violations[:5]:
                errors.print(f"[red]seed {seed}[/red]: {violation} ({outcome.byzantine})", soft_wrap=True)
            progress.advance(bar)
    console.print(f"{seeds - broken} of {seeds} seeds kept every promise")
    raise typer.Exit(EXIT_BROKEN if broken else 0)


@contextmanager
def _errors() -> Iterator[None]:
    try:
        yield
    except (AdapterError, VerifierError) as error:
        complain(error)
        raise typer.Exit(EXIT_FAILED) from None
