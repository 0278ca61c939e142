"""The cases of `verifier chain bench`: a daemon where one is needed, runs in turn, records, and a plot."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from node_adapter.chain import Pool
from node_adapter.chain.experiment import Measured, library_cost_s, measure, middleware_cost_s, predicted_gain
from node_adapter.client import Algorithm
from verifier.bench.records import Record, load_average
from verifier.bench.serving import serving
from verifier.drivers import list_devices
from verifier.errors import VerifierError

__all__ = ["Case", "Result", "cases_on", "draw", "records_of", "run_cases"]


@dataclass(frozen=True, slots=True)
class Case:
    """Who verifies: "known" (nobody: all is valid), "library", or a daemon on a device, which may have the accounts'
    keys enrolled."""

    verifier: str
    device: str = ""
    enrolled: bool = False

    def __str__(self) -> str:
        words = {"known": "no verification", "library": "library in the node"}
        return words.get(self.verifier, f"middleware on {self.device}{', keys enrolled' if self.enrolled else ''}")

    @property
    def name(self) -> str:
        """In the names of records."""
        kind = self.device.partition(":")[0]
        return "-".join(filter(None, (self.verifier, kind, "enrolled" if self.enrolled else "")))


@dataclass(frozen=True, slots=True)
class Result:
    """The runs of one case. `cost_s` is the processor time of one signature where its verifier works alone; `share`
    verification's part of the nodes' processor time. Gains are over the library in the nodes, 0 where that is absent:
    by the rate, by the processor time for a transaction, and as Amdahl's law has it from `cost_s`."""

    case: Case
    early: bool
    runs: tuple[Measured, ...]
    cost_s: float
    share: float
    gain: float
    cpu_gain: float
    predicted_gain: float

    @property
    def median(self) -> Measured:
        """The run with the median rate."""
        return sorted(self.runs, key=lambda run: run.rate)[len(self.runs) // 2]

    @property
    def measured_share(self) -> float:
        """What verifies in the nodes, as part of their processor time: measured there, where `share` is a difference
        of two runs."""
        return statistics.median(run.verifier_cpu_s / run.node_cpu_s for run in self.runs)

    @property
    def spread(self) -> float:
        """(Largest - smallest) / median of the rates."""
        rates = [run.rate for run in self.runs]
        return (max(rates) - min(rates)) / statistics.median(rates)


def cases_on(devices: Sequence[str]) -> list[Case]:
    """The cases of an experiment, the reference first."""
    return [
        Case("known"),
        Case("library"),
        *(Case("middleware", device, enrolled) for device in devices for enrolled in (False, True)),
    ]


def run_cases(
    pool: Pool,
    cases: Sequence[Case],
    *,
    validators: int,
    block: int,
    window: int,
    receipt_delay_s: float,
    repeats: int,
    seconds: float,
    begun: Callable[[Case], None],
) -> list[Result]:
    """Every case, verified on receipt and on proposal. The repeats go round the cases, so that whatever else the
    machine does falls on all of them alike."""
    runs: dict[tuple[Case, bool], list[Measured]] = {(case, early): [] for early in (True, False) for case in cases}
    costs = {case: _cost_s(pool, case, block) for case in cases}
    for _ in range(repeats):
        for (case, early), done in runs.items():
            begun(case)
            with _daemon(case, pool.algorithm) as (target, process, memory):
                done.append(
                    measure(
                        pool,
                        target or case.verifier,
                        members=validators,
                        block_transactions=block,
                        window=window,
                        early=early,
                        receipt_delay_s=receipt_delay_s,
                        enroll=case.enrolled,
                        daemon=process,
                        memory=memory,
                        limit_s=seconds,
                    )
                )
    return [_result(case, early, runs, costs) for case, early in runs]


def _cost_s(pool: Pool, case: Case, block: int) -> float:
    if case.verifier == "known":
        return 0.0
    if case.verifier == "library":
        return library_cost_s(pool)
    with _daemon(case, pool.algorithm) as (target, process, memory):
        return middleware_cost_s(pool, target, process or 0, memory=memory, enroll=case.enrolled, batch=block)


def _result(
    case: Case, early: bool, runs: dict[tuple[Case, bool], list[Measured]], costs: dict[Case, float]
) -> Result:
    def median(of: Case, what: Callable[[Measured], float]) -> float:
        return statistics.median(what(run) for run in runs[of, early])

    def cpu(run: Measured) -> float:
        return run.cpu_s

    known, library = Case("known"), Case("library")
    share = 1 - median(known, lambda run: run.node_cpu_s) / median(case, lambda run: run.node_cpu_s)
    by_law = 0.0
    if case.device:
        by_law = predicted_gain(median(known, cpu), median(library, cpu), costs[library] / costs[case])
    return Result(
        case,
        early,
        tuple(runs[case, early]),
        costs[case],
        max(0.0, share),
        median(case, lambda run: run.rate) / median(library, lambda run: run.rate),
        median(library, cpu) / median(case, cpu),
        by_law,
    )


@contextmanager
def _daemon(case: Case, algorithm: Algorithm) -> Iterator[tuple[str, int | None, str]]:
    """A daemon in a process of its own: its address, its process id, and where it takes shared memory, as nodes are
    on its host; nothing where the case needs none."""
    if not case.device:
        yield "", None, ""
        return
    # Certificates of blocks that a node catches up with are on P-256, whatever transactions are signed with.
    plugins = ["sm2", "ecdsa"] if algorithm is Algorithm.SM2 else ["ecdsa"]
    with tempfile.TemporaryDirectory(prefix="verifier-bench-") as folder:
        memory = f"unix:{folder}/memory.sock"
        shared = ("shared_memory.enabled=true", f"shared_memory.listen={memory}")
        with serving(case.device, plugins, shared) as (address, process):
            yield address, process, memory


def records_of(
    results: Sequence[Result], pool: Pool, validators: int, block: int, window: int, receipt_delay_s: float
) -> list[Record]:
    """A record a case: the rate is of transactions on chain, the rest stands in its settings."""
    devices = {info.id: info for info in list_devices()}
    records = []
    for result in results:
        median = result.median
        settings: dict[str, str | int | float] = {
            "validators": validators,
            "accounts": len(pool.balances),
            "window": window,
            "receipt_delay_ms": round(receipt_delay_s * 1e3, 1),
            "p50_ms": round(median.p50_s * 1e3, 1),
            "p99_ms": round(median.p99_s * 1e3, 1),
            "node_cpu_us": round(median.node_cpu_s * 1e6, 1),
            "verifier_cpu_us": round(median.verifier_cpu_s * 1e6, 1),
            "daemon_cpu_us": round(median.daemon_cpu_s * 1e6, 1),
            "verification_share": round(result.share, 4),
            "verification_share_measured": round(result.measured_share, 4),
            "wait_share": round(median.wait_share, 4),
            "call_items": round(median.call_items, 1),
            "client_cpu_us": round(median.client_cpu_s * 1e6, 1),
            "signature_cpu_us": round(result.cost_s * 1e6, 1),
            "gain": round(result.gain, 3),
            "cpu_gain": round(result.cpu_gain, 3),
            "amdahl_gain": round(result.predicted_gain, 3),
            **load_average(),
        }
        name = pool.algorithm.name.lower().replace("_", "-")
        when = "receipt" if result.early else "proposal"
        records.append(
            Record.of_times(
                f"chain-{name}-{result.case.name}-on-{when}",
                devices[result.case.device or "cpu"],
                block,
                [1 / run.rate for run in result.runs],
                1,
                unit="transactions/s",
                includes=("consensus", "execution", "disk", "network"),
                settings=settings,
            )
        )
    return records


def draw(results: Sequence[Result], path: Path) -> None:
    """Rates with Amdahl's predictions, and where the CPU time goes. Raises VerifierError without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise VerifierError("a plot needs matplotlib: pip install 'verifier[plot]'") from None

    figure = Figure(figsize=(11, 4.5), layout="constrained")
    times, gains = figure.subplots(1, 2, width_ratios=(3, 2))
    names = [f"{result.case}, {'on receipt' if result.early else 'on proposal'}" for result in results]
    places = list(range(len(results)))
    left = [0.0] * len(results)
    for part, color in (("node", "#4477aa"), ("daemon", "#ccbb44"), ("client", "#bbbbbb")):
        widths = [getattr(result.median, f"{part}_cpu_s") * 1e6 for result in results]
        times.barh(places, widths, left=left, color=color, label="all nodes" if part == "node" else part)
        left = [start + width for start, width in zip(left, widths, strict=True)]
    times.set_xlabel("processor time for a transaction on chain, µs")
    gains.barh(places, [result.cpu_gain for result in results], color="#228833", label="by processor time")
    gains.plot([result.gain for result in results], places, "o", color="black", label="by transactions/s")
    law = [(result.predicted_gain, at) for at, result in zip(places, results, strict=True) if result.predicted_gain]
    gains.plot([gain for gain, _ in law], [at for _, at in law], "D", color="#ee6677", label="Amdahl's law")
    gains.axvline(1, color="black", linewidth=0.8)
    gains.set_xlabel("gain over the library in the nodes")
    times.set_yticks(places, names)
    gains.set_yticks([])
    for axes in (times, gains):
        axes.invert_yaxis()
        axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
