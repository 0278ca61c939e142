"""Records as tables for people: `python -m verifier.bench.report README.md bench/results`."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from verifier.bench.records import Record, records_in

__all__ = ["SWEEPS", "amount", "figures_table", "newest", "provider_of", "rewrite", "swept"]

BEGIN, END = "<!-- figures: written by script/figures from bench/results -->", "<!-- /figures -->"
SWEEPS = (
    "batch",
    "streams",
    "block-threads",
    "variant",
    "keys",
    "bitmaps",
)  # keys of Record.settings that make a point of a sweep
_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))

# Rates of so many processes, of a chain, and with a program's start: they have tables of their own in docs/.
_ELSEWHERE = ("transport-", "shm-", "grpc-", "request-", "chain-", "ledger-")


def amount(value: float, unit: str) -> str:
    """A rate or a time with a sensible prefix: 35.4 M items/s, 0.931 ms."""
    if unit == "s":
        return f"{value * 1e3:.3f} ms" if value < 1 else f"{value:.2f} s"
    for size, prefix in _PREFIXES:
        if value >= size:
            return (
                f"{value / size:.3g} {prefix} {unit}"
                if value / size < 1000
                else f"{value / size:.0f} {prefix} {unit}"
            )
    return f"{value:.3g} {unit}"


def newest(records: Iterable[Record]) -> list[Record]:
    """The latest record of every case, device, batch, provider and point of a sweep, in the order of their first
    appearance."""
    found: dict[tuple[object, ...], Record] = {}
    for record in records:
        key = (record.case, record.device, record.batch, provider_of(record), *swept(record))
        if key not in found or record.date >= found[key].date:
            found[key] = record
    return list(found.values())


def provider_of(record: Record) -> str:
    """The library that a CPU's build had in it, empty where there was none."""
    return str(record.settings.get("provider", ""))


def swept(record: Record) -> tuple[str | int | float, ...]:
    """The axis and the point that a record belongs to; nothing where it is of no sweep."""
    points = ((axis, record.settings[axis]) for axis in SWEEPS if axis in record.settings)
    # Records of enrolled keys up to 30 November 2026 say under `keys` how many there were.
    return next((point for point in points if point[0] != "keys" or isinstance(point[1], str)), ())


def figures_table(records: Iterable[Record]) -> str:
    """Three Markdown tables: signatures and digests on GPUs, ciphers there, and CPU cores beside libraries.

    A CPU's time on a shared machine is noise; its ratio to a library's in the same run is not.
    """
    latest = [record for record in newest(records) if not swept(record)]
    gpu = _largest(latest)
    tables = (_gpu_rows(gpu), _cipher_rows(gpu), _cpu_rows(latest), _cpu_cipher_rows(latest))
    return "\n\n".join("\n".join(rows) for rows in map(list, tables) if rows)


def _largest(records: Iterable[Record]) -> list[Record]:
    """A GPU's record of every case at its largest batch."""
    largest: dict[tuple[str, str], Record] = {}
    for record in records:
        key = (record.case, record.device)
        if record.cuda and not _left_out(record.case) and record.batch >= largest.get(key, record).batch:
            largest[key] = record
    return list(largest.values())


def _left_out(case: str) -> bool:
    """Records that a short table has no room for."""
    enrolled = "-enrolled" in case and (case.endswith(("-keys", "-kernel")) or "-largest-8192" in case)
    return enrolled or "-1-latency" in case or case.startswith(("limit-", "swap/", *_ELSEWHERE))


def _of_limit(record: Record) -> str:
    return f"{record.fraction_of_limit:.0%} of {record.limit}" if record.fraction_of_limit else ""


def _gpu_rows(records: Iterable[Record]) -> Iterable[str]:
    yield "| case | median | batch | includes | of the limit | device |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for record in records:
        if not record.case.startswith("cipher-"):
            yield (
                f"| {record.case} | {amount(record.rate, record.unit)} | {record.batch:,} "
                f"| {', '.join(record.includes)} | {_of_limit(record)} | {record.device} |"
            )


def _cipher_rows(records: Iterable[Record]) -> Iterable[str]:
    """A cipher and mode: with its data on the device, and from and to page-locked host memory."""
    places: dict[tuple[str, str], dict[str, Record]] = {}
    for record in records:
        name, _, place = record.case.removeprefix("cipher-").rpartition("-")
        if record.case.startswith("cipher-") and place in ("device", "host"):
            places.setdefault((name, record.device), {})[place] = record
    if not places:
        return
    yield "| cipher | data on the device | from and to the host | of the limit | device |"
    yield "| --- | --- | --- | --- | --- |"
    for (name, device), found in places.items():
        cells = [
            amount(found[place].rate, found[place].unit) if place in found else "" for place in ("device", "host")
        ]
        limit = _of_limit(found["host"]) if "host" in found else ""
        yield f"| {name} | {' | '.join(cells)} | {limit} | {device} |"


def _cpu_cipher_rows(records: Iterable[Record]) -> Iterable[str]:
    """Bytes a second of one core, and how often that is a library's rate on the same CPU."""
    rates = {(r.case, r.device): r.rate for r in records if r.case.startswith("cipher-") and "-cpu" in r.case}
    ours = [key for key in rates if key[0].endswith("-cpu")]
    if not ours:
        return
    yield "| one CPU core | GB/s | beside libraries | CPU |"
    yield "| --- | --- | --- | --- |"
    for case, device in ours:
        rate = rates[case, device]
        peers = ", ".join(
            f"{rate / theirs:.1f} × {name.removeprefix(f'{case}-')}"
            for (name, where), theirs in rates.items()
            if where == device and name.startswith(f"{case}-")
        )
        yield f"| {case.removeprefix('cipher-').removesuffix('-cpu')} | {rate / 8e9:.2f} | {peers} | {device} |"


def _cpu_rows(records: Iterable[Record]) -> Iterable[str]:
    """How often a core's rate is a library's on the same CPU; where its build has a library in it, that one's name
    stands behind the case's."""
    ours: dict[str, Record] = {}
    peers: dict[tuple[str, str, str], float] = {}
    for record in records:
        case, at, peer = record.case.partition("-cpu-")
        signatures = "-verify-" in record.case or "-recover" in record.case
        if not signatures or "-latency" in record.case or "-enrolled" in record.case:
            continue
        if at:
            peers[case, record.device, peer] = record.rate
        elif case.endswith("-cpu"):
            label = ", ".join(filter(None, (case, provider_of(record))))
            if label not in ours or record.date >= ours[label].date:
                ours[label] = record
    if not ours:
        return
    names = sorted({peer for _, _, peer in peers})
    yield f"| one CPU core | {' | '.join(f'÷ {name}' for name in names)} | compiler |"
    yield f"| --- |{' --- |' * (len(names) + 1)}"
    for label, record in ours.items():
        case, device = record.case.removesuffix("-cpu"), record.device
        cells = [
            f"{record.rate / peers[case, device, name]:.3g}" if (case, device, name) in peers else ""
            for name in names
        ]
        if any(cells):
            yield f"| {label} | {' | '.join(cells)} | {record.settings.get('compiler', '')} |"


def rewrite(text: str, table: str) -> str:
    """`text` with the table between its markers. Raises ValueError where these are missing."""
    before, found, rest = text.partition(BEGIN)
    _, closed, after = rest.partition(END)
    if not (found and closed):
        raise ValueError(f"the markers {BEGIN} and {END} are missing")
    return f"{before}{BEGIN}\n{table}\n{END}{after}"


def main(readme: Path, results: Path) -> None:
    """Writes the table of all results into a file."""
    table = figures_table(records_in(results))
    readme.write_text(rewrite(readme.read_text(encoding="utf-8"), table), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
