"""A whole run: limits, then the chosen suites, cases and sweeps, within a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from typing import Any, Literal

from verifier.bench.cases import CASES, Case, Settings, peer_records
from verifier.bench.limits import CEILINGS, Limits, measure_limits
from verifier.bench.records import Record
from verifier.bench.rig import Rig
from verifier.bench.sweeps import Axis, sweep_records
from verifier.drivers import DeviceInfo
from verifier.drivers.build import host_target
from verifier.errors import BackendError
from verifier.manifest import Manifest, load_manifest
from verifier.registry import offers, shipped_folder

__all__ = ["QUICK_S", "SUITES", "Plan", "Run", "Suite"]

Suite = Literal["kernels", "pipeline", "daemon", "e2e"]
SUITES: tuple[Suite, ...] = ("kernels", "pipeline", "daemon", "e2e")
QUICK_S = 80.0  # nothing is begun after so long in a quick run: a compiler may take half a minute more
MAX_SLOT_BYTES = 1 << 30


@dataclass(frozen=True)
class Plan:
    """What to measure on which device. `names` are patterns of cases; with `limit_s` nothing is begun later."""

    device: str
    suites: tuple[Suite, ...] = SUITES
    names: tuple[str, ...] = ()
    axes: tuple[Axis, ...] = ()
    quick: bool = False
    peers: bool = True
    threads: int = 0
    limit_s: float | None = None

    @property
    def cases(self) -> list[Case]:
        """The cases of those names; all where none is given."""
        cases = [case for case in CASES if case.on_cpu or not self.on_cpu]
        return [c for c in cases if not self.names or any(fnmatch(c.name, pattern) for pattern in self.names)]

    @property
    def on_cpu(self) -> bool:
        """Whether the device is this machine's CPU."""
        return self.device.startswith("cpu")

    @property
    def settings(self) -> Settings:
        """Batch sizes and runs: of a CPU what it does in seconds, of a GPU what fills it."""
        batch = (2_048 if self.quick else 16_384) if self.on_cpu else (1 << 18 if self.quick else 1 << 20)
        data = (1 << 20 if self.quick else 16 << 20) if self.on_cpu else (64 << 20 if self.quick else 1 << 30)
        return Settings(batch, 3 if self.quick else 9, data, "kernels" in self.suites, "pipeline" in self.suites)


@dataclass
class Run:
    """One run of a plan. `left_out` says in the end what there was no time for, and how to have it."""

    plan: Plan
    told: Callable[[str], None] = lambda _: None
    clock: Callable[[], float] = time.monotonic
    left_out: list[str] = field(default_factory=list)

    def records(self) -> Iterator[Record]:
        """Measures; each record as soon as it is there."""
        plan, self._began = self.plan, self.clock()
        self.told("limits")
        with Rig(plan.device, CEILINGS, shipped_folder() / "common", slot_bytes=512 << 20, **self._options) as rig:
            limits = measure_limits(rig)
            info = rig.info
            yield from limits.records(rig)
        if {"kernels", "pipeline"} & set(plan.suites):
            for case in plan.cases:
                if self._in_time(case.name):
                    yield from self._case(case, limits)
        for axis in plan.axes:
            for case in [case for case in plan.cases if case.verifies]:
                if self._in_time(f"{case.name} by {axis}"):
                    yield from self._sweep(case, axis, info)
        if {"daemon", "e2e"} & set(plan.suites) and self._in_time("daemon and e2e"):
            yield from self._daemon(info)

    @property
    def _options(self) -> dict[str, Any]:
        return {"threads": self.plan.threads} if self.plan.on_cpu and self.plan.threads else {}

    def _in_time(self, what: str) -> bool:
        limit_s = self.plan.limit_s
        if limit_s is not None and self.clock() - self._began > limit_s:
            self.left_out.append(what)
            return False
        self.told(what)
        return True

    def _case(self, case: Case, limits: Limits) -> Iterator[Record]:
        root, settings = shipped_folder(), self.plan.settings
        folder = root / case.plugin
        manifest = load_manifest(folder)
        tunables = {} if self.plan.on_cpu else case.gpu_tunables
        choice = manifest.choice("", tunables)
        if case.provided and self.plan.on_cpu:
            yield from self._provided(case, manifest, limits)
        try:
            rig = Rig(
                self.plan.device,
                folder,
                root / "common",
                slot_bytes=self._slot_bytes(case),
                choice=choice,
                **self._options,
            )
        except BackendError as error:
            if not tunables:
                raise
            self.left_out.append(f"{case.name}: {error}")  # a smaller device has no room for its tables
            return
        with rig:
            yield from case.measure(rig, limits, settings)
            if self.plan.peers:
                yield from peer_records(case, rig.info, settings.runs)

    def _slot_bytes(self, case: Case) -> int:
        """Of a bulk case: its bytes in, as many out, and a quarter more for counters, codes and gaps."""
        return max(MAX_SLOT_BYTES, 5 * self.plan.settings.cipher_bytes // 2) if case.bulk else MAX_SLOT_BYTES

    def _provided(self, case: Case, manifest: Manifest, limits: Limits) -> Iterator[Record]:
        """A case with the library that the plugin names for CPUs, where it is at hand; records name it."""
        root = shipped_folder()
        for offer in offers(manifest, host_target()):
            if offer.library is None:
                continue
            named = {"provider": offer.variant, "library": offer.library.label}
            choice = manifest.choice(offer.variant)
            with Rig(
                self.plan.device,
                root / case.plugin,
                root / "common",
                slot_bytes=MAX_SLOT_BYTES,
                choice=choice,
                **self._options,
            ) as rig:
                for record in case.measure(rig, limits, self.plan.settings):
                    # The limit is what the source's own formulas cost.
                    settings = {**record.settings, **named}
                    yield replace(record, settings=settings, limit="", fraction_of_limit=None)

    def _sweep(self, case: Case, axis: Axis, info: DeviceInfo) -> Iterator[Record]:
        settings = self.plan.settings
        yield from sweep_records(
            case,
            axis,
            self.plan.device,
            info.target,
            shipped_folder(),
            settings.batch,
            settings.runs,
            **self._options,
        )

    def _daemon(self, info: DeviceInfo) -> Iterator[Record]:
        from verifier.bench.daemon_cases import daemon_records, e2e_records, running_daemon

        plan = self.plan
        sizes = (1, 256) if plan.quick and plan.on_cpu else (1, 8192)
        runs = 20 if plan.quick else 400
        devices = [plan.device] if plan.on_cpu else [plan.device, "cpu"]  # the router has a choice
        with running_daemon(devices) as daemon:
            if "daemon" in plan.suites:
                yield from daemon_records(daemon, info, sizes, runs)
            if "e2e" in plan.suites:
                batch = sizes[-1] if plan.on_cpu else 1 << 17
                yield from e2e_records(daemon, info, sizes, batch, 3 if plan.quick else 9)
