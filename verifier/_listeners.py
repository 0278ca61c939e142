"""Every address that a daemon listens on, checked before anything starts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

from verifier.api import Listener, Tls
from verifier.config import Settings
from verifier.errors import ConfigError

__all__ = ["Listeners"]


@dataclass(frozen=True, slots=True)
class Listeners:
    """Those for work and health; metrics and the status page have servers of their own."""

    tls: Tls | None
    work: Listener
    health: Listener

    @classmethod
    def checked(cls, settings: Settings, tls_files_read: Callable[..., Any]) -> Self:
        """Raises ConfigError naming the setting that would open more than was said."""
        tls = Tls.from_settings(settings, tls_files_read)
        if tls is not None:
            tls.check()
        server, health, metrics, status = settings.server, settings.health, settings.metrics, settings.status
        mode = int(server.socket_mode, 8)
        found = cls(
            tls,
            Listener.for_work(settings, server.listen, tls),
            Listener("health.listen", health.listen, None, health.insecure, mode),
        )
        page = () if status.listen in ("", "auto") else (status.listen,)
        for listener in (
            found.work,
            Listener.for_work(settings, server.urgent_listen, tls, "server.urgent_listen"),
            found.health,
            Listener("metrics.listen", (metrics.listen,) if metrics.listen else (), None, metrics.insecure),
            Listener("status.listen", page, None, status.insecure),
        ):
            listener.check()
        _check_admin(settings)
        return found


def _check_admin(settings: Settings) -> None:
    for address in settings.admin.listen:
        if address != "auto" and not address.startswith("unix:") and not settings.server.tls_client_ca_file:
            raise ConfigError(
                f"admin.listen: {address}: without mutual TLS (server.tls_client_ca_file) only unix:/path is "
                "allowed: whoever may use it may load code"
            )
