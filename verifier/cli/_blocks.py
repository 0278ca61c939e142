"""The block formats' part of `verifier verify`: which signatures of a file are valid."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from node_adapter.client import VerifierClient
from node_adapter.errors import FormatError
from node_adapter.formats import Outcome, Record, Unsigned, Unverifiable, Verdict, settle, verify_signed
from verifier.cli._formats import Reader, hint, read_file
from verifier.model import Code

__all__ = ["verify_blocks"]

_AT_ONCE = 32_768  # signatures that are verified together: what was read before an error is verified, too
_TRANSACTION = re.compile(r" transaction \d+")

Line = Verdict | Unverifiable | Unsigned


@dataclass(slots=True)
class _File:
    """What is known of a file so far."""

    path: Path
    records: list[Record] = field(default_factory=list)
    verdicts: list[list[Verdict]] = field(default_factory=list)
    error: FormatError | OSError | None = None
    served_by: set[str] = field(default_factory=set)
    devices: set[str] = field(default_factory=set)


def verify_blocks(
    client: VerifierClient, files: Sequence[Path], read: Reader, console: Console, *, brief: bool = False
) -> tuple[dict[str, Any], bool, FormatError | OSError | None]:
    """Verifies every signature of the files. Gives what was found, whether all is valid, and the first file's error.

    Prints every transaction with what became of it; `brief`: those alone that are not plainly valid.
    """
    found = [_file(client, path, read, console, brief) for path in files]
    error = next((file.error for file in found if file.error), None)
    good = all(
        verdict.code is Code.VALID for file in found for verdicts in file.verdicts for verdict in verdicts
    ) and not any(record.unverifiable for file in found for record in file.records)
    return {"files": [_as_json(file) for file in found]}, good and error is None, error


def _file(client: VerifierClient, path: Path, read: Reader, console: Console, brief: bool) -> _File:
    file = _File(path)
    try:
        data = read_file(path)
    except OSError as error:
        file.error = error
        return file
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), DownloadColumn())
    with Progress(
        *columns,
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=console.quiet or not console.is_terminal,
    ) as progress:
        bar = progress.add_task(path.name, total=len(data))
        for records, broken in _batches(read(data)):
            start = len(file.records)
            _verify(client, file, records)
            if broken:
                file.error = FormatError(broken.offset, f"{broken.problem}{hint(data)} ({path})")
            for record, verdicts in zip(file.records[start:], file.verdicts[start:], strict=True):
                _print_record(console, record, verdicts, brief)
            progress.update(bar, completed=max((record.stop for record in records), default=0))
    if not file.records and file.error is None:  # an empty file is no ledger whose every signature is valid
        file.error = FormatError(0, f"no block and no transaction is in it ({path})")
    _print_totals(console, file)
    return file


def _batches(records: Iterator[Record]) -> Iterator[tuple[list[Record], FormatError | None]]:
    """Records with about as many signatures as are verified together; the last ones with the file's error, if any."""
    waiting: list[Record] = []
    signatures = 0
    while True:
        try:
            record = next(records, None)
        except FormatError as error:
            yield waiting, error
            return
        if record is None:
            yield waiting, None
            return
        waiting.append(record)
        signatures += len(record.signed)
        if signatures >= _AT_ONCE:
            yield waiting, None
            waiting, signatures = [], 0


def _verify(client: VerifierClient, file: _File, records: list[Record]) -> None:
    signed = [item for record in records for item in record.signed]
    outcome = verify_signed(client, signed)
    outcome.raise_unanswered()
    file.served_by.update(outcome.served_by)
    file.devices.update(outcome.devices)
    start = 0
    for record in records:
        stop = start + len(record.signed)
        part = {place - start: outcome.addresses[place] for place in range(start, stop) if place in outcome.addresses}
        file.records.append(replace(record, signed=()))  # what was signed is not needed any more
        file.verdicts.append(settle(record.signed, Outcome(outcome.codes[start:stop], part)))
        start = stop


def _print_record(console: Console, record: Record, verdicts: list[Verdict], brief: bool) -> None:
    """A line for the record, one for each of its transactions, and one for each thing that is not plainly valid."""
    every: tuple[Line, ...] = (*verdicts, *record.unverifiable, *record.unsigned)
    groups: dict[str, list[Line]] = {}
    for line in every:
        transaction = _TRANSACTION.match(line.where.removeprefix(record.name))
        groups.setdefault(transaction[0].strip() if transaction else "", []).append(line)
    own = groups.pop("", [])
    if brief and not any(_remark(line, record.name) for line in every):
        return
    head = f"{escape(record.name)}: {_counts(every)}"
    if not groups:
        told = [head, *_remarks(own, record.name, "  ")]
    else:
        told = [f"{head} in {record.transactions} transactions"]
        for name, group in groups.items():
            remarks = _remarks(group, name, "    ")
            if remarks or not brief:
                told += [f"  {name}: {_counts(group)}{_signers(group)}", *remarks]
        told += _remarks(own, record.name, "  ")
    console.print("\n".join(told), highlight=False, soft_wrap=True)


def _counts(lines: Sequence[Line]) -> str:
    codes = Counter(line.code.name.lower() for line in lines if isinstance(line, Verdict))
    unverifiable = sum(isinstance(line, Unverifiable) for line in lines)
    counts = [f"{count} {code}" for code, count in sorted(codes.items())]
    counts += [f"{unverifiable} not verifiable"] if unverifiable else []
    return ", ".join(counts) or "nothing signed"


def _signers(lines: Sequence[Line]) -> str:
    """Who signed, where the signatures tell."""
    addresses = dict.fromkeys(line.address for line in lines if isinstance(line, Verdict) and line.address)
    return f" by {', '.join(f'0x{address.hex()}' for address in addresses)}" if addresses else ""


def _remarks(lines: Sequence[Line], name: str, indent: str) -> list[str]:
    return [f"{indent}{text}" for line in lines if (text := _remark(line, name))]


def _remark(line: Line, name: str) -> str:
    """What to say of something that is not plainly valid."""
    where = escape(line.where.partition(name)[2].strip())
    before = f"{where}: " if where else ""
    if isinstance(line, Unverifiable):
        return f"{before}[yellow]not verifiable[/yellow]: {escape(line.why)}"
    if isinstance(line, Unsigned):
        return f"{before}[dim]unsigned: {escape(line.why)}[/dim]"
    if line.code is Code.VALID:
        return ""
    style = "yellow" if line.code is Code.UNDECIDED else "red"
    return f"{before}[{style}]{line.code.name.lower()}[/{style}]"


def _print_totals(console: Console, file: _File) -> None:
    verdicts = [verdict for found in file.verdicts for verdict in found]
    codes = Counter(verdict.code for verdict in verdicts)
    unverifiable = sum(len(record.unverifiable) for record in file.records)
    unsigned = sum(len(record.unsigned) for record in file.records)
    senders = {verdict.address for verdict in verdicts if verdict.address}
    served = f"; served by {', '.join(sorted(file.served_by))} on {', '.join(sorted(file.devices))}"
    counts = ", ".join(f"{count} {code.name.lower()}" for code, count in sorted(codes.items())) or "none"
    console.print(
        f"{escape(str(file.path))}: {len(file.records)} records, "
        f"{sum(record.transactions for record in file.records)} transactions, {len(verdicts)} signatures: {counts}; "
        f"{unverifiable} not verifiable{f'; {unsigned} unsigned' if unsigned else ''}"
        f"{served if file.served_by else ''}",
        highlight=False,
        soft_wrap=True,
    )
    if senders:
        shown = ", ".join(sorted(f"0x{address.hex()}" for address in senders)[:5])
        noun = "signer" if len(senders) == 1 else "signers"
        more = " ..." if len(senders) > 5 else ""
        console.print(f"{len(senders)} {noun}: {shown}{more}", highlight=False, soft_wrap=True)


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
                "unsigned": [{"where": item.where, "why": item.why} for item in record.unsigned],
            }
            for record, verdicts in zip(file.records, file.verdicts, strict=True)
        ],
        "error": str(file.error) if file.error else None,
        "served_by": sorted(file.served_by),
        "devices": sorted(file.devices),
    }
