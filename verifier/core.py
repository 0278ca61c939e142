"""What decides, without a listener: devices, plugins, tables of keys, and the scheduler.

    with Core(load_settings()) as core:
        result = core.scheduler.submit(batch).result()

The daemon puts listeners in front of one; bulk work uses one by itself.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Self

import structlog

from verifier._keeper import Keeper
from verifier.config import Settings
from verifier.drivers import probe_devices
from verifier.errors import DeviceUnavailableError, VerifierError
from verifier.keys import KeyScheduler, KeyTables, Promotion, TableOptions, TableSize
from verifier.registry import Registry, RegistryOptions, Watcher, load_all
from verifier.scheduling import QueueLimits, Scheduler, SchedulingOptions
from verifier.telemetry import Metrics
from verifier.workers import Fleet, Worker, WorkerOptions

__all__ = ["Core", "devices_in_use"]

_log = structlog.get_logger(__name__)

Served = Callable[[Mapping[str, Sequence[Worker]]], None]
"""Is told which operations are served, and on which workers, whenever that changes."""


def devices_in_use(use: Sequence[str]) -> list[str]:
    """The devices that `use` names; "auto" stands for every GPU and the CPU.

    Raises DeviceUnavailableError, saying what to install, where none can be used.
    """
    if "auto" not in use:
        return list(dict.fromkeys(use))
    found = probe_devices()
    usable = [device.id for device in found if device.info is not None and device.compiler]
    # Without a compiler only cached images run: better than nothing where there is nothing else.
    usable = usable or [device.id for device in found if device.info is not None]
    for device in found:
        if device.id not in usable:
            _log.info("device_left_out", device=device.id, problem=device.problem)
    if not usable:
        raise DeviceUnavailableError("; ".join(f"{device.id}: {device.problem}" for device in found))
    rest = [name for name in use if name != "auto"]
    return list(dict.fromkeys([*usable, *rest]))


class Core:
    """Start it once; it cannot be started again after `close`.

    `scheduler` takes batches, `named` also those whose keys are named by index.
    """

    def __init__(self, settings: Settings, metrics: Metrics | None = None, served: Served = lambda _: None) -> None:
        self._settings = settings
        self._metrics = metrics or Metrics()
        self._served = served
        self._undo = contextlib.ExitStack()
        self.fleet: Fleet
        self.registry: Registry
        self.scheduler: Scheduler
        self.named: KeyScheduler
        self.tables: KeyTables | None = None
        self._keeper: Keeper

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> None:
        """`start_devices` and `load_plugins`; what was started is stopped again where one of them raises."""
        try:
            self.start_devices()
            self.load_plugins()
        except BaseException:
            self.close()
            raise

    def start_devices(self) -> None:
        """Workers and scheduler. Raises ConfigError, DeviceUnavailableError, BackendError."""
        scheduling = self._settings.scheduling
        self.fleet = self._fleet()
        self.registry = Registry(self.fleet, self._registry_options())
        self._undo.callback(self.fleet.close)
        self._undo.callback(self.registry.close)
        self._keeper = Keeper(self.fleet, self.registry, self._served, self._metrics, measures=scheduling.measure)
        self.fleet.start()
        self.scheduler = Scheduler(
            self.fleet.workers, self.registry.lease, self._scheduling_options(), metrics=self._metrics
        )
        self._undo.callback(self.scheduler.close)
        for worker in self.fleet.workers:
            worker.on_room = self.scheduler.wake
        self._undo.callback(self._keeper.close)
        self.scheduler.start()

    def _fleet(self) -> Fleet:
        devices = self._settings.devices
        options = WorkerOptions(
            slots=devices.slots,
            slot_bytes=devices.slot_bytes,
            streams=devices.streams,
            drain_timeout_s=devices.drain_timeout_s,
            batch_limit_s=devices.batch_limit_s,
            item_limit_s=devices.item_limit_s,
        )
        threads = devices.cpu_threads
        per_device = {"cpu": replace(options, driver={"threads": threads})} if threads else {}
        return Fleet(devices_in_use(devices.use), options, per_device)

    def _registry_options(self) -> RegistryOptions:
        plugins, keys = self._settings.plugins, self._settings.keys
        return RegistryOptions(
            folders=plugins.folders,
            trust=plugins.trust,
            lock_files=plugins.lock_files,
            public_keys=plugins.public_key_files,
            cache=plugins.cache_folder,
            audit=plugins.audit_file,
            drain_timeout_s=plugins.drain_timeout_s,
            keep_previous_s=plugins.keep_previous_s,
            build_timeout_s=plugins.build_timeout_s,
            selftest_timeout_s=plugins.selftest_timeout_s,
            quarantine_faults=plugins.quarantine_faults,
            quarantine_window_s=plugins.quarantine_window_s,
            choices=plugins.choices,
            tuned=plugins.tuned,
            providers=plugins.providers,
            sized=TableSize(keys.enroll, keys.table_bytes, keys.window, keys.expected).tunables,
        )

    def _scheduling_options(self) -> SchedulingOptions:
        scheduling = self._settings.scheduling
        return SchedulingOptions(
            queue=QueueLimits(
                scheduling.queue_items, scheduling.queue_bytes, scheduling.queue_s, scheduling.caller_share
            ),
            batch_delay_s=scheduling.batch_delay_s,
            launch_items=scheduling.launch_items,
            launch_s=scheduling.launch_s,
            launch_bytes=self._settings.server.max_batch_bytes,
            launches_per_device=scheduling.launches_per_device,
            retries=scheduling.retries,
            unserved_wait_s=scheduling.unserved_wait_s,
            table_devices=self._settings.keys.devices,
        )

    def load_plugins(self) -> None:
        """Returns when they are tested and measured. Raises what the first one raised where none could be loaded."""
        names = self._settings.plugins.load
        outcomes = load_all(self.registry, None if names == ("auto",) else names)
        failures = {name: error for name, error in outcomes.items() if isinstance(error, VerifierError)}
        for name, error in failures.items():
            _log.error("plugin_not_loaded", plugin=name, error=str(error))
        if failures and len(failures) == len(outcomes):
            raise next(iter(failures.values()))
        self._keeper.start(self.scheduler)
        if self._settings.plugins.watch:
            watcher = Watcher(self.registry, self._settings.plugins.folders)
            watcher.start()
            self._undo.callback(watcher.close)
        self._start_keys()

    def _start_keys(self) -> None:
        keys = self._settings.keys
        if keys.enroll:
            tables = self.tables = KeyTables(self.registry, TableOptions(keys.devices))
            self.fleet.on_state(lambda _: tables.wake())
            self._metrics.watch_key_tables(tables.stats)
            self._undo.callback(tables.close)
            tables.start()
        promotion = Promotion(self.tables, keys.promote_after) if self.tables and keys.promote_after else None
        self.named = KeyScheduler(self.scheduler, self.registry, self.tables, promotion)

    def close(self) -> None:
        """Ends everything; what still runs is left undecided. Idempotent."""
        self._undo.close()
