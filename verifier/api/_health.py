"""The standard health service: by service, by plugin operation, and as a whole.

Names: "" and "verifier.v1.Verifier" serve while an active plugin has a device; "verify/SM2" and the like while that
operation has one. Answers come from a table in memory and a thread of their own, never from behind work.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import grpc
from grpc_health.v1 import health, health_pb2

from verifier.api._calls import abort, check_parsed, parser
from verifier.api.status import status_of
from verifier.errors import RequestError

__all__ = ["HEALTH_SERVICE", "SERVICE", "Health"]

HEALTH_SERVICE: str = health.SERVICE_NAME

SERVICE = "verifier.v1.Verifier"
_SERVING = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


Mirror = Callable[[Mapping[str, bool], bool], None]


def _nobody(operations: Mapping[str, bool], stopping: bool) -> None:
    """No other process serves health."""


def _parsed(request: Any, context: Any) -> Any:
    try:
        check_parsed(request)
    except RequestError as error:
        abort(context, status_of(error))
    return request


class Health:
    """What is served, kept up to date by `update`."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(4, "health")
        # Watching does not hold a thread of the pool: answers are sent when something changes.
        self._servicer = health.HealthServicer(experimental_non_blocking=True, experimental_thread_pool=self._pool)
        self._told: dict[str, Any] = {}
        self._stopping = False
        self._mirror: Mirror = _nobody
        self.update({})

    def mirror(self, mirror: Mirror) -> None:
        """`mirror(operations, stopping)` is told of every update, for health services of other processes."""
        self._mirror = mirror
        mirror({name: status == _SERVING for name, status in self._told.items() if name not in ("", SERVICE)}, False)

    def add_to(self, server: grpc.Server) -> None:
        """Serves health on a server."""

        def check(request: Any, context: Any) -> Any:
            return self._servicer.Check(_parsed(request, context), context)

        def watch(request: Any, context: Any, send_response_callback: Any = None) -> Any:
            return self._servicer.Watch(_parsed(request, context), context, send_response_callback)

        def every(request: Any, context: Any) -> Any:
            _parsed(request, context)
            return self._list()

        # gRPC reads these from the handler. Watching holds no thread: answers go out when something changes.
        for handler in (check, watch, every):
            handler.experimental_thread_pool = self._pool  # type: ignore[attr-defined]
        watch.experimental_non_blocking = True  # type: ignore[attr-defined]
        asked, answer = parser(health_pb2.HealthCheckRequest), health_pb2.HealthCheckResponse.SerializeToString
        every_asked, every_answer = (
            parser(health_pb2.HealthListRequest),
            health_pb2.HealthListResponse.SerializeToString,
        )
        methods = {
            "Check": grpc.unary_unary_rpc_method_handler(check, asked, answer),
            "Watch": grpc.unary_stream_rpc_method_handler(watch, asked, answer),
            "List": grpc.unary_unary_rpc_method_handler(every, every_asked, every_answer),
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(HEALTH_SERVICE, methods),))

    def _list(self) -> Any:
        """Every service and its status; the library leaves this method out."""
        told = dict.fromkeys(self._told, _NOT_SERVING) if self._stopping else self._told
        statuses = {name: health_pb2.HealthCheckResponse(status=status) for name, status in told.items()}
        return health_pb2.HealthListResponse(statuses=statuses)

    def update(self, operations: Mapping[str, Sequence[Any]]) -> None:
        """`operations`: the devices that serve each operation now, such as "verify/SM2"."""
        if self._stopping:
            return
        self._mirror({name: bool(devices) for name, devices in operations.items()}, False)
        whole = _SERVING if any(operations.values()) else _NOT_SERVING
        now = dict.fromkeys(self._told, _NOT_SERVING) | dict.fromkeys(("", SERVICE), whole)
        now |= {name: _SERVING if devices else _NOT_SERVING for name, devices in operations.items()}
        for name, status in now.items():
            if self._told.get(name) != status:  # watchers are told of changes, not of looks
                self._servicer.set(name, status)
        self._told = now

    @property
    def state(self) -> Literal["serving", "not serving", "stopping"]:
        """The state of the whole."""
        if self._stopping:
            return "stopping"
        return "serving" if self._told.get("") == _SERVING else "not serving"

    def stopping(self) -> None:
        """Everything is NOT_SERVING from now on."""
        self._stopping = True
        self._mirror({}, True)
        self._servicer.enter_graceful_shutdown()

    def close(self) -> None:
        """Ends the thread pool; the servers must be stopped."""
        self._pool.shutdown(wait=False)
