"""gRPC servers: the work's, and small ones of their own for health and admin."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Self

import grpc
from grpc_reflection.v1alpha import reflection

from verifier.api._listeners import check_listener, open_port
from verifier.api._tls import Tls
from verifier.api._tuning import channel_options
from verifier.config import Settings

__all__ = ["Listener", "RpcServer"]

_SPARE_CALLS = 16  # for calls that do no work: limits, health
_ANSWERS_S = 2.0  # for answers on their way; a call that only watches would never end by itself

AddServices = Callable[[grpc.Server], Sequence[str]]


@dataclass(frozen=True, slots=True)
class Listener:
    """Where a server listens. `setting` names it in errors."""

    setting: str
    addresses: tuple[str, ...]
    tls: Tls | None = None
    insecure: bool = False
    socket_mode: int = 0o660

    @classmethod
    def for_work(
        cls, settings: Settings, addresses: tuple[str, ...], tls: Tls | None, setting: str = "server.listen"
    ) -> Self:
        """One of the settings' section `server`, at these addresses."""
        server = settings.server
        return cls(setting, addresses, tls, server.insecure, int(server.socket_mode, 8))

    def check(self) -> None:
        """Raises ConfigError where others could reach an address and nothing protects it."""
        for address in self.addresses:
            check_listener(self.setting, address, tls=self.tls is not None, insecure=self.insecure)


class RpcServer:
    """One gRPC server with its own threads, so that no other server's work is in its way."""

    def __init__(
        self,
        listener: Listener,
        add_services: AddServices,
        *,
        threads: int,
        max_calls: int,
        max_message_bytes: int,
        keepalive_s: float,
        interceptors: Sequence[grpc.ServerInterceptor[Any, Any]] = (),
        share_port: bool = False,
    ) -> None:
        listener.check()
        self._pool = ThreadPoolExecutor(threads, "grpc")
        self._server = grpc.server(
            self._pool,
            interceptors=list(interceptors),
            options=channel_options(max_message_bytes, keepalive_s, share_port=share_port),
            maximum_concurrent_rpcs=max_calls,
        )
        names = add_services(self._server)
        reflection.enable_server_reflection([*names, reflection.SERVICE_NAME], self._server)
        credentials = listener.tls.credentials() if listener.tls else None
        self.addresses = tuple(
            open_port(self._server, address, credentials, listener.socket_mode, listener.setting)
            for address in listener.addresses
        )

    @classmethod
    def for_work(
        cls,
        settings: Settings,
        listener: Listener,
        add_services: AddServices,
        interceptors: Sequence[grpc.ServerInterceptor[Any, Any]],
        *,
        share_port: bool = False,
    ) -> Self:
        """One with a thread for every call and stream that the settings allow."""
        server, cipher = settings.server, settings.cipher
        calls = server.max_calls + server.max_streams + cipher.max_calls + cipher.max_streams
        return cls(
            listener,
            add_services,
            threads=calls,
            max_calls=calls + _SPARE_CALLS,
            max_message_bytes=server.max_message_bytes,
            keepalive_s=server.keepalive_s,
            interceptors=interceptors,
            share_port=share_port,
        )

    def start(self) -> None:
        """Accepts calls."""
        self._server.start()

    def finish(self) -> None:
        """Lets answers that are ready be sent, and ends every call."""
        self._server.stop(_ANSWERS_S).wait()

    def stop(self, grace_s: float) -> None:
        """Refuses new calls at once, waits for open ones, cancels what is left after `grace_s`."""
        self._server.stop(grace_s).wait()
        self._pool.shutdown(wait=False, cancel_futures=True)
