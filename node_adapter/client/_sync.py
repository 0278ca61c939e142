"""The blocking client."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, TypeVar

import grpc
import numpy as np
import numpy.typing as npt

from node_adapter.client._columns import Values
from node_adapter.client._connections import Connections
from node_adapter.client._flight import Flight
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
from node_adapter.client._transport import Retry
from node_adapter.client._wire import pb
from node_adapter.errors import RequestError, UnavailableError, UndecidedError

__all__ = ["VerifierClient"]

R = TypeVar("R", bound=Result)


class VerifierClient:
    """Verifies batches through a daemon.

        with VerifierClient("localhost:50051") as client:
            verdicts = client.verify(scheme, messages, signatures, keys)
            verdicts.valid  # numpy bool array

    `target` is a gRPC target. Of several daemons ("ipv4:10.0.0.1:50051,10.0.0.2:50051", or all addresses of
    "dns:///verifier:50051") each gets requests in turn while its health service says SERVING; what one leaves without
    an answer or undecided is asked elsewhere at once, and that one is left alone for a while. With `same_plugins` all
    of them must serve the same ones (ReplicasError). Batches are cut by the daemon's limits, and `in_flight` requests
    of a batch are under way at once. Safe to use from several threads.

    Every call raises RequestError, RefusedError, AnswerError, or, where items stay without a verdict, UndecidedError;
    with `allow_undecided` the result is returned and says which.

    `fallback` gives another client, such as node_adapter.LocalVerifier's, which is asked about what stayed undecided.
    Its time, its own `timeout_s`, begins when this client's is over: leave room for it in your deadlines.

    `credentials` are gRPC's, for TLS; `server_name` is whom the daemons' certificates are for, where the target does
    not say it. `interceptors` are gRPC's, such as `trace_calls()`. Columns in `shared_memory` are read there, not
    sent, and not cut by `chunk_bytes`; it belongs to one daemon, and so must the target.
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
        submit_threads: int = 8,
        fallback: Callable[[], VerifierClient] | None = None,
        interceptors: Sequence[Any] = (),
        shared_memory: SharedMemory | None = None,
        same_plugins: bool = False,
        server_name: str = "",
    ) -> None:
        if shared_memory is not None:
            check_one("shared_memory", target)
        self._connections = Connections(target, credentials, interceptors, server_name=server_name)
        self._same_plugins = same_plugins
        self._timeout_s = timeout_s
        self._retry = retry or Retry()
        self._in_flight = in_flight
        self._chunk_items = chunk_items
        self._chunk_bytes = chunk_bytes if shared_memory is None else 1 << 40
        self._fallback = fallback
        self._shared_memory = shared_memory
        self._ids = itertools.count(1)
        self._pool = ThreadPoolExecutor(submit_threads, thread_name_prefix="verifier-client")
        self._limits: Limits | None = None

    def __enter__(self) -> VerifierClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connection. Batches under way end with UnavailableError."""
        self._connections.close()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def limits(self, timeout_s: float | None = None) -> Limits:
        """What the daemon accepts; asked once. Waits for a daemon that is still starting."""
        if self._limits is None:
            if self._same_plugins:
                self.check_replicas(timeout_s)
            answer = self.served(timeout_s)
            self._limits = Limits(
                answer.max_items, answer.max_batch_bytes, answer.max_message_bytes, answer.preferred_items
            )
        return self._limits

    def served(self, timeout_s: float | None = None) -> Any:
        """The daemon's limits and the operations that it serves now."""
        timeout_s = self._timeout_s if timeout_s is None else timeout_s
        return self._connections.first("GetLimits", pb.GetLimitsRequest(), timeout_s, self._retry)

    def check_replicas(self, timeout_s: float | None = None) -> dict[str, Any]:
        """What each daemon that answers serves, by its target.

        Raises ReplicasError where they serve an operation by different plugins, UnavailableError where none answers.
        """
        return self._connections.check(self._timeout_s if timeout_s is None else timeout_s)

    def verify(
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
        """Verifies one batch of any size.

        Each field is a list of bytes, or one buffer or uint8 array where the scheme fixes its width. `keys` are
        indices (uint32) where the scheme says INDEX. With `deduplicate`, equal items are sent once.
        """
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
        return self._run(job, timeout_s, allow_undecided)

    def submit(
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
    ) -> Future[Verdicts]:
        """As `verify`, in the background: submit when a block arrives, read before it is executed.

        The timeout runs from now. Columns are checked before this returns.
        """
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
        deadline = time.monotonic() + (self._timeout_s if timeout_s is None else timeout_s)
        try:
            return self._pool.submit(lambda: self._run(job, deadline - time.monotonic(), allow_undecided))
        except RuntimeError:  # the pool's answer after it was shut down
            raise UnavailableError("the client is closed") from None

    def recover(
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
        return self._run(job, timeout_s, allow_undecided)

    def digest(
        self,
        hash_: Hash,
        inputs: Values,
        *,
        timeout_s: float | None = None,
        priority: Priority = Priority.POOL,
        allow_undecided: bool = False,
    ) -> Digests:
        """Hashes messages."""
        return self._run(digest_job(hash_, inputs, priority=priority), timeout_s, allow_undecided)

    def register_keys(self, algorithm: Algorithm, key_encoding: KeyEncoding, keys: Values) -> int:
        """Registers public keys with the daemon and returns the handle for `key_set`.

        Raises RequestError naming the first keys that are not keys of the curve.
        """
        self._one("keys")
        answer = self._call("RegisterKeys", register_request(algorithm, key_encoding, keys), None)
        try:
            return registered(answer)
        except RequestError:
            self.release_keys(answer.key_set)
            raise

    def release_keys(self, key_set: int) -> None:
        """Gives up a handle of `register_keys`."""
        self._call("ReleaseKeys", pb.ReleaseKeysRequest(key_set=key_set), None)

    def _call(self, method: str, request: Any, timeout_s: float | None) -> Any:
        return self._connections.first(method, request, self._timeout_s if timeout_s is None else timeout_s)

    def _one(self, what: str) -> None:
        if self._connections.replicas.several:
            raise RequestError(what, "a handle belongs to one daemon, and this client has several: send key_table")

    def _run(self, job: Job[R], timeout_s: float | None, allow_undecided: bool) -> R:
        result = self._ask(job, timeout_s)
        if self._fallback and job.portable and not result.whole:
            missing = np.flatnonzero(~result.decided)
            result = merge(result, missing, self._fallback()._ask(job.only(missing), None))
        result = job.finish(result)
        if not allow_undecided:
            result.raise_for_undecided()
        return result

    def _ask(self, job: Job[R], timeout_s: float | None) -> R:
        deadline = time.monotonic() + (self._timeout_s if timeout_s is None else timeout_s)
        try:
            limits = self._limits or self.limits(max(0.0, deadline - time.monotonic()))
        except UndecidedError as error:
            return job.failed(Chunk(0, job.items), error)
        self._connections.refresh()
        result, doubtful = self._fly(job, limits, deadline, frozenset())
        elsewhere = doubtful and self._connections.replicas.elsewhere(doubtful)
        if elsewhere and not result.whole and time.monotonic() < deadline:
            missing = np.flatnonzero(~result.decided)
            later, _ = self._fly(job.only(missing), limits, deadline, doubtful)
            result = merge(result, missing, later)
        return result

    def _fly(
        self, job: Job[R], limits: Limits, deadline: float, avoid: AbstractSet[Replica]
    ) -> tuple[R, AbstractSet[Replica]]:
        """The result of a job, and who left items of it undecided."""
        flight = Flight(
            self._connections.replicas,
            job,
            job.chunks(limits, self._chunk_items, self._chunk_bytes),
            ids=self._ids,
            retry=self._retry,
            in_flight=self._in_flight,
            deadline=deadline,
            memory=self._shared_memory,
            avoid=avoid,
        )
        return join(flight.parts()), flight.doubtful
