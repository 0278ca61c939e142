"""Results: one JSON line a measurement, with everything needed to repeat it."""

from __future__ import annotations

import json
import math
import os
import platform
import shlex
import statistics
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

from verifier.drivers import DeviceInfo
from verifier.drivers.build import compiler_id
from verifier.errors import ConfigError, VerifierError

__all__ = ["Record", "append_records", "commit_hash", "load_average", "read_records", "records_in"]

_RESULTS = ("--output", "--out", "--plot", "--plots", "--folder")


@dataclass(frozen=True, slots=True)
class Record:
    """One measurement. `rate` is the median of the runs in `unit`, `median` that of their times in seconds, `spread`
    (largest - smallest) / median of the rates. What a sweep changed stands in `settings` under the sweep's name."""

    case: str
    device: str
    batch: int
    rate: float
    unit: str  # items/s, bits/s, operations/s, bytes/s or s
    includes: tuple[str, ...] = ()  # transfer, parsing, hashing, gRPC
    limit: str = ""  # what bounds it, and its rate in the same unit times fraction_of_limit
    fraction_of_limit: float | None = None
    median: float = 0.0
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
        """A record of `work` (items, bits, ...) done in each of `seconds`.

        With unit "s" the time itself counts, and the settings have `p99`: seconds that 99 in 100 runs take at most,
        of fewer runs the slowest.
        """
        values = [work / each for each in seconds]
        if unit == "s":
            values = list(seconds)
            settings = {**(settings or {}), "p99": sorted(values)[math.ceil(0.99 * len(values)) - 1]}
        return cls.of_rates(
            case, device, batch, values, unit=unit, includes=includes, limit=limit, settings=settings, seconds=seconds
        )

    @classmethod
    def of_rates(
        cls,
        case: str,
        device: DeviceInfo,
        batch: int,
        values: Sequence[float],
        *,
        unit: str = "items/s",
        includes: Iterable[str] = (),
        limit: tuple[str, float] | None = None,
        settings: dict[str, str | int | float] | None = None,
        seconds: Sequence[float] = (),
        runs: int | None = None,
    ) -> Record:
        """A record of rates in `unit`, one of each run; `runs` where one value stands for more of them."""
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
            median=statistics.median(seconds) if seconds else 0.0,
            spread=(max(values) - min(values)) / median if len(values) > 1 else 0.0,
            runs=len(values) if runs is None else runs,
            driver=_driver_version() if device.kind == "cuda" else device.driver_version,
            cuda=device.driver_version if device.kind == "cuda" else "",
            commit=commit_hash(),
            date=datetime.now(UTC).isoformat(timespec="seconds"),
            command=_command(sys.argv),
            machine=f"{platform.system()} {platform.machine()}, {device.units} units",
            settings={"compiler": _compiler(device.target), **(settings or {})},
        )


def load_average() -> dict[str, str | int | float]:
    """What else the machine did, for the settings of a record that other work disturbs."""
    return {"load_average": round(os.getloadavg()[0], 1), "cores": os.cpu_count() or 1}


def _command(arguments: Sequence[str]) -> str:
    """The command line, without where the results went."""
    script = Path(arguments[0]).resolve()
    named = script.suffix == ".py" and script.name != "__main__.py"
    kept = ["python", f"{script.parent.name}/{script.name}"] if named else ["verifier"]
    rest = iter(arguments[1:])
    for argument in rest:
        if argument in _RESULTS:
            next(rest, None)
        elif argument.partition("=")[0] not in _RESULTS:
            kept.append(argument)
    return shlex.join(kept)


@lru_cache
def _compiler(target: str) -> str:
    try:
        return compiler_id(target)
    except VerifierError:
        return ""  # a fake device's target


def _driver_version() -> str:
    """The NVIDIA kernel module's version, as the system tells it."""
    try:
        words = Path("/proc/driver/nvidia/version").read_text(encoding="utf-8").split()
    except OSError:
        return ""
    return next((word for word in words if word.count(".") >= 1 and word.replace(".", "").isdigit()), "")


@lru_cache
def commit_hash() -> str:
    """The commit of the checkout this runs from, "-dirty" appended where it was changed; empty outside one.

    VERIFIER_COMMIT names it for an exported tree.
    """
    if named := os.environ.get("VERIFIER_COMMIT"):
        return named
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
    """The records of a file of JSON lines. Raises ConfigError naming the line that is none."""
    found = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line:
            continue
        try:
            data = json.loads(line)
            found.append(Record(**{**data, "includes": tuple(data["includes"])}))
        except (ValueError, TypeError, KeyError) as error:
            raise ConfigError(f"{path}:{number}: not a record of `verifier bench`: {error!r}") from None
    return found


def records_in(folder: Path) -> list[Record]:
    """The records of all files in a folder. Tables of other programs may lie there too: a file whose first line has
    no case is left out."""
    files = [path for path in sorted(folder.glob("*.jsonl")) if '"case":' in _first_line(path)]
    return [record for path in files for record in read_records(path)]


def _first_line(path: Path) -> str:
    with path.open(encoding="utf-8") as file:
        return file.readline()
