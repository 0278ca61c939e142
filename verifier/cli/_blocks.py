"""The block formats' part of `verifier verify`: which signatures of a file are valid."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import Progress
from rich.table import Table

from node_adapter.client import VerifierClient
from node_adapter.errors import FormatError
from node_adapter.formats import Outcome, Record, Verdict, settle, verify_signed
from verifier.model import Code

__all__ = ["verify_blocks"]

_AT_ONCE = 32_768  # signatures that are verified together: what was read before an error is verified, too
_SHOWN = 50  # signatures that are not valid, in the table

Reader = Callable[[bytes], Iterator[Record]]


@dataclass(frozen=True, slots=True)
class _File:
    path: Path
    records: list[Record]
    verdicts: list[list[Verdict]]
    error: FormatError | None
    served_by: set[str]
    devices: set[str]


def verify_blocks(
    client: VerifierClient, files: Sequence[Path], read: Reader, console: Console
) -> tuple[dict[str, Any], bool, FormatError | None]:
    """Verifies every signature of the files. Gives what was found, whether all is valid, and the first bad file."""
    found = [_file(client, path, read, console) for path in files]
    for file in found:
        _print(console, file)
    error = next((file.error for file in found if file.error), None)
    good = all(
        verdict.code is Code.VALID for file in found for verdicts in file.verdicts for verdict in verdicts
    ) and not any(record.unverifiable for file in found for record in file.records)
    return {"files": [_as_json(file) for file in found]}, good and error is None, error


def _file(client: VerifierClient, path: Path, read: Reader, console: Console) -> _File:
    file = _File(path, [], [], None, set(), set())
    error = None
    with Progress(console=console, transient=True, disable=console.quiet) as progress:
        bar = progress.add_task(path.name, total=None)
        waiting: list[Record] = []
        records = read(path.read_bytes())
        while True:
            try:
                record = next(records, None)
            except FormatError as problem:
                record, error = None, FormatError(problem.offset, f"{problem.problem} ({path})")
            if record:
                waiting.append(record)
            if waiting and (record is None or sum(len(r.signed) for r in waiting) >= _AT_ONCE):
                _verify(client, file, waiting)
                progress.update(bar, completed=len(file.records), total=None)
                waiting = []
            if record is None:
                break
    return _File(path, file.records, file.verdicts, error, file.served_by, file.devices)


def _verify(client: VerifierClient, file: _File, records: list[Record]) -> None:
    signed = [item for record in records for item in record.signed]
    outcome = verify_signed(client, signed)
    outcome.raise_unanswered()
    file.served_by.update(outcome.served_by)
    file.devices.update(outcome.devices)
    start = 0
    for record in records:
        stop = start + len(record.signed)
        part = {place - start: a for place, a in outcome.addresses.items() if start <= place < stop}
        file.records.append(record)
        file.verdicts.append(settle(record.signed, Outcome(outcome.codes[start:stop], part)))
        start = stop


def _print(console: Console, file: _File) -> None:
    verdicts = [verdict for found in file.verdicts for verdict in found]
    codes = Counter(verdict.code for verdict in verdicts)
    unverifiable = [item for record in file.records for item in record.unverifiable]
    senders = {verdict.address for verdict in verdicts if verdict.address}
    table = Table("what", "verdict", title=escape(str(file.path)), title_justify="left")
    for verdict in [verdict for verdict in verdicts if verdict.code is not Code.VALID][:_SHOWN]:
        style = "yellow" if verdict.code is Code.UNDECIDED else "red"
        table.add_row(escape(verdict.where), f"[{style}]{verdict.code.name.lower()}[/{style}]")
    for item in unverifiable[:_SHOWN]:
        table.add_row(escape(item.where), f"[yellow]not verifiable[/yellow]: {escape(item.why)}")
    if table.row_count:
        console.print(table)
    served = f"; served by {', '.join(sorted(file.served_by))} on {', '.join(sorted(file.devices))}"
    counts = ", ".join(f"{count} {code.name.lower()}" for code, count in sorted(codes.items())) or "none"
    console.print(
        f"{escape(str(file.path))}: {len(file.records)} records, "
        f"{sum(record.transactions for record in file.records)} transactions, {len(verdicts)} signatures: {counts}; "
        f"{len(unverifiable)} not verifiable{served if file.served_by else ''}",
        highlight=False,
        soft_wrap=True,
    )
    if senders:
        shown = ", ".join(sorted(f"0x{address.hex()}" for address in senders)[:5])
        console.print(f"{len(senders)} signers: {shown}{' ...' if len(senders) > 5 else ''}", highlight=False)


def _as_json(file: _File) -> dict[str, Any]:
    return {
        "file": str(file.path),
        "transactions": sum(record.transactions for record in file.records),
        "signatures": sum(len(verdicts) for verdicts in file.verdicts),
        "records": [
            {
                "name": record.name,
                "transactions": record.transactions,
                "signatures": [
                    {
                        "where": verdict.where,
                        "verdict": verdict.code.name,
                        **({"address": f"0x{verdict.address.hex()}"} if verdict.address else {}),
                    }
                    for verdict in verdicts
                ],
                "not_verifiable": [{"where": item.where, "why": item.why} for item in record.unverifiable],
            }
            for record, verdicts in zip(file.records, file.verdicts, strict=True)
        ],
        "error": str(file.error) if file.error else None,
        "served_by": sorted(file.served_by),
        "devices": sorted(file.devices),
    }
