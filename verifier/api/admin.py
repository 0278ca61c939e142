"""The PluginAdmin service, on a listener of its own."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NoReturn

import grpc

from verifier.api._listeners import somebody_listens
from verifier.api.status import status_of
from verifier.errors import ConfigError, RequestError
from verifier.registry import InstanceStatus, Registry, State
from verifier.v1 import admin_pb2, admin_pb2_grpc

__all__ = ["ACTOR_KEY", "Authorize", "PluginAdmin", "admin_server", "socket_owner"]

ACTOR_KEY = "verifier-actor"  # metadata: who the caller says it is, recorded beside what is known of it
MAX_ACTOR = 200
THREADS = 8

# Who calls, for the audit; None where the caller has not the admin role.
Authorize = Callable[[grpc.ServicerContext], str | None]

_umask_lock = threading.Lock()


def socket_owner(_context: grpc.ServicerContext) -> str:
    """On a Unix socket of mode 0600 only its owner and root get this far."""
    return f"owner of the socket (user {os.geteuid()})"


class PluginAdmin(admin_pb2_grpc.PluginAdminServicer):
    """Thin: every method is one call of the registry."""

    def __init__(self, registry: Registry, authorize: Authorize = socket_owner) -> None:
        self._registry = registry
        self._authorize = authorize

    def List(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: ARG002, N802
        """Every instance."""
        return self._call(
            context, lambda _: admin_pb2.ListPluginsResponse(instances=map(_instance, self._registry.index()))
        )

    def Load(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        """Brings a plugin to service."""
        return self._change(
            context,
            request,
            lambda name, actor: self._registry.load(
                name,
                variant=request.variant,
                tunables=dict(request.tunables),
                activate=not request.keep_inactive,
                force=request.force,
                actor=actor,
            ),
        )

    def Unload(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        """Takes instances out."""

        def unload(name: str, actor: str) -> InstanceStatus:
            if not 0 <= request.timeout_s <= 86_400:
                raise RequestError("timeout_s", f"{request.timeout_s} is not between 0 and 86400")
            return self._registry.unload(name, wait=request.wait, timeout_s=request.timeout_s or None, actor=actor)

        return self._change(context, request, unload)

    def Reload(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        """Loads a served plugin again."""
        return self._change(context, request, lambda name, actor: self._registry.reload(name, actor=actor))

    def Activate(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        """Makes a loaded instance its plugin's default."""
        return self._change(context, request, lambda name, actor: self._registry.activate(name, actor=actor))

    def Rollback(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        """Returns to the previous instance."""
        return self._change(context, request, lambda name, actor: self._registry.rollback(name, actor=actor))

    def Confirm(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        """Lets go of the previous instance."""
        return self._change(context, request, lambda name, actor: self._registry.confirm(name, actor=actor))

    def History(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        """What became of every instance."""
        return self._call(
            context,
            lambda _: admin_pb2.PluginHistoryResponse(
                transitions=[
                    admin_pb2.PluginTransition(
                        at_unix_ms=_ms(step.at), label=step.label, state=_state(step.state), reason=step.reason
                    )
                    for step in self._registry.history(request.plugin)
                ]
            ),
        )

    def Audit(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        """Who did what."""
        return self._call(
            context,
            lambda _: admin_pb2.AuditResponse(
                records=[
                    admin_pb2.AuditRecord(
                        at_unix_ms=_ms(record.at),
                        actor=record.actor,
                        operation=record.operation,
                        target=record.target,
                        label=record.label,
                        digest=record.digest,
                        outcome=record.outcome,
                        detail=record.detail,
                    )
                    for record in self._registry.audit(request.limit or 1000)
                ]
            ),
        )

    def _change(self, context: grpc.ServicerContext, request: Any, work: Callable[[str, str], InstanceStatus]) -> Any:
        def checked(actor: str) -> Any:
            if not request.plugin:
                raise RequestError("plugin", "is empty")
            return _instance(work(request.plugin, actor))

        return self._call(context, checked)

    def _call(self, context: grpc.ServicerContext, work: Callable[[str], Any]) -> Any:
        actor = self._authorize(context)
        if actor is None:
            context.abort(grpc.StatusCode.PERMISSION_DENIED, "this call needs the admin role")
        try:
            return work(_with_claim(str(actor), context))
        except Exception as error:
            _abort(context, error)


def admin_server(
    registry: Registry,
    address: str,
    *,
    credentials: grpc.ServerCredentials | None = None,
    authorize: Authorize = socket_owner,
) -> grpc.Server:
    """A server of PluginAdmin alone, bound and not yet started.

    `address` is unix:/path (made with mode 0600) or host:port, which needs `credentials` and an `authorize` that
    checks the caller's certificate. Raises ConfigError where that is not so or the address cannot be bound.
    """
    if not address.startswith("unix:") and (credentials is None or authorize is socket_owner):
        raise ConfigError(f"admin address {address}: without mTLS and its roles only unix:/path is allowed")
    if address.startswith("unix:") and somebody_listens(Path(address.removeprefix("unix:"))):
        raise ConfigError(f"admin address {address}: another daemon answers there")
    server = grpc.server(ThreadPoolExecutor(THREADS, "admin"), options=(("grpc.so_reuseport", 0),))
    admin_pb2_grpc.add_PluginAdminServicer_to_server(PluginAdmin(registry, authorize), server)  # type: ignore[no-untyped-call]
    try:
        # The mask is the process's: held for the bind alone, so that the socket never has another mode.
        with _umask_lock:
            mask = os.umask(0o177)
            try:
                if credentials is None:
                    server.add_insecure_port(address)
                else:
                    server.add_secure_port(address, credentials)
            finally:
                os.umask(mask)
    except RuntimeError as error:
        raise ConfigError(f"admin address {address}: {error}") from None
    if address.startswith("unix:"):
        Path(address.removeprefix("unix:")).chmod(0o600)
    return server


def _with_claim(actor: str, context: grpc.ServicerContext) -> str:
    claimed = dict(context.invocation_metadata()).get(ACTOR_KEY, "")
    return f"{actor}, says {str(claimed)[:MAX_ACTOR]}" if claimed else actor


def _abort(context: grpc.ServicerContext, error: Exception) -> NoReturn:
    status = status_of(error)
    context.abort(status.code, status.message)
    raise AssertionError("abort raises")


def _instance(status: InstanceStatus) -> Any:
    return admin_pb2.PluginInstance(
        label=status.label,
        plugin=status.plugin,
        version=status.version,
        generation=status.generation,
        digest=status.digest,
        state=_state(status.state),
        reason=status.reason,
        active=status.active,
        leases=status.leases,
        devices=status.devices,
        missing_devices=status.missing_devices,
        origin=status.origin,
        changed_unix_ms=_ms(status.changed_at),
        builds=status.builds,
    )


def _state(state: State) -> str:
    return f"PLUGIN_STATE_{state}"


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
