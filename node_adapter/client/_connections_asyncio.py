"""The asyncio client's connections: one to each daemon of its target."""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import Any

import grpc
import grpc.aio

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

__all__ = ["AsyncConnections"]


class AsyncConnections:
    """As `Connections`, on an event loop."""

    def __init__(self, target: str, credentials: grpc.ChannelCredentials | None, *, server_name: str = "") -> None:
        self._server_name = server_name
        self._target = target
        self._credentials = credentials
        self._closing: set[asyncio.Task[Any]] = set()
        self.replicas = Replicas(self._connect)
        self._lookup = Lookup(target, self.replicas, lambda replica: self._later(replica.channel.close(None)))

    def refresh(self) -> None:
        """Asks the name service again if it is time, in the background."""
        if self._lookup.due():
            self._later(self._look_up())

    async def first(self, method: str, request: Any, timeout_s: float, retry: Retry | None = None) -> Any:
        """The first answer of any daemon, waiting for one that is still starting. Raises the last one's failure.

        With `retry` the call is made again where all are full or away.
        """
        deadline = time.monotonic() + timeout_s
        for attempt in itertools.count():
            try:
                return await self._first(method, request, max(0.0, deadline - time.monotonic()))
            except grpc.aio.AioRpcError as error:
                code, left_s = error.code(), deadline - time.monotonic()
                delay_s = again_after_s(retry, code, error.trailing_metadata(), attempt, left_s)
                if delay_s is None:
                    reason = await self._reason() if code is grpc.StatusCode.DEADLINE_EXCEEDED else ""
                    late = nobody_answered(self._target, timeout_s, reason)
                    raise failure(code, error.details() or "", late) from None
            await asyncio.sleep(delay_s)
        raise AssertionError("the loop ends by itself")

    async def _reason(self) -> str:
        """Why nobody is there, where gRPC knows it."""
        try:
            await self._ask(self.replicas.all[0], "GetLimits", pb.GetLimitsRequest(), REASON_S, wait=False)
        except grpc.aio.AioRpcError as error:
            return str(error.details()) if error.code() is grpc.StatusCode.UNAVAILABLE else ""
        except UnavailableError as error:  # closed meanwhile
            return str(error)
        return ""

    async def _first(self, method: str, request: Any, timeout_s: float) -> Any:
        """The first answer. Raises the last one's error where there is none."""
        tasks = [asyncio.create_task(self._ask(replica, method, request, timeout_s)) for replica in self.replicas.all]
        error: Exception | None = None
        try:
            for next_one in asyncio.as_completed(tasks):
                try:
                    return await next_one
                except (UnavailableError, grpc.aio.AioRpcError) as problem:
                    error = problem
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)  # none is left to a loop that may end
        assert error is not None
        raise error

    async def check(self, timeout_s: float) -> dict[str, Any]:
        """What each daemon that answers serves, by its target. Raises ReplicasError, UnavailableError."""
        replicas = self.replicas.all
        asked = (
            self._ask(replica, "GetLimits", pb.GetLimitsRequest(), timeout_s, wait=False) for replica in replicas
        )
        found = await asyncio.gather(*asked, return_exceptions=True)
        answers = {
            replica.address.target: answer
            for replica, answer in zip(replicas, found, strict=True)
            if not isinstance(answer, BaseException)
        }
        if not answers:
            raise UnavailableError(f"no daemon answered at {self._target} within {timeout_s:.3g} s")
        check_same_plugins(answers)
        return answers

    async def close(self) -> None:
        """Ends them."""
        for replica in self._lookup.every():
            await replica.channel.close(None)

    async def _ask(self, replica: Replica, method: str, request: Any, timeout_s: float, *, wait: bool = True) -> Any:
        try:
            return await getattr(replica.stub, method)(request, timeout=timeout_s, wait_for_ready=wait)
        except grpc.aio.UsageError:
            raise UnavailableError("the client is closed") from None

    def _connect(self, address: Address) -> Replica:
        several = not is_one(self._target)
        options = channel_options(self._server_name or address.name, watch_health=several)
        channel = (
            grpc.aio.secure_channel(address.target, self._credentials, options)
            if self._credentials
            else grpc.aio.insecure_channel(address.target, options)
        )

        def ready() -> bool:
            return channel.get_state(try_to_connect=True) is grpc.ChannelConnectivity.READY

        return Replica(address, channel, new_stub(channel), ready)

    async def _look_up(self) -> None:
        self._lookup.take(await asyncio.to_thread(self._lookup.find))

    def _later(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
