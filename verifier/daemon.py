"""The daemon: configuration, devices, plugins, scheduler and listeners, started and stopped in order.

    with Daemon(load_settings()) as daemon:
        print(daemon.addresses)

Workers are started before any listener (a process that has served gRPC must not be forked), and stopping goes the
other way round: refuse, drain, answer, close.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

import grpc
import structlog

from verifier import __version__
from verifier._front_door import FrontDoor
from verifier._keeper import Keeper
from verifier._status_page import StatusPage
from verifier.api import (
    CIPHER_SERVICE,
    HEALTH_SERVICE,
    SERVICE,
    Access,
    CallInterceptor,
    CallLimits,
    CipherKeys,
    CipherOptions,
    CipherService,
    Denial,
    Health,
    Limits,
    Listener,
    RpcServer,
    ServiceOptions,
    SharedLimits,
    SharedMemoryListener,
    SharedRegions,
    Tls,
    VerifierService,
    split_address,
    tune_malloc,
)
from verifier.api.admin import admin_server, certificate_subject
from verifier.config import Settings, default_admin_address, default_memory_address
from verifier.drivers import probe_devices
from verifier.errors import ConfigError, DeviceUnavailableError, VerifierError
from verifier.keys import KeyScheduler, KeySetLimits, KeySets, KeyTables, Promotion, TableOptions, TableSize
from verifier.registry import Registry, RegistryOptions, Watcher, load_all
from verifier.scheduling import QueueLimits, Scheduler, SchedulingOptions
from verifier.telemetry import Metrics, MetricsServer, open_tracing, set_up_logs
from verifier.workers import Fleet, WorkerOptions

__all__ = ["Daemon", "devices_in_use"]

_log = structlog.get_logger(__name__)

_HEALTH_BYTES = 64 << 10  # of one message to the health listener


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


def _seconds(step: Callable[[], None]) -> float:
    begun = time.monotonic()
    step()
    return round(time.monotonic() - begun, 3)


class Daemon:
    """One daemon in this process. Start it once; it cannot be started again after `stop`."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.metrics = Metrics()
        self.addresses: tuple[str, ...] = ()  # of the work's listener, with the ports that were taken
        self.health_addresses: tuple[str, ...] = ()
        self.metrics_port: int | None = None
        self.status_port: int | None = None
        self.memory_address: str | None = None
        self.start_s = 0.0
        self._tls = self._checked_tls()
        self._listener, self._health_listener, *others = self._listeners()
        for listener in (self._listener, self._health_listener, *others):
            listener.check()
        self._check_admin()
        self._health = Health()
        self._stop_lock = threading.Lock()
        self._report: dict[str, int] | None = None
        self._undo = contextlib.ExitStack()
        self.fleet: Fleet
        self.registry: Registry
        self.scheduler: Scheduler
        self.service: VerifierService
        self.ciphers: CipherService
        self._door: FrontDoor

    def _checked_tls(self) -> Tls | None:
        server = self.settings.server
        if server.tls_certificate_file is None or server.tls_key_file is None:
            return None
        files = server.tls_certificate_file, server.tls_key_file, server.tls_client_ca_file
        tls = Tls(*files, observer=self.metrics.tls_files_read)
        tls.check()
        return tls

    def _check_admin(self) -> None:
        for address in self.settings.admin.listen:
            if address != "auto" and not address.startswith("unix:") and not self.settings.server.tls_client_ca_file:
                raise ConfigError(
                    f"admin.listen: {address}: without mutual TLS (server.tls_client_ca_file) only unix:/path is "
                    "allowed: whoever may use it may load code"
                )

    def _listeners(self) -> tuple[Listener, ...]:
        """For work, health, metrics and the status page."""
        server, health = self.settings.server, self.settings.health
        metrics, status = self.settings.metrics, self.settings.status
        mode = int(server.socket_mode, 8)
        return (
            Listener("server.listen", server.listen, self._tls, server.insecure, mode),
            Listener("health.listen", health.listen, None, health.insecure, mode),
            Listener("metrics.listen", (metrics.listen,) if metrics.listen else (), None, metrics.insecure),
            Listener(
                "status.listen", () if status.listen in ("", "auto") else (status.listen,), None, status.insecure
            ),
        )

    def __enter__(self) -> Daemon:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Returns when it serves. Raises ConfigError, DeviceUnavailableError, BackendError, PluginError; what was
        started is stopped again then."""
        begun = time.monotonic()
        if not structlog.is_configured():
            set_up_logs(self.settings.log.level, self.settings.log.format)
        try:
            tune_malloc()
            steps = (
                self._start_telemetry,
                self._start_devices,
                self._load_plugins,
                self._start_servers,
                self._start_status_page,
            )
            took = {step.__name__.removeprefix("_"): _seconds(step) for step in steps}
        except BaseException:
            self._undo.close()
            raise
        self.start_s = time.monotonic() - begun
        self.metrics.started(self.start_s)
        _log.info(
            "ready",
            version=__version__,
            listen=list(self.addresses),
            health=list(self.health_addresses),
            metrics_port=self.metrics_port,
            status_port=self.status_port,
            shared_memory=self.memory_address,
            devices=[worker.device_id for worker in self.fleet.workers],
            plugins=[instance.label for instance in self.registry.active()],
            start_s=round(self.start_s, 3),
            steps_s=took,
        )

    def _start_telemetry(self) -> None:
        tracing = self.settings.tracing
        self._tracing = open_tracing(tracing.endpoint, tracing.headers.get_secret_value(), tracing.sample_ratio)
        if self._tracing is not None:
            self._undo.callback(self._tracing.close)
        if not self.settings.metrics.listen:
            return
        host, port = split_address(self.settings.metrics.listen)
        try:
            server: MetricsServer = self.metrics.serve(host, port)
        except OSError as error:
            raise ConfigError(f"metrics.listen: {host}:{port}: {error.strerror}") from None
        self.metrics_port = server.port
        self._undo.callback(server.close)

    def _start_devices(self) -> None:
        devices, scheduling, plugins = self.settings.devices, self.settings.scheduling, self.settings.plugins
        keys = self.settings.keys
        options = WorkerOptions(
            slots=devices.slots,
            slot_bytes=devices.slot_bytes,
            streams=devices.streams,
            drain_timeout_s=devices.drain_timeout_s,
            batch_limit_s=devices.batch_limit_s,
            item_limit_s=devices.item_limit_s,
        )
        per_device = {"cpu": replace(options, driver={"threads": devices.cpu_threads})} if devices.cpu_threads else {}
        self.fleet = Fleet(devices_in_use(devices.use), options, per_device)
        self.registry = Registry(
            self.fleet,
            RegistryOptions(
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
                sized=TableSize(keys.enroll, keys.table_bytes, keys.window, keys.expected).tunables,
            ),
        )
        self._undo.callback(self.fleet.close)
        self._undo.callback(self.registry.close)
        self._keeper = Keeper(self.fleet, self.registry, self._health, self.metrics, measures=scheduling.measure)
        self.fleet.start()
        self.scheduler = Scheduler(
            self.fleet.workers,
            self.registry.lease,
            SchedulingOptions(
                queue=QueueLimits(
                    scheduling.queue_items, scheduling.queue_bytes, scheduling.queue_s, scheduling.caller_share
                ),
                batch_delay_s=scheduling.batch_delay_s,
                launch_items=scheduling.launch_items,
                launch_s=scheduling.launch_s,
                launch_bytes=self.settings.server.max_batch_bytes,
                launches_per_device=scheduling.launches_per_device,
                retries=scheduling.retries,
                unserved_wait_s=scheduling.unserved_wait_s,
                table_devices=keys.devices,
            ),
            metrics=self.metrics,
        )
        self._undo.callback(self.scheduler.close)
        for worker in self.fleet.workers:
            worker.on_room = self.scheduler.wake
        self._undo.callback(self._keeper.close)
        self.scheduler.start()

    def _load_plugins(self) -> None:
        names = self.settings.plugins.load
        outcomes = load_all(self.registry, None if names == ("auto",) else names)
        failures = {name: error for name, error in outcomes.items() if isinstance(error, VerifierError)}
        for name, error in failures.items():
            _log.error("plugin_not_loaded", plugin=name, error=str(error))
        if failures and len(failures) == len(outcomes):
            raise next(iter(failures.values()))
        self._keeper.start(self.scheduler)
        if self.settings.plugins.watch:
            watcher = Watcher(self.registry, self.settings.plugins.folders)
            watcher.start()
            self._undo.callback(watcher.close)

    def _start_servers(self) -> None:
        server, keys = self.settings.server, self.settings.keys
        tables = self._start_key_tables() if keys.enroll else None
        promotion = Promotion(tables, keys.promote_after) if tables and keys.promote_after else None
        self.service = VerifierService(
            KeyScheduler(self.scheduler, self.registry, tables, promotion),
            self.registry,
            KeySets(KeySetLimits(keys.max_sets, keys.max_bytes)),
            ServiceOptions(
                limits=Limits(server.max_items, server.max_batch_bytes),
                max_message_bytes=server.max_message_bytes,
                calls=CallLimits(server.max_calls, server.max_streams, server.stream_in_flight),
                preferred_items=self.scheduler.preferred_items,
            ),
            self.metrics,
            self._shared_regions(),
            key_tables=tables,
        )
        self.ciphers = self._cipher_service()
        if self.settings.health.listen:
            health = self._server(self._health_listener, self._add_health, 2, 1024, _HEALTH_BYTES)
            self.health_addresses = health.addresses
        for address in self.settings.admin.listen:
            self._open_admin(address)
        self._door = FrontDoor(
            self.settings,
            self._listener,
            self.service.operations,
            self._add_work,
            self._interceptor(),
            self.metrics,
            self.fleet.unmap,
            self._denied,
        )
        self._undo.callback(self._door.close)
        if self._door.front_ends is not None:
            self._health.mirror(self._door.front_ends.served)
        self._door.start()
        self.addresses = self._door.addresses

    def _start_key_tables(self) -> KeyTables:
        tables = KeyTables(self.registry, TableOptions(self.settings.keys.devices))
        self.fleet.on_state(lambda _: tables.wake())
        self.metrics.watch_key_tables(tables.stats)
        self._undo.callback(tables.close)
        tables.start()
        return tables

    def _shared_regions(self) -> SharedRegions:
        settings = self.settings.shared_memory
        if not settings.enabled:
            return SharedRegions()
        regions = SharedRegions(SharedLimits(settings.max_regions, settings.max_bytes), self.metrics.shared_memory)
        address = default_memory_address() if settings.listen == "auto" else settings.listen
        listener = SharedMemoryListener(
            Path(address.removeprefix("unix:")),
            int(settings.socket_mode, 8),
            regions,
            lambda region: self.fleet.unmap(region.id),
        )
        self._undo.callback(listener.close)
        self.memory_address = listener.address
        return regions

    def _cipher_service(self) -> CipherService:
        server, cipher = self.settings.server, self.settings.cipher
        keys = CipherKeys(cipher.max_keys)
        self._undo.callback(keys.close)
        options = CipherOptions(
            limits=Limits(server.max_items, server.max_batch_bytes),
            calls=cipher.max_calls,
            streams=cipher.max_streams,
            stream_in_flight=server.stream_in_flight,
            delete_wait_s=cipher.delete_wait_s,
            stream_held_bytes=cipher.stream_held_bytes,
            held_bytes=cipher.held_bytes,
        )
        return CipherService(self.scheduler, self.registry, keys, options, self.metrics)

    def _start_status_page(self) -> None:
        status = self.settings.status
        if not status.listen:
            return
        page = StatusPage(
            self.fleet, self.registry, self.scheduler, self.metrics, self.addresses, lambda: self._health.state
        )
        self.status_port = page.open(status.listen, any_host=status.insecure)
        self._undo.callback(page.close)

    def _open_admin(self, address: str) -> None:
        """The admin listener. One that nobody asked for by name may be missing: a second daemon runs without."""
        wanted = default_admin_address() if address == "auto" else address
        try:
            if wanted.startswith("unix:"):
                Path(wanted.removeprefix("unix:")).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            admin = self._admin_server(wanted)
        except (ConfigError, OSError) as error:
            if address != "auto":
                raise
            _log.warning("admin_listener_missing", address=wanted, error=str(error))
            return
        admin.start()
        self._undo.callback(lambda server: server.stop(1.0).wait(), admin)

    def _admin_server(self, address: str) -> grpc.Server:
        mode = int(self.settings.admin.socket_mode, 8)
        if address.startswith("unix:"):
            interceptors = [self._interceptor(admin_socket=True)]
            return admin_server(self.registry, address, socket_mode=mode, interceptors=interceptors)
        if self._tls is None or self._tls.client_ca_file is None:
            return admin_server(self.registry, address)  # which says what is missing
        return admin_server(
            self.registry,
            address,
            credentials=self._tls.credentials(),
            actor=certificate_subject,
            interceptors=[self._interceptor()],
        )

    def _interceptor(self, *, admin_socket: bool = False) -> CallInterceptor:
        access = Access.from_settings(
            self.settings, admin_socket=admin_socket, on_denied=self._told_denial, count=self.metrics.denied
        )
        return CallInterceptor(access, self._tracing, self.metrics.request)

    def _told_denial(self, denial: Denial) -> None:
        self._denied(denial.caller, denial.method, str(denial.role))

    def _denied(self, caller: str, method: str, role: str) -> None:
        self.registry.denied(caller, method, f"needs the role {role}")

    def _server(
        self,
        listener: Listener,
        add: Callable[[grpc.Server], Sequence[str]],
        threads: int,
        max_calls: int,
        max_message_bytes: int,
        interceptors: Sequence[grpc.ServerInterceptor[Any, Any]] = (),
    ) -> RpcServer:
        settings = self.settings.server
        server = RpcServer(
            listener,
            add,
            threads=threads,
            max_calls=max_calls,
            max_message_bytes=max_message_bytes,
            keepalive_s=settings.keepalive_s,
            interceptors=interceptors,
        )
        server.start()
        self._undo.callback(server.stop, 1.0)
        return server

    def _add_work(self, server: grpc.Server) -> Sequence[str]:
        server.add_generic_rpc_handlers((self.service.handler(), self.ciphers.handler()))
        return SERVICE, CIPHER_SERVICE, *self._add_health(server)

    def _add_health(self, server: grpc.Server) -> Sequence[str]:
        self._health.add_to(server)
        return (HEALTH_SERVICE,)

    def stop(self) -> dict[str, int]:
        """Refuses new work, finishes the old within `server.drain_s`, and closes everything. Idempotent.

        Returns the requests that were given up unfinished, by plugin.
        """
        with self._stop_lock:
            if self._report is None:
                self._report = self._stop()
            return self._report

    def _stop(self) -> dict[str, int]:
        drain_s = self.settings.server.drain_s
        begun = time.monotonic()
        self._health.stopping()
        in_flight = {plugin: held.requests for plugin, held in self.scheduler.held().items()}
        _log.info("draining", in_flight=in_flight, at_most_s=drain_s)
        self.service.streams.drain()
        self.ciphers.streams.drain()
        left = self._door.drain(drain_s, self.scheduler.drain)
        self._undo.close()
        self._health.close()
        _log.info("stopped", unfinished=left, took_s=round(time.monotonic() - begun, 3))
        return left
