"""The PluginAdmin service, on a listener of its own."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc

from verifier.api._calls import abort, check_parsed, parser
from verifier.api._listeners import open_port
from verifier.api._roles import peer_of
from verifier.api.status import status_of
from verifier.errors import ConfigError, RequestError
from verifier.registry import InstanceStatus, Registry, State
from verifier.v1 import admin_pb2

__all__ = ["ACTOR_KEY", "Actor", "PluginAdmin", "admin_server", "certificate_subject", "socket_owner"]

ACTOR_KEY = "verifier-actor"  # metadata: who the caller says it is, recorded beside what is known of it
MAX_ACTOR = 200
THREADS = 8

MAX_REQUEST_BYTES = 64 << 10

# Who calls, for the audit. Whether the caller may is decided before: by the socket's mode, or by its role.
Actor = Callable[[grpc.ServicerContext], str]

_METHODS = admin_pb2.DESCRIPTOR.services_by_name["PluginAdmin"]


def socket_owner(_context: grpc.ServicerContext) -> str:
    """On a Unix socket of mode 0600 only its owner and root get this far."""
    return f"owner of the socket (user {os.geteuid()})"


def certificate_subject(context: grpc.ServicerContext) -> str:
    """With mutual TLS: the subject of the caller's certificate."""
    return peer_of(context).name


class PluginAdmin:
    """Thin: every method is one call of the registry."""

    def __init__(self, registry: Registry, actor: Actor = socket_owner) -> None:
        self._registry = registry
        self._actor = actor

    def handler(self) -> grpc.GenericRpcHandler[Any, Any]:
        """What a gRPC server is given. Requests that do not parse are refused as INVALID_ARGUMENT."""
        return grpc.method_handlers_generic_handler(
            _METHODS.full_name,
            {
                method.name: grpc.unary_unary_rpc_method_handler(
                    _checked(getattr(self, method.name)),
                    parser(getattr(admin_pb2, method.input_type.name)),
                    getattr(admin_pb2, method.output_type.name).SerializeToString,
                )
                for method in _METHODS.methods
            },
        )

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
        try:
            return work(_with_claim(self._actor(context), context))
        except Exception as error:
            abort(context, status_of(error))


def admin_server(
    registry: Registry,
    address: str,
    *,
    credentials: grpc.ServerCredentials | None = None,
    actor: Actor = socket_owner,
    socket_mode: int = 0o600,
    interceptors: Sequence[grpc.ServerInterceptor[Any, Any]] = (),
) -> grpc.Server:
    """A server of PluginAdmin alone, bound and not yet started.

    `address` is unix:/path, made with `socket_mode`, or host:port. That needs `credentials` of mutual TLS, an `actor`
    that reads the caller's certificate, and an interceptor that checks its role. Raises ConfigError where that is not
    so or the address cannot be bound.
    """
    if not address.startswith("unix:") and (credentials is None or actor is socket_owner or not interceptors):
        raise ConfigError(
            f"admin address {address}: without mutual TLS (server.tls_client_ca_file) only unix:/path is allowed"
        )
    server = grpc.server(
        ThreadPoolExecutor(THREADS, "admin"),
        interceptors=list(interceptors),
        options=(("grpc.so_reuseport", 0), ("grpc.max_receive_message_length", MAX_REQUEST_BYTES)),
    )
    server.add_generic_rpc_handlers((PluginAdmin(registry, actor).handler(),))
    try:
        open_port(server, address, credentials, socket_mode)
    except ConfigError as error:
        raise ConfigError(f"admin address {address}: {error}") from None
    return server


def _with_claim(actor: str, context: grpc.ServicerContext) -> str:
    claimed = dict(context.invocation_metadata()).get(ACTOR_KEY, "")
    return f"{actor}, says {str(claimed)[:MAX_ACTOR]}" if claimed else actor


def _checked(handle: Callable[[Any, grpc.ServicerContext], Any]) -> Callable[[Any, grpc.ServicerContext], Any]:
    """`handle` for requests that are one."""

    def call(request: Any, context: grpc.ServicerContext) -> Any:
        try:
            check_parsed(request)
        except RequestError as error:
            abort(context, status_of(error))
        return handle(request, context)

    return call


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
