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
from pathlib import Path
from types import TracebackType
from typing import Any

import grpc
import structlog

from verifier import __version__
from verifier._admin_listeners import open_admin
from verifier._front_door import FrontDoor
from verifier._listeners import Listeners
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
    VerifierService,
    split_address,
    tune_malloc,
)
from verifier.config import Settings, default_memory_address
from verifier.core import Core
from verifier.errors import ConfigError
from verifier.keys import KeySetLimits, KeySets
from verifier.telemetry import Metrics, MetricsServer, open_tracing, set_up_logs

__all__ = ["Daemon"]

_log = structlog.get_logger(__name__)

_HEALTH_BYTES = 64 << 10  # of one message to the health listener


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
        self.urgent_addresses: tuple[str, ...] = ()
        self.health_addresses: tuple[str, ...] = ()
        self.metrics_port: int | None = None
        self.status_port: int | None = None
        self.memory_address: str | None = None
        self.start_s = 0.0
        self._listeners = Listeners.checked(settings, self.metrics.tls_files_read)
        self._health = Health()
        self._stop_lock = threading.Lock()
        self._report: dict[str, int] | None = None
        self._undo = contextlib.ExitStack()
        self.core = Core(settings, self.metrics, self._health.update)
        self.service: VerifierService
        self.ciphers: CipherService
        self._door: FrontDoor

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
            urgent=list(self.urgent_addresses),
            health=list(self.health_addresses),
            metrics_port=self.metrics_port,
            status_port=self.status_port,
            shared_memory=self.memory_address,
            devices=[worker.device_id for worker in self.core.fleet.workers],
            plugins=[instance.label for instance in self.core.registry.active()],
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
        self._undo.callback(self.core.close)
        self.core.start_devices()

    def _load_plugins(self) -> None:
        self.core.load_plugins()

    def _start_servers(self) -> None:
        server, keys = self.settings.server, self.settings.keys
        self.service = VerifierService(
            self.core.named,
            self.core.registry,
            KeySets(KeySetLimits(keys.max_sets, keys.max_bytes)),
            ServiceOptions(
                limits=Limits(server.max_items, server.max_batch_bytes),
                max_message_bytes=server.max_message_bytes,
                calls=CallLimits(server.max_calls, server.max_streams, server.stream_in_flight),
                preferred_items=self.core.scheduler.preferred_items,
            ),
            self.metrics,
            self._shared_regions(),
            key_tables=self.core.tables,
        )
        self.ciphers = self._cipher_service()
        if self.settings.health.listen:
            health = self._server(self._listeners.health, self._add_health, 2, 1024, _HEALTH_BYTES)
            self.health_addresses = health.addresses
        for address in self.settings.admin.listen:
            self._open_admin(address)
        self._door = FrontDoor(
            self.settings,
            self._listeners.work,
            self.service.operations,
            self._add_work,
            self._interceptor(),
            self.metrics,
            self.core.fleet.unmap,
            self._denied,
        )
        self._undo.callback(self._door.close)
        if self._door.front_ends is not None:
            self._health.mirror(self._door.front_ends.served)
        self._door.start()
        self.addresses, self.urgent_addresses = self._door.addresses, self._door.urgent_addresses

    def _shared_regions(self) -> SharedRegions:
        settings = self.settings.shared_memory
        if not settings.enabled:
            return SharedRegions()
        limits = SharedLimits(
            settings.max_regions, settings.max_bytes, settings.max_region_bytes, settings.user_share
        )
        regions = SharedRegions(limits, self.metrics.shared_memory)
        address = default_memory_address() if settings.listen == "auto" else settings.listen
        listener = SharedMemoryListener(
            Path(address.removeprefix("unix:")),
            int(settings.socket_mode, 8),
            regions,
            lambda region: self.core.fleet.unmap(region.id),
        )
        self._undo.callback(listener.close)
        self.memory_address = listener.address
        return regions

    def _cipher_service(self) -> CipherService:
        server, cipher = self.settings.server, self.settings.cipher
        keys = CipherKeys(cipher.max_keys, cipher.caller_keys)
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
        return CipherService(self.core.scheduler, self.core.registry, keys, options, self.metrics)

    def _start_status_page(self) -> None:
        status = self.settings.status
        if not status.listen:
            return
        page = StatusPage(
            self.core.fleet,
            self.core.registry,
            self.core.scheduler,
            self.metrics,
            self.addresses,
            lambda: self._health.state,
        )
        self.status_port = page.open(status.listen, any_host=status.insecure)
        self._undo.callback(page.close)

    def _open_admin(self, address: str) -> None:
        tls, registry = self._listeners.tls, self.core.registry
        admin = open_admin(self.settings, address, tls, registry, self._interceptor)
        if admin is not None:
            self._undo.callback(lambda: admin.stop(1.0).wait())

    def _interceptor(self, admin_socket: bool = False) -> CallInterceptor:
        access = Access.from_settings(
            self.settings, admin_socket=admin_socket, on_denied=self._told_denial, count=self.metrics.denied
        )
        return CallInterceptor(access, self._tracing, self.metrics.request)

    def _told_denial(self, denial: Denial) -> None:
        self._denied(denial.caller, denial.method, str(denial.role))

    def _denied(self, caller: str, method: str, role: str) -> None:
        self.core.registry.denied(caller, method, f"needs the role {role}")

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
        in_flight = {plugin: held.requests for plugin, held in self.core.scheduler.held().items()}
        _log.info("draining", in_flight=in_flight, at_most_s=drain_s)
        self.service.streams.drain()
        self.ciphers.streams.drain()
        left: dict[str, int] = self._door.drain(drain_s, self.core.scheduler.drain)
        self._undo.close()
        self._health.close()
        _log.info("stopped", unfinished=left, took_s=round(time.monotonic() - begun, 3))
        return left
