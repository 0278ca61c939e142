"""`verifier demo`: a permissioned chain whose nodes verify through a daemon."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Annotated, Any

import grpc
import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from node_adapter.chain import (
    Asked,
    Conditions,
    Middleware,
    NodeSettings,
    Point,
    Pool,
    RealTime,
    Report,
    issue_members,
    make_pool,
    report_of,
    requests_of,
)
from node_adapter.client import AsyncVerifierClient, VerifierClient
from node_adapter.errors import AdapterError
from verifier.cli._console import complain, progress_on
from verifier.cli._local import daemon_address
from verifier.cli._tls import TlsCa, TlsCertificate, TlsKey, credentials
from verifier.errors import VerifierError

__all__ = ["register"]

Tls = grpc.ChannelCredentials | None

EXIT_MISMATCH = 1
EXIT_FAILED = 2
_ANSWER_S = 10.0  # for a daemon to answer at all
_MALFORMED = 5  # requests that are no transactions


def register(app: typer.Typer) -> None:
    """Adds the command."""

    @app.command()
    def demo(
        blocks: Annotated[int, typer.Option(min=1, help="Blocks' worth of transactions.")] = 10,
        transactions: Annotated[int, typer.Option(min=1, help="Transactions in a block.")] = 100,
        validators: Annotated[int, typer.Option(min=4, help="Validators of the chain.")] = 4,
        faults: Annotated[float, typer.Option(min=0, max=1, help="Share of transactions that are spoilt.")] = 0.1,
        loss: Annotated[float, typer.Option(min=0, max=0.5, help="Share of messages that are lost.")] = 0.0,
        delay: Annotated[float, typer.Option(min=0, max=1, help="Seconds that a message takes at most.")] = 0.005,
        seed: Annotated[int, typer.Option(help="Keys, transactions and faults follow from it.")] = 1,
        address: Annotated[
            str | None, typer.Option(help="A daemon's host:port. Without it one is started for this run.")
        ] = None,
        tls_ca: TlsCa = None,
        tls_certificate: TlsCertificate = None,
        tls_key: TlsKey = None,
        timeout: Annotated[float, typer.Option(min=0.1, help="Seconds that the run may take.")] = 300.0,
        as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
    ) -> None:
        """Run a permissioned chain against a daemon.

        Its clients sign transfers with SM2 and spoil a share of them; its validators agree on blocks (PBFT), verify
        every transaction through the daemon, and must reject exactly the spoilt ones. Half-way one validator crashes;
        at the end it comes back and catches up. Ends with 0 if all went well, 1 if not, 2 if the daemon failed.

        Examples:

          verifier demo

          verifier demo --validators 7 --blocks 50 --loss 0.05 --delay 0.02

          verifier demo --address 127.0.0.1:50051 --json
        """
        console = Console(quiet=as_json)
        try:
            tls = credentials(tls_ca, tls_certificate, tls_key)
            with progress_on(console) as progress:
                total = blocks * transactions
                start = (
                    f"the daemon at {address} answers" if address else "a daemon starts (plugins are compiled once)"
                )
                bar = progress.add_task(start, total=1)
                with daemon_address(address, ("sm2", "ecdsa")) as target:
                    _check_daemon(target, tls)
                    progress.update(bar, completed=1)
                    bar = progress.add_task("signing transactions (once; kept in the cache)", total=total)
                    pool = make_pool(
                        seed,
                        total,
                        fault_share=faults,
                        progress=lambda done, _: progress.update(bar, completed=done),
                    )
                    progress.update(bar, completed=total)
                    bar = progress.add_task(f"{validators} validators build blocks", total=total + _MALFORMED)
                    report = asyncio.run(
                        _run(
                            target,
                            tls,
                            pool,
                            validators=validators,
                            seed=seed,
                            settings=NodeSettings(block_transactions=transactions),
                            conditions=Conditions(min(0.001, delay), delay, loss),
                            limit_s=timeout,
                            progress=lambda done: progress.update(bar, completed=done),
                        )
                    )
        except (AdapterError, VerifierError, OSError) as error:
            complain(error)
            raise typer.Exit(EXIT_FAILED) from None
        figures = summary(report, pool.signed)
        if as_json:
            typer.echo(json.dumps(figures, indent=2))
        _print(console, figures)
        for mismatch in report.mismatches[:20]:
            complain(mismatch, "mismatch")
        raise typer.Exit(0 if report.ok else EXIT_MISMATCH)


def _check_daemon(target: str, tls: Tls) -> None:
    """Raises AdapterError where nobody answers: nodes would ask for the whole time of the run."""
    with VerifierClient(target, credentials=tls) as client:
        client.limits(_ANSWER_S)


async def _run(
    target: str,
    tls: Tls,
    pool: Pool,
    *,
    validators: int,
    seed: int,
    settings: NodeSettings,
    conditions: Conditions,
    limit_s: float,
    progress: Callable[[int], None],
) -> Report:
    """All transactions are answered, the last validator being away for the second half; then it catches up."""
    requests = requests_of(pool, _MALFORMED)
    engines = [Middleware(AsyncVerifierClient(target, credentials=tls)) for _ in range(validators)]
    world = RealTime(
        issue_members(seed, validators),
        pool,
        requests,
        engines,
        seed=seed,
        settings=settings,
        conditions=conditions,
        window=4 * settings.block_transactions,
    )
    try:
        start = world.clock.time()
        away = validators - 1

        def answered(share: float) -> bool:
            progress(len(world.client.outcomes))
            # After a surprise the rest may never be answered: a nonce that a forged transaction took is gone.
            return len(world.client.outcomes) >= share * len(requests) or world.client.surprises > 0

        def level() -> bool:
            return len({node.state.root() for node in world.nodes}) == 1 or world.client.surprises > 0

        world.client.start()
        await world.run(lambda: answered(0.5), limit_s)
        world.crash(away)
        await world.run(lambda: answered(1.0), limit_s)
        seconds = world.clock.time() - start
        world.restart(away)
        await world.run(level, limit_s)
        return report_of(world, pool, requests, seconds)
    finally:
        await world.finish()


def summary(report: Report, signed: int) -> dict[str, Any]:
    """The figures of a run. Latencies are in milliseconds: of a transaction from its client's side, and of one batch
    from its node's side."""
    verifications = sum(asked.items for asked in report.asked)
    return {
        "ok": report.ok,
        "blocks": report.blocks,
        "views": report.views,
        "transactions": report.transactions,
        "signed_now": signed,
        "seconds": round(report.seconds, 3),
        "transactions_per_s": round(report.transactions / report.seconds, 1),
        "latency_ms": _percentiles(report.latencies_s),
        "verifications": verifications,
        "verifications_per_s": round(verifications / report.seconds, 1),
        "points": {point.value: _batches(report.at(point)) for point in Point},
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


def _batches(asked: list[Asked]) -> dict[str, Any]:
    return {
        "batches": len(asked),
        "signatures": sum(each.items for each in asked),
        "latency_ms": _percentiles([each.seconds for each in asked]),
    }


def _percentiles(seconds: Any) -> dict[str, float] | None:
    if not len(seconds):
        return None
    p50, p99 = np.percentile(seconds, [50, 99]) * 1e3
    return {"p50": round(float(p50), 2), "p99": round(float(p99), 2)}


def _print(console: Console, figures: dict[str, Any]) -> None:
    table = Table(show_header=False, title="Run", title_justify="left")
    served = "\n".join(f"{s['plugin']} on {s['device']}: {s['signatures']} signatures" for s in figures["served"])
    rows = {
        "chain": f"{figures['blocks']} blocks, {figures['transactions']} transactions in {figures['seconds']} s, "
        f"view {figures['views']}",
        "throughput": f"{figures['transactions_per_s']} transactions/s, "
        f"{figures['verifications_per_s']} verifications/s by all validators",
        "a transaction is on the chain": _latency(figures["latency_ms"]),
    }
    for name, point in figures["points"].items():
        rows[f"verified on {name}"] = (
            f"{point['signatures']} signatures in {point['batches']} batches; {_latency(point['latency_ms'])}"
        )
    rows |= {"served by": served, "state of every validator": figures["state"]}
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


def _latency(percentiles: dict[str, float] | None) -> str:
    return f"p50 {percentiles['p50']} ms, p99 {percentiles['p99']} ms" if percentiles else "-"
