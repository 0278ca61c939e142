"""A front-end process: gRPC and TLS on one side, the core on the other.

It ends when the core says so, and at once when the core is gone.
"""

from __future__ import annotations

import faulthandler
import os
import pickle
import signal
import threading
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any, NamedTuple, NoReturn

import grpc
import structlog

from verifier.api import (
    CIPHER_SERVICE,
    HEALTH_SERVICE,
    SERVICE,
    Access,
    CallInterceptor,
    CallLimits,
    ColumnCalls,
    Health,
    Listener,
    RpcServer,
    Tls,
    channel_options,
    tune_malloc,
)
from verifier.channel import Channel
from verifier.collector import keep_what_is_there
from verifier.config import Settings
from verifier.errors import VerifierError
from verifier.frontend._counts import FrontEndCounts
from verifier.frontend._link import Link
from verifier.frontend._messages import Answer, Drain, FromCore, Listening, Served
from verifier.frontend._proxy import Proxy
from verifier.frontend._refusals import Refusals
from verifier.reader import Reader
from verifier.regions import map_memory
from verifier.telemetry import Tracing, open_tracing, set_up_logs
from verifier.v1 import cipher_pb2, verifier_pb2

__all__ = ["Setup", "main"]

_log = structlog.get_logger(__name__)

_COUNT_S = 1.0
_ANSWERS_S = 2.0
_SERVICES = (
    (SERVICE, verifier_pb2, verifier_pb2.DESCRIPTOR.services_by_name["Verifier"]),
    (CIPHER_SERVICE, cipher_pb2, cipher_pb2.DESCRIPTOR.services_by_name["CipherService"]),
)


class Setup(NamedTuple):
    """From the core, first."""

    settings: Settings
    setting: str  # that has the addresses
    addresses: tuple[str, ...]  # with ports; Unix sockets that are this front end's
    core: str  # the gRPC target of the core's own server
    region_bytes: int


class FrontEnd:
    """The servers of one front end."""

    def __init__(self, setup: Setup, channel: Channel, memory_fd: int) -> None:
        settings = setup.settings
        server, tracing = settings.server, settings.tracing
        self._counts = FrontEndCounts()
        self._tracing: Tracing | None = open_tracing(
            tracing.endpoint, tracing.headers.get_secret_value(), tracing.sample_ratio
        )
        memory = map_memory(memory_fd, setup.region_bytes)
        os.close(memory_fd)
        self._over = threading.Event()
        self._reader = Reader("core", channel, self._take, self._lose)
        refusals = Refusals(self._counts.refused)
        self._link = Link(channel, self._reader, memory, refusals=refusals, parse=self._tracing is not None)
        limits = CallLimits(server.max_calls, server.max_streams, server.stream_in_flight)
        self._columns = ColumnCalls(self._link, self._counts, limits)
        self._health = Health()
        options = channel_options(server.max_message_bytes, server.keepalive_s)
        self._proxy = Proxy(grpc.insecure_channel(setup.core, options))
        access = Access.from_settings(settings, on_denied=self._counts.audit, count=self._counts.denied)
        tls = Tls.from_settings(settings, self._counts.tls_files_read)
        self._server = RpcServer.for_work(
            settings,
            Listener.for_work(settings, setup.addresses, tls, setup.setting),
            self._add,
            [CallInterceptor(access, self._tracing, self._counts.request)],
            share_port=True,
        )

    def _add(self, server: grpc.Server) -> Sequence[str]:
        columns = self._columns.handlers()
        for name, module, service in _SERVICES:
            handlers: dict[str, Any] = {}
            for method in service.methods:
                kind = getattr(module, method.input_type.name)
                path = f"/{name}/{method.name}"
                handlers[method.name] = (
                    columns[method.name]
                    if service.name == "Verifier" and method.name in columns
                    else self._proxy.handler(path, kind, streams=method.client_streaming)
                )
            server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, handlers),))
        self._health.add_to(server)
        return SERVICE, CIPHER_SERVICE, HEALTH_SERVICE

    def serve(self) -> None:
        """Until the core says that it is over."""
        self._server.start()
        self._reader.start()
        self._link.send(Listening(self._server.addresses))
        threading.Thread(target=self._count, name="counts", daemon=True).start()
        self._over.wait()
        self._server.stop(_ANSWERS_S)
        self._link.send(self._counts.take())
        if self._tracing is not None:
            self._tracing.close()

    def _take(self, message: Answer | Served | Drain) -> None:
        if isinstance(message, Answer):
            self._link.take(message)
        elif isinstance(message, Served):
            self._served(message)
        elif message.stop:
            self._over.set()
        else:
            self._columns.streams.drain()

    def _lose(self, kind: str, problem: str = "") -> NoReturn:
        """The core is gone, or cannot be understood: nobody could answer what still runs."""
        if problem:
            _log.error("core_lost", kind=kind, problem=problem)
        os._exit(1)

    def _served(self, message: Served) -> None:
        if message.stopping:
            self._health.stopping()
        else:
            self._health.update({name: [True] if up else [] for name, up in message.operations.items()})

    def _count(self) -> None:
        while True:
            threading.Event().wait(_COUNT_S)
            self._link.send(self._counts.take())


def main(fd: int, memory_fd: int) -> None:
    """Runs until the core ends it. The arguments are inherited file descriptors: the socket and the region."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the core drains first, then ends us
    faulthandler.enable()
    tune_malloc()
    keep_what_is_there()
    connection = Connection(fd)
    setup: Setup = pickle.loads(connection.recv_bytes())
    set_up_logs(setup.settings.log.level, setup.settings.log.format)
    channel = Channel(connection, FromCore)
    try:
        front_end = FrontEnd(setup, channel, memory_fd)
    except VerifierError as error:
        channel.send(Listening(problem=str(error)))
        return
    front_end.serve()
    os._exit(0)  # threads of calls that were cut off do not matter any more
