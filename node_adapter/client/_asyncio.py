"""The asyncio client."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from types import TracebackType
from typing import Any, TypeVar

import grpc
import grpc.aio
import numpy as np
import numpy.typing as npt

from node_adapter.client._attempts import Attempts
from node_adapter.client._columns import Values
from node_adapter.client._connections_asyncio import AsyncConnections
from node_adapter.client._jobs import (
    Chunk,
    Job,
    Limits,
    digest_job,
    recover_job,
    verify_job,
)
from node_adapter.client._registration import register_request, registered
from node_adapter.client._replicas import Replica, check_one
from node_adapter.client._results import Digests, Recovered, Result, Verdicts, join, merge
from node_adapter.client._scheme import Algorithm, Hash, KeyEncoding, Priority, Scheme
from node_adapter.client._shared_memory import SharedMemory
from node_adapter.client._sync import VerifierClient
from node_adapter.client._transport import Retry
from node_adapter.client._wire import pb
from node_adapter.errors import RequestError, UnavailableError, UndecidedError

__all__ = ["AsyncVerifierClient"]

R = TypeVar("R", bound=Result)


class AsyncVerifierClient:
    """Verifies batches through a daemon, on an event loop. Arguments, results and errors as `VerifierClient`.

    Submit early and read late with `asyncio.create_task(client.verify(...))`. Make it inside the running loop.
    """

    def __init__(
        self,
        target: str,
        *,
        credentials: grpc.ChannelCredentials | None = None,
        timeout_s: float = 30.0,
        retry: Retry | None = None,
        in_flight: int = 4,
        chunk_items: int | None = None,
        chunk_bytes: int = 2 << 20,
        fallback: Callable[[], VerifierClient] | None = None,
        shared_memory: SharedMemory | None = None,
        same_plugins: bool = False,
        server_name: str = "",
    ) -> None:
        if shared_memory is not None:
            check_one("shared_memory", target)
        self._connections = AsyncConnections(target, credentials, server_name=server_name)
        self._same_plugins = same_plugins
        self._timeout_s = timeout_s
        self._retry = retry or Retry()
        self._in_flight = in_flight
        self._chunk_items = chunk_items
        self._chunk_bytes = chunk_bytes if shared_memory is None else 1 << 40
        self._fallback = fallback
        self._shared_memory = shared_memory
        self._ids = itertools.count(1)
        self._limits: Limits | None = None

    async def __aenter__(self) -> AsyncVerifierClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends the connection."""
        await self._connections.close()

    async def limits(self, timeout_s: float | None = None) -> Limits:
        """What the daemon accepts; asked once. Waits for a daemon that is still starting."""
        if self._limits is None:
            if self._same_plugins:
                await self.check_replicas(timeout_s)
            answer = await self.served(timeout_s)
            self._limits = Limits(
                answer.max_items, answer.max_batch_bytes, answer.max_message_bytes, answer.preferred_items
            )
        return self._limits

    async def served(self, timeout_s: float | None = None) -> Any:
        """The daemon's limits and the operations that it serves now."""
        timeout_s = self._timeout_s if timeout_s is None else timeout_s
        return await self._connections.first("GetLimits", pb.GetLimitsRequest(), timeout_s, self._retry)

    async def check_replicas(self, timeout_s: float | None = None) -> dict[str, Any]:
        """What each daemon that answers serves, by its target.

        Raises ReplicasError where they serve an operation by different plugins, UnavailableError where none answers.
        """
        return await self._connections.check(self._timeout_s if timeout_s is None else timeout_s)

    async def verify(
        self,
        scheme: Scheme,
        inputs: Values,
        signatures: Values,
        keys: Values | npt.NDArray[np.uint32] | None = None,
        *,
        key_table: bytes = b"",
        key_set: int = 0,
        timeout_s: float | None = None,
        priority: Priority = Priority.POOL,
        deduplicate: bool = False,
        allow_undecided: bool = False,
    ) -> Verdicts:
        """Verifies one batch of any size."""
        if key_set:
            self._one("key_set")
        job = verify_job(
            scheme,
            inputs,
            signatures,
            keys,
            key_table=key_table,
            key_set=key_set,
            priority=priority,
            deduplicate=deduplicate,
        )
        return await self._run(job, timeout_s, allow_undecided)

    async def recover(
        self,
        scheme: Scheme,
        inputs: Values,
        signatures: Values,
        *,
        address_hash: Hash = Hash.UNSPECIFIED,
        timeout_s: float | None = None,
        priority: Priority = Priority.POOL,
        allow_undecided: bool = False,
    ) -> Recovered:
        """Recovers public keys from signatures r || s || v, and addresses where `address_hash` is given."""
        job = recover_job(scheme, inputs, signatures, address_hash=address_hash, priority=priority)
        return await self._run(job, timeout_s, allow_undecided)

    async def digest(
        self,
        hash_: Hash,
        inputs: Values,
        *,
        timeout_s: float | None = None,
        priority: Priority = Priority.POOL,
        allow_undecided: bool = False,
    ) -> Digests:
        """Hashes messages."""
        return await self._run(digest_job(hash_, inputs, priority=priority), timeout_s, allow_undecided)

    async def register_keys(self, algorithm: Algorithm, key_encoding: KeyEncoding, keys: Values) -> int:
        """Registers public keys with the daemon and returns the handle for `key_set`."""
        self._one("keys")
        answer = await self._call("RegisterKeys", register_request(algorithm, key_encoding, keys), None)
        try:
            return registered(answer)
        except RequestError:
            await self.release_keys(answer.key_set)
            raise

    async def release_keys(self, key_set: int) -> None:
        """Gives up a handle of `register_keys`."""
        await self._call("ReleaseKeys", pb.ReleaseKeysRequest(key_set=key_set), None)

    async def _call(self, method: str, request: Any, timeout_s: float | None) -> Any:
        return await self._connections.first(method, request, self._timeout_s if timeout_s is None else timeout_s)

    def _one(self, what: str) -> None:
        if self._connections.replicas.several:
            raise RequestError(what, "a handle belongs to one daemon, and this client has several: send key_table")

    async def _run(self, job: Job[R], timeout_s: float | None, allow_undecided: bool) -> R:
        result = await self._ask(job, timeout_s)
        if self._fallback and job.portable and not result.whole:
            missing = np.flatnonzero(~result.decided)
            fallback = self._fallback
            later = await asyncio.to_thread(lambda: fallback()._ask(job.only(missing), None))
            result = merge(result, missing, later)
        result = job.finish(result)
        if not allow_undecided:
            result.raise_for_undecided()
        return result

    async def _ask(self, job: Job[R], timeout_s: float | None) -> R:
        deadline = time.monotonic() + (self._timeout_s if timeout_s is None else timeout_s)
        try:
            limits = self._limits or await self.limits(max(0.0, deadline - time.monotonic()))
        except UndecidedError as error:
            return job.failed(Chunk(0, job.items), error)
        self._connections.refresh()
        doubtful: set[Replica] = set()
        result = await self._fly(job, limits, deadline, frozenset(), doubtful)
        elsewhere = doubtful and self._connections.replicas.elsewhere(doubtful)
        if elsewhere and not result.whole and time.monotonic() < deadline:
            missing = np.flatnonzero(~result.decided)
            later = await self._fly(job.only(missing), limits, deadline, frozenset(doubtful), set())
            result = merge(result, missing, later)
        return result

    async def _fly(
        self, job: Job[R], limits: Limits, deadline: float, avoid: AbstractSet[Replica], doubtful: set[Replica]
    ) -> R:
        """The result of a job. Those who left items of it undecided are added to `doubtful`."""
        room = asyncio.Semaphore(self._in_flight)
        chunks = job.chunks(limits, self._chunk_items, self._chunk_bytes)
        if len(chunks) == 1:  # most are: no task is needed
            return await self._chunk(job, chunks[0], room, deadline, set(avoid), doubtful)
        tasks = [
            asyncio.create_task(self._chunk(job, chunk, room, deadline, set(avoid), doubtful)) for chunk in chunks
        ]
        try:
            return join(await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()

    async def _chunk(
        self,
        job: Job[R],
        chunk: Chunk,
        room: asyncio.Semaphore,
        deadline: float,
        avoid: set[Replica],
        doubtful: set[Replica],
    ) -> R:
        replicas = self._connections.replicas
        attempts = Attempts(replicas, self._retry, deadline)
        for attempt in itertools.count():
            try:
                async with room:
                    replica = replicas.pick(avoid)
                    method: Any = getattr(replica.stub, job.method)
                    sent = job.request(chunk, next(self._ids), self._shared_memory)
                    try:
                        left_s = max(0.0, deadline - time.monotonic())
                        response = await method(sent.request, timeout=replicas.patience_s(replica, attempt, left_s))
                    finally:
                        sent.end()
                part = job.answer(response, sent)
            except (grpc.aio.UsageError, asyncio.CancelledError):
                # A closed channel cancels its calls; a cancelled task must stay cancelled.
                task = asyncio.current_task()
                if task is not None and task.cancelling():
                    raise
                return job.failed(chunk, UnavailableError("the client is closed"))
            except grpc.aio.AioRpcError as rpc:
                error, delay_s = attempts.failed(replica, rpc, attempt, avoid)
                if delay_s is None:
                    return job.failed(chunk, error)
            else:
                attempts.answered(replica, part, doubtful)
                return part
            await asyncio.sleep(delay_s)
        raise AssertionError("unreachable")
