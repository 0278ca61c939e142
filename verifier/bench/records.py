"""Results: one JSON line a measurement, with everything needed to repeat it."""

from __future__ import annotations

import json
import platform
import shlex
import statistics
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from verifier.drivers import DeviceInfo

__all__ = ["Record", "append_records", "commit_hash", "read_records"]


@dataclass(frozen=True, slots=True)
class Record:
    """One measurement. `rate` is the median, in `unit`; `spread` is (largest - smallest) / median of the runs."""

    case: str
    device: str
    batch: int
    rate: float
    unit: str  # items/s, bits/s, operations/s, bytes/s or s
    includes: tuple[str, ...] = ()  # transfer, parsing, hashing, gRPC
    limit: str = ""  # what bounds it, and its rate in the same unit times fraction_of_limit
    fraction_of_limit: float | None = None
    spread: float = 0.0
    runs: int = 1
    driver: str = ""
    cuda: str = ""
    commit: str = ""
    date: str = ""
    command: str = ""
    machine: str = ""
    settings: dict[str, str | int | float] = field(default_factory=dict)

    @classmethod
    def of_times(
        cls,
        case: str,
        device: DeviceInfo,
        batch: int,
        seconds: Sequence[float],
        work: float,
        *,
        unit: str = "items/s",
        includes: Iterable[str] = (),
        limit: tuple[str, float] | None = None,
        settings: dict[str, str | int | float] | None = None,
    ) -> Record:
        """A record of `work` (items, bits, ...) done in each of `seconds`; with unit "s" the time itself counts."""
        values = list(seconds) if unit == "s" else [work / each for each in seconds]
        median = statistics.median(values)
        fraction = None
        if limit:
            fraction = limit[1] / median if unit == "s" else median / limit[1]
        return cls(
            case=case,
            device=device.name,
            batch=batch,
            rate=median,
            unit=unit,
            includes=tuple(includes),
            limit=limit[0] if limit else "",
            fraction_of_limit=fraction,
            spread=(max(values) - min(values)) / median,
            runs=len(values),
            driver=device.driver_version,
            commit=commit_hash(),
            date=datetime.now(UTC).isoformat(timespec="seconds"),
            command=shlex.join(["verifier", *sys.argv[1:]]),
            machine=f"{platform.system()} {platform.machine()}, {device.units} units",
            settings=settings or {},
        )


def commit_hash() -> str:
    """The commit of the checkout this runs from, "-dirty" appended where it was changed; empty outside one."""
    root = Path(__file__).parent

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", "-C", root, *arguments], capture_output=True, text=True, check=False)
        return done.stdout.strip() if done.returncode == 0 else ""

    try:
        commit = git("rev-parse", "--short=12", "HEAD")
        return commit + ("-dirty" if commit and git("status", "--porcelain", "--untracked-files=no") else "")
    except FileNotFoundError:
        return ""


def append_records(path: Path, records: Iterable[Record]) -> None:
    """Adds records to a file of JSON lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        for record in records:
            file.write(json.dumps(asdict(record), ensure_ascii=False) + "\n")


def read_records(path: Path) -> list[Record]:
    """The records of a file of JSON lines."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [Record(**{**json.loads(line), "includes": tuple(json.loads(line)["includes"])}) for line in lines if line]
