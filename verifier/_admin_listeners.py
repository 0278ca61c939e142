"""Where plugins are administered: a socket of the daemon's own user, or a port with mutual TLS."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import grpc
import structlog

from verifier.api import CallInterceptor, Tls
from verifier.api.admin import admin_server, certificate_subject
from verifier.config import Settings, default_admin_address
from verifier.errors import ConfigError
from verifier.registry import Registry

__all__ = ["open_admin"]

_log = structlog.get_logger(__name__)


def open_admin(
    settings: Settings,
    address: str,
    tls: Tls | None,
    registry: Registry,
    interceptor: Callable[[bool], CallInterceptor],
) -> grpc.Server | None:
    """Serves an address of the settings. `interceptor(admin_socket)` makes what every call passes.

    None where that is "auto" and it cannot be opened: a second daemon runs without. Raises ConfigError, OSError.
    """
    wanted = default_admin_address() if address == "auto" else address
    try:
        if wanted.startswith("unix:"):
            server = _on_socket(settings, wanted, registry, interceptor(True))
        else:
            server = _on_port(wanted, tls, registry, interceptor(False))
    except (ConfigError, OSError) as error:
        if address != "auto":
            raise
        _log.warning("admin_listener_missing", address=wanted, error=str(error))
        return None
    server.start()
    return server


def _on_socket(settings: Settings, address: str, registry: Registry, interceptor: CallInterceptor) -> grpc.Server:
    Path(address.removeprefix("unix:")).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    mode = int(settings.admin.socket_mode, 8)
    return admin_server(registry, address, socket_mode=mode, interceptors=[interceptor])


def _on_port(address: str, tls: Tls | None, registry: Registry, interceptor: CallInterceptor) -> grpc.Server:
    if tls is None or tls.client_ca_file is None:
        return admin_server(registry, address)  # which says what is missing
    return admin_server(
        registry,
        address,
        credentials=tls.credentials(),
        actor=certificate_subject,
        interceptors=[interceptor],
    )
