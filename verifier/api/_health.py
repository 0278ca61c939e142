"""The standard health service: by service, by plugin operation, and as a whole.

Names: "" and "verifier.v1.Verifier" serve while an active plugin has a device; "verify/SM2" and the like while that
operation has one. Answers come from a table in memory and a thread of their own, never from behind work.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import grpc
from grpc_health.v1 import health, health_pb2

from verifier.api._calls import abort, check_parsed, parser
from verifier.api._watchers import Statuses
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
        # Watching holds no thread: answers are sent when something changes. Slow watchers delay each other at most.
        self._pool = ThreadPoolExecutor(4, "health")
        self._watch_pool = ThreadPoolExecutor(4, "health-watch")
        self._statuses = Statuses(self._watch_pool, health_pb2.HealthCheckResponse.SERVICE_UNKNOWN)
        self._lock = threading.Lock()  # updates are whole: what comes last is what everybody is told last
        self._stopping = False
        self._mirror: Mirror = _nobody
        self.update({})

    def mirror(self, mirror: Mirror) -> None:
        """`mirror(operations, stopping)` is told of every update, for health services of other processes. It may not
        block."""
        with self._lock:
            self._mirror = mirror
            told = self._statuses.all().items()
            mirror({name: status == _SERVING for name, status in told if name not in ("", SERVICE)}, self._stopping)

    def add_to(self, server: grpc.Server) -> None:
        """Serves health on a server."""

        def check(request: Any, context: Any) -> Any:
            status = self._statuses.get(_parsed(request, context).service)
            if status is None:
                context.abort(grpc.StatusCode.NOT_FOUND, f"{HEALTH_SERVICE}: there is no such service here")
            return health_pb2.HealthCheckResponse(status=status)

        def watch(request: Any, context: Any, send_response_callback: Any = None) -> None:
            def send(status: int | None) -> None:
                send_response_callback(None if status is None else health_pb2.HealthCheckResponse(status=status))

            self._statuses.watch(_parsed(request, context).service, context.add_callback, send)

        def every(request: Any, context: Any) -> Any:
            _parsed(request, context)
            told = self._statuses.all().items()
            statuses = {name: health_pb2.HealthCheckResponse(status=status) for name, status in told}
            return health_pb2.HealthListResponse(statuses=statuses)

        # gRPC reads these from the handler.
        check.experimental_thread_pool = every.experimental_thread_pool = self._pool  # type: ignore[attr-defined]
        watch.experimental_thread_pool = self._watch_pool  # type: ignore[attr-defined]
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

    def update(self, operations: Mapping[str, Sequence[Any]]) -> None:
        """`operations`: the devices that serve each operation now, such as "verify/SM2"."""
        whole = _SERVING if any(operations.values()) else _NOT_SERVING
        told = {name: _SERVING if devices else _NOT_SERVING for name, devices in operations.items()}
        with self._lock:
            if self._stopping:
                return
            self._mirror({name: bool(devices) for name, devices in operations.items()}, False)
            now = dict.fromkeys(self._statuses.all(), _NOT_SERVING) | dict.fromkeys(("", SERVICE), whole)
            self._statuses.update(now | told)

    @property
    def state(self) -> Literal["serving", "not serving", "stopping"]:
        """The state of the whole."""
        if self._stopping:
            return "stopping"
        return "serving" if self._statuses.get("") == _SERVING else "not serving"

    def stopping(self) -> None:
        """Everything is NOT_SERVING from now on."""
        with self._lock:
            self._stopping = True
            self._mirror({}, True)
            self._statuses.update(dict.fromkeys(self._statuses.all(), _NOT_SERVING))

    def close(self) -> None:
        """Ends the threads; the servers must be stopped."""
        self._pool.shutdown(wait=False)
        self._watch_pool.shutdown(wait=False)
