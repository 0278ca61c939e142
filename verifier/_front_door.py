"""Where work comes in: a server of this process, or front-end processes that pass it on to this one."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

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

    With one process it serves `listener` itself. With more its server is on a Unix socket of its own, and front ends
    serve `listener`; what they do not pass on as columns they pass on there.
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
        with contextlib.ExitStack() as undo:
            if self.processes == 1:
                self._server = RpcServer.for_work(settings, listener, add_work, [interceptor])
                self.addresses = self._server.addresses
            else:
                folder = Path(tempfile.mkdtemp(prefix="verifier-"))  # which nobody else may enter
                undo.callback(shutil.rmtree, folder, ignore_errors=True)
                core = Listener("server.listen", (f"unix:{folder}/core.sock",), socket_mode=0o600)
                self._server = RpcServer.for_work(settings, core, add_work, [ForwardedCallers()])
                self.front_ends = FrontEnds(
                    settings, self.processes, core.addresses[0], operations, unmap, metrics, on_denied
                )
                self.addresses = self.front_ends.addresses
            self._undo = undo.pop_all()

    def start(self) -> None:
        """Accepts calls. Raises ConfigError, BackendError."""
        self._server.start()
        if self.front_ends is not None:
            self.front_ends.start()

    def drain(self, timeout_s: float, drain: Callable[[float], Drained]) -> Drained:
        """Finishes accepted work with `drain(timeout_s)`, then lets its answers be sent and ends every call."""
        if self.front_ends is None:
            return self._server.drain(timeout_s, drain)
        self.front_ends.drain()
        left = self._server.drain(timeout_s, drain)
        self.front_ends.stop()
        return left

    def close(self) -> None:
        """Ends everything. Idempotent."""
        if self.front_ends is not None:
            self.front_ends.stop()
        self._server.stop(1.0)
        self._undo.close()
