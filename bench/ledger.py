"""A ledger of millions of transactions, verified in bulk: rate beside the bare driver's, memory, interruptions.

    python bench/ledger.py --items 10000000 --folder /tmp/ledger --kills 5
    python bench/ledger.py --items 32000000 --distinct 100000 --folder /tmp/ledger --device cuda:0 --processes 1,2,4,6

The dataset is made once in the folder and kept: distinct signatures up to --distinct, over and over from there,
written as `verifier ledger export` writes. The bare driver verifies the same items, with nothing around it, before
and after the runs, in the same process's time. There is a run and a record for each number of --processes, with the
rate from the first row groups that were written down to the last beside the rate with start and report. --peak is
the daemon's rate for the same items, of which records then have the share. With --kills the run is killed at random
moments and started again, and the reports are compared. Results go to bench/results/ as JSON lines.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import random
import resource
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from rich.progress import track

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from node_adapter.client import Algorithm, InputKind, KeyEncoding, Scheme, SignatureEncoding  # noqa: E402
from node_adapter.ledger import Call  # noqa: E402
from node_adapter.ledger._schema import WRITE_OPTIONS, file_schema, with_calls  # noqa: E402
from verifier.bench.processes import proportional_bytes, tree  # noqa: E402
from verifier.bench.records import Record, append_records  # noqa: E402
from verifier.bench.rig import Rig, columns_of  # noqa: E402
from verifier.bench.signatures import SignatureSet, make_signatures  # noqa: E402
from verifier.drivers import DeviceInfo  # noqa: E402
from verifier.drivers.build import host_target  # noqa: E402
from verifier.manifest import load_manifest  # noqa: E402
from verifier.registry import offers  # noqa: E402

GROUP_ROWS = 65_536
FILE_ROWS = 16 * GROUP_ROWS
SCHEMA = file_schema({"input": 32, "signature": 64, "key": 64})  # as `export` finds
PLUGINS = {"SM2": "sm2", "ECDSA_P256": "ecdsa", "ECDSA_SECP256K1": "ecdsa"}


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=10_000_000)
    parser.add_argument("--distinct", type=int, default=1 << 18)
    parser.add_argument("--algorithm", default="SM2", choices=sorted(PLUGINS))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--folder", type=Path, required=True, help="for the dataset and the reports")
    parser.add_argument(
        "--processes", type=_numbers, default=[None], help="that read, as 1,2,4; default: the command's"
    )
    parser.add_argument("--peak", type=float, help="items a second of the daemon, to compare with")
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results" / "ledger.jsonl")
    return parser.parse_args()


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def make_dataset(folder: Path, made: SignatureSet, items: int) -> None:
    """Files of sixteen row groups, a block every 1,000 transactions; those that are there already are kept."""
    folder.mkdir(parents=True, exist_ok=True)
    call = Call(Scheme(Algorithm[made.algorithm], InputKind.DIGEST, SignatureEncoding.RAW_RS, KeyEncoding.RAW_XY))

    def write(start: int) -> None:
        path = folder / f"{start // FILE_ROWS:05}.parquet"
        if path.exists():
            return
        temporary = path.with_suffix(".part")
        with pq.ParquetWriter(temporary, SCHEMA, **WRITE_OPTIONS) as writer:
            for first in range(start, min(start + FILE_ROWS, items), GROUP_ROWS):
                writer.write_table(_rows(made, first, min(first + GROUP_ROWS, items)))
            writer.add_key_value_metadata(with_calls([call]))
        temporary.replace(path)

    starts = range(0, items, FILE_ROWS)
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:  # Arrow does nearly all of it
        for _ in track(pool.map(write, starts), description="dataset", total=len(starts)):
            pass


def _rows(made: SignatureSet, first: int, last: int) -> pa.Table:
    numbers = np.arange(first, last)
    places = numbers % made.items
    block = pc.binary_join_element_wise("block", pc.cast(pa.array(numbers // 1000), pa.string()), " ")
    transaction = pc.cast(pa.array(numbers % 1000), pa.string())
    fixed = {
        "input": made.digests,
        "signature": made.signatures,
        "key": made.keys,
    }
    columns = {
        "block": block,
        "transaction": pc.binary_join_element_wise(block, "transaction", transaction, " "),
        "call": pa.array(np.zeros(numbers.size, np.int16)),
    } | {name: _fixed(values[places]) for name, values in fixed.items()}
    return pa.table(
        [columns[field.name] if field.name in columns else pa.nulls(numbers.size, field.type) for field in SCHEMA],
        SCHEMA,
    )


def _fixed(rows: np.ndarray) -> pa.Array:
    data = pa.py_buffer(np.ascontiguousarray(rows))
    return pa.Array.from_buffers(pa.binary(rows.shape[1]), rows.shape[0], [None, data])


def bare_times(made: SignatureSet, device: str, runs: int = 3) -> tuple[DeviceInfo, int, list[float]]:
    """Seconds of the driver's own pipeline over a large batch of the same items."""
    items = min(made.items, GROUP_ROWS * (1 if device.startswith("cpu") else 16))
    folder = ROOT / "plugins" / PLUGINS[made.algorithm]
    manifest = load_manifest(folder)
    # The build that a daemon loads by itself: with its library where that is automatic and installed.
    offered = offers(manifest, host_target()) if device.startswith("cpu") else ()
    choice = manifest.choice(next((o.variant for o in offered if o.library and o.automatic), ""))
    with Rig(device, folder, ROOT / "plugins" / "common", choice=choice) as rig:
        slot = rig.fill("verify", made.algorithm, columns_of(made.tiled(items)), items)
        return rig.info, items, rig.times(slot, runs)


def verify(
    folder: Path,
    report: Path,
    options: argparse.Namespace,
    processes: int | None,
    on_step: Callable[[subprocess.Popen[bytes]], None],
    step_s: float = 0.5,
) -> tuple[int, float]:
    """One run of the command: its exit status and seconds. `on_step` is called every `step_s` seconds."""
    command = [sys.executable, "-m", "verifier", "ledger", "verify", str(folder)]
    command += ["--device", options.device, "--report", str(report)]
    if processes:
        command += ["--processes", str(processes)]
    begun = time.monotonic()
    process = subprocess.Popen(command, start_new_session=True)
    while process.poll() is None:
        on_step(process)
        time.sleep(step_s)
    return process.returncode, time.monotonic() - begun


def tree_bytes(root: int) -> int:
    """Memory of a process and its descendants, each page once."""
    total = 0
    for pid in tree(root):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            total += proportional_bytes(pid)
    return total


def lines(report: Path) -> int:
    """Row groups that are done."""
    path = report / "checkpoint.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


class Run(NamedTuple):
    """What one run did. Rates in items a second, memory in bytes of all processes after the first quarter, processor
    time in seconds of all processes."""

    status: int
    seconds: float
    start_s: float  # until the first row groups were written down
    steady: float  # from there until the last
    least_bytes: int
    most_bytes: int
    cpu_s: float


def measure(dataset: Path, report: Path, options: argparse.Namespace, processes: int | None) -> Run:
    """One run from an empty checkpoint."""
    (report / "checkpoint.jsonl").unlink(missing_ok=True)
    begun, used = time.monotonic(), _cpu_s()
    progress: list[tuple[float, int]] = []
    memory: list[tuple[float, int]] = []
    ended = threading.Event()

    def watch(process: subprocess.Popen[bytes]) -> None:
        if not progress:
            sampler = threading.Thread(target=sample, args=(process.pid,))
            sampler.start()  # by itself: adding up pages takes longer than a step
        progress.append((time.monotonic(), lines(report)))

    def sample(pid: int) -> None:
        while not ended.wait(0.5):
            memory.append((time.monotonic(), tree_bytes(pid)))

    try:
        status, seconds = verify(dataset, report, options, processes, watch, step_s=0.005)
    finally:
        ended.set()
    groups = -(-options.items // GROUP_ROWS)
    first = next(((at, count) for at, count in progress if count), (math.nan, 0))
    last = next(((at, count) for at, count in progress if count == groups), (math.inf, 0))
    steady = (last[1] - first[1]) * GROUP_ROWS / max(last[0] - first[0], 1e-9)
    tail = [value for at, value in memory if at - begun > seconds / 4] or [0]
    return Run(status, seconds, first[0] - begun, steady, min(tail), max(tail), _cpu_s() - used)


def _cpu_s() -> float:
    """Processor seconds of all children that have ended, and of theirs."""
    found = resource.getrusage(resource.RUSAGE_CHILDREN)
    return found.ru_utime + found.ru_stime


def interrupted(options: argparse.Namespace, dataset: Path, report: Path, groups: int) -> None:
    """Runs until the end, killed `--kills` times on the way."""
    rng = random.Random(options.seed)
    for kill in range(options.kills + 1):
        wanted = lines(report) + rng.randrange(1, max(2, groups // (options.kills + 1)))

        def end(process: subprocess.Popen[bytes], kill: int = kill, wanted: int = wanted) -> None:
            if kill < options.kills and lines(report) >= wanted:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

        status, seconds = verify(dataset, report, options, options.processes[-1], end)
        print(f"run {kill + 1}: exit status {status}, {seconds:.1f} s, {lines(report)} of {groups} row groups done")


def same_reports(one: Path, other: Path) -> bool:
    """Whether two reports say the same."""
    names = ("summary.parquet", "failures.parquet")
    tables = all(pq.read_table(one / name) == pq.read_table(other / name) for name in names)
    return tables and (one / "report.html").read_bytes() == (other / "report.html").read_bytes()


def main() -> None:
    """Makes, measures, records."""
    options = arguments()
    made = make_signatures(
        options.algorithm, min(options.distinct, options.items), seed=options.seed, fault_share=0.0001
    )
    dataset = options.folder / f"{options.algorithm}-{options.items}-{made.items}"
    make_dataset(dataset, made, options.items)
    device, batch, before = bare_times(made, options.device)
    runs = {number: measure(dataset, _report(options, number), options, number) for number in options.processes}
    _, _, after = bare_times(made, options.device)
    bare = batch / statistics.median(before + after)
    for number, run in runs.items():
        _tell(options, number, run, bare)
    append_records(options.out, [_record(options, device, number, run, bare) for number, run in runs.items()])
    first, *others = (_report(options, number) for number in options.processes)
    if not all(same_reports(first, other) for other in others):
        print("the reports are DIFFERENT")
    if options.kills:
        again = options.folder / "interrupted"
        (again / "checkpoint.jsonl").unlink(missing_ok=True)
        groups = -(-options.items // GROUP_ROWS)
        interrupted(options, dataset, again, groups)
        equal = "equal" if same_reports(first, again) else "DIFFERENT"
        print(f"{lines(again)} row groups written down for {groups}; reports are {equal}")


def _report(options: argparse.Namespace, processes: int | None) -> Path:
    path: Path = options.folder / f"report-{processes or 'usual'}"
    return path


def _tell(options: argparse.Namespace, processes: int | None, run: Run, bare: float) -> None:
    rate = options.items / run.seconds
    peak = f", {run.steady / options.peak:.0%} of the daemon's peak" if options.peak else ""
    print(
        f"processes {processes or 'as usual'}: exit status {run.status}; {rate:,.0f} items/s with start, reading, "
        f"digests, report ({rate / bare:.0%} of the driver alone, {bare:,.0f}); {run.steady:,.0f} from the first row "
        f"groups to the last ({run.steady / bare:.0%} of the driver{peak}); the first after {run.start_s:.1f} s; "
        f"{run.cpu_s:.1f} s of processor time; "
        f"memory {run.least_bytes >> 20} to {run.most_bytes >> 20} MiB after the first quarter"
    )


def _record(options: argparse.Namespace, device: DeviceInfo, processes: int | None, run: Run, bare: float) -> Record:
    case = "ledger-verify-" + options.algorithm.lower().replace("_", "-")
    return Record.of_times(
        case if device.kind == "cuda" else f"{case}-cpu",
        device,
        options.items,
        [run.seconds],
        options.items,
        includes=("start", "file digest", "Parquet", "parsing", "report"),
        limit=("the driver alone", bare),
        settings={
            "processes": processes or "usual",
            "steady_items_per_s": round(run.steady),
            "steady_fraction_of_driver": round(run.steady / bare, 3),
            "start_s": round(run.start_s, 2),
            "cpu_s": round(run.cpu_s, 2),
            "memory_least_bytes": run.least_bytes,
            "memory_most_bytes": run.most_bytes,
        }
        | ({"steady_fraction_of_daemon": round(run.steady / options.peak, 3)} if options.peak else {}),
    )


if __name__ == "__main__":
    main()
