"""Where work comes in: a server of this process, or front-end processes that pass it on to this one."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import grpc

from verifier.api import CallInterceptor, Listener, Operations, RpcServer
from verifier.config import Settings
from verifier.frontend import ForwardedCallers, FrontEnds
from verifier.telemetry import Metrics

__all__ = ["FrontDoor", "usual_processes"]

_CORES_A_PROCESS, _MOST_PROCESSES = 4, 8

Drained = TypeVar("Drained")


def usual_processes(cores: int) -> int:
    """How many front ends there are unless told otherwise. On few cores one process is faster: docs/front-end.md."""
    return min(max(cores // _CORES_A_PROCESS, 1), _MOST_PROCESSES)


class FrontDoor:
    """`add_work` adds the services to a server of this process; `operations` are its calls that are columns.

    With one process it serves `listener` itself. With more, front ends serve `listener`; and one serves
    `settings.server.urgent_listen` in either case, so that a flood of calls on the other addresses is not in front of
    those that come there. What front ends do not pass on as columns they pass on to a server on a Unix socket.
    """

    def __init__(
        self,
        settings: Settings,
        listener: Listener,
        operations: Operations,
        add_work: Callable[[grpc.Server], Sequence[str]],
        interceptor: CallInterceptor,
        metrics: Metrics,
        unmap: Callable[[int], None],
        on_denied: Callable[[str, str, str], None],
    ) -> None:
        """Opens the addresses; the daemon serves when `start` has returned. Raises ConfigError."""
        self.processes = settings.server.processes or usual_processes(len(os.sched_getaffinity(0)))
        self.front_ends: FrontEnds | None = None
        self.urgent_addresses: tuple[str, ...] = ()
        self._servers: list[RpcServer] = []
        count = 0 if self.processes == 1 else self.processes
        with contextlib.ExitStack() as undo:

            def serve(listener: Listener, interceptor: grpc.ServerInterceptor[Any, Any]) -> RpcServer:
                server = RpcServer.for_work(settings, listener, add_work, [interceptor])
                undo.callback(server.stop, 1.0)
                self._servers.append(server)
                return server

            if not count:
                self.addresses = serve(listener, interceptor).addresses
            if count or settings.server.urgent_listen:
                folder = Path(tempfile.mkdtemp(prefix="verifier-"))  # which nobody else may enter
                undo.callback(shutil.rmtree, folder, ignore_errors=True)
                core = Listener("server.listen", (f"unix:{folder}/core.sock",), socket_mode=0o600)
                serve(core, ForwardedCallers())
                self.front_ends = FrontEnds(settings, count, core.addresses[0], operations, unmap, metrics, on_denied)
                self.urgent_addresses = self.front_ends.urgent_addresses
                if count:
                    self.addresses = self.front_ends.addresses
            self._undo = undo.pop_all()

    def start(self) -> None:
        """Accepts calls. Raises ConfigError, BackendError."""
        for server in self._servers:
            server.start()
        if self.front_ends is not None:
            self.front_ends.start()

    def drain(self, timeout_s: float, drain: Callable[[float], Drained]) -> Drained:
        """Finishes accepted work with `drain(timeout_s)`, then lets its answers be sent and ends every call.

        Handlers refuse new work meanwhile; the servers themselves would cancel such calls instead of saying why.
        """
        if self.front_ends is not None:
            self.front_ends.drain()
        left = drain(timeout_s)
        for server in self._servers:
            server.finish()
        if self.front_ends is not None:
            self.front_ends.stop()
        return left

    def close(self) -> None:
        """Ends everything. Idempotent."""
        if self.front_ends is not None:
            self.front_ends.stop()
        self._undo.close()
