"""The blocking client's connections: one to each daemon of its target."""

from __future__ import annotations

import itertools
import queue
import threading
import time
from collections.abc import Sequence
from typing import Any

import grpc

from node_adapter.client._replicas import Address, Lookup, Replica, Replicas, check_same_plugins, is_one
from node_adapter.client._transport import (
    REASON_S,
    Retry,
    again_after_s,
    channel_options,
    failure,
    nobody_answered,
)
from node_adapter.client._wire import new_stub, pb
from node_adapter.errors import UnavailableError

__all__ = ["Connections"]


class _Readiness:
    """Whether a channel is ready, as gRPC says it."""

    def __init__(self) -> None:
        self._ready = False

    def __call__(self) -> bool:
        return self._ready

    def change(self, state: grpc.ChannelConnectivity) -> None:
        self._ready = state is grpc.ChannelConnectivity.READY


class Connections:
    """`target` as the client has it. Daemons of a "dns:///" target are looked up again from time to time."""

    def __init__(
        self,
        target: str,
        credentials: grpc.ChannelCredentials | None,
        interceptors: Sequence[Any] = (),
        *,
        server_name: str = "",
    ) -> None:
        self._server_name = server_name
        self._target = target
        self._credentials = credentials
        self._interceptors = interceptors
        self.replicas = Replicas(self._connect)
        self._lookup = Lookup(target, self.replicas, lambda replica: replica.channel.close())

    def refresh(self) -> None:
        """Asks the name service again if it is time, in the background."""
        if self._lookup.due():
            threading.Thread(target=lambda: self._lookup.take(self._lookup.find()), daemon=True).start()

    def first(self, method: str, request: Any, timeout_s: float, retry: Retry | None = None) -> Any:
        """The first answer of any daemon, waiting for one that is still starting. Raises the last one's failure.

        With `retry` the call is made again where all are full or away.
        """
        deadline = time.monotonic() + timeout_s
        for attempt in itertools.count():
            call = self._first(method, request, max(0.0, deadline - time.monotonic()))
            code = call.code()
            if code is grpc.StatusCode.OK:
                return call.result()
            delay_s = again_after_s(retry, code, call.trailing_metadata(), attempt, deadline - time.monotonic())
            if delay_s is None:
                late = code is grpc.StatusCode.DEADLINE_EXCEEDED
                reason = self._reason() if late else ""
                raise failure(code, call.details() or "", nobody_answered(self._target, timeout_s, reason))
            time.sleep(delay_s)
        raise AssertionError("the loop ends by itself")

    def _reason(self) -> str:
        """Why nobody is there, where gRPC knows it."""
        stub = self.replicas.all[0].stub
        try:
            error = stub.GetLimits.future(pb.GetLimitsRequest(), timeout=REASON_S).exception()
        except ValueError:  # closed meanwhile
            return ""
        known = isinstance(error, grpc.RpcError) and error.code() is grpc.StatusCode.UNAVAILABLE
        return str(error.details()) if known else ""

    def _first(self, method: str, request: Any, timeout_s: float) -> Any:
        """The call that came back first with an answer, or last without one."""
        done: queue.SimpleQueue[Any] = queue.SimpleQueue()
        try:
            calls = [
                getattr(replica.stub, method).future(request, timeout=timeout_s, wait_for_ready=True)
                for replica in self.replicas.all
            ]
        except ValueError:  # grpc's answer on a closed channel
            raise UnavailableError("the client is closed") from None
        for call in calls:
            call.add_done_callback(done.put)
        for _ in calls:
            call = done.get()
            if call.code() is grpc.StatusCode.OK:
                break
        for other in calls:
            other.cancel()
        return call

    def check(self, timeout_s: float) -> dict[str, Any]:
        """What each daemon that answers serves, by its target. Raises ReplicasError, UnavailableError."""
        asked = {r: r.stub.GetLimits.future(pb.GetLimitsRequest(), timeout=timeout_s) for r in self.replicas.all}
        answers = {r.address.target: call.result() for r, call in asked.items() if call.exception() is None}
        if not answers:
            raise UnavailableError(f"no daemon answered at {self._target} within {timeout_s:.3g} s")
        check_same_plugins(answers)
        return answers

    def close(self) -> None:
        """Ends them. Calls under way end as cancelled."""
        for replica in self._lookup.every():
            replica.channel.close()

    def _connect(self, address: Address) -> Replica:
        several = not is_one(self._target)
        options = channel_options(self._server_name or address.name, watch_health=several)
        channel = (
            grpc.secure_channel(address.target, self._credentials, options)
            if self._credentials
            else grpc.insecure_channel(address.target, options)
        )
        readiness = _Readiness()
        if several:
            channel.subscribe(readiness.change, try_to_connect=True)
        stub = new_stub(grpc.intercept_channel(channel, *self._interceptors) if self._interceptors else channel)
        return Replica(address, channel, stub, readiness)
