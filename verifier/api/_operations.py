"""Calls that are columns, whatever brought them here: a request in, a future answer out."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Protocol

from verifier.api._lift import KINDS, ColumnarRequest, RequestDigest
from verifier.api._shared import SharedRegions
from verifier.api.answers import digest_answer, recover_answer, verify_answer
from verifier.api.requests import Prepared, Requests
from verifier.keys import KeyScheduler
from verifier.model import BatchResult

__all__ = ["Backend", "Operations", "Pending"]


class Pending(Protocol):
    """A request that was accepted."""

    @property
    def future(self) -> Future[Any]:
        """Done when the answer can be had; cancelling it drops what waits."""

    def answer(self) -> Any:
        """The answer: a message, or its bytes. Raises what became of the request."""


class Backend(Protocol):
    """Where calls that are columns go: the scheduler of this process, or the core from a front end."""

    def submit(
        self,
        rpc: str,
        request: ColumnarRequest,
        *,
        deadline: float | None,
        caller: str,
        patient: Callable[[], bool] | None = None,
    ) -> Pending:
        """Accepts a request. `deadline` is on the monotonic clock. Where there is no memory for its columns it waits
        while `patient()`, and otherwise raises CapacityError. Raises what is wrong with the request."""


class _Submitted:
    def __init__(
        self, answer: Callable[..., Any], request_id: int, prepared: Prepared, digest: RequestDigest | None
    ) -> None:
        self._answer = answer
        self._request_id = request_id
        self._digest = digest
        self.prepared = prepared
        self.future: Future[BatchResult]

    def answer(self) -> Any:
        return self._answer(self._request_id, self.prepared, self.future.result(), self.digest())

    def digest(self) -> bytes:
        """Of the columns that came; empty where whoever answers takes it."""
        return b"" if self._digest is None else self._digest.take()


class Operations:
    """The backend of the process that has the scheduler."""

    def __init__(self, requests: Requests, scheduler: KeyScheduler, shared: SharedRegions) -> None:
        self._scheduler = scheduler
        self._shared = shared
        self._calls: dict[str, tuple[Callable[[Any], Prepared], Callable[..., Any]]] = {
            "Verify": (requests.verify, verify_answer),
            "Recover": (requests.recover, recover_answer),
            "Digest": (requests.digest, digest_answer),
        }
        assert self._calls.keys() == KINDS.keys()

    def submit(
        self,
        rpc: str,
        request: ColumnarRequest,
        *,
        deadline: float | None,
        caller: str,
        patient: Callable[[], bool] | None = None,  # noqa: ARG002 - the columns are in memory already
        released: Callable[[], None] | None = None,
        digested: bool = False,
    ) -> Pending:
        """`released` is called when nobody reads the columns any more; not where this raises. `digested`: whoever
        passes the answer on puts the columns' digest into it."""
        prepare, answer = self._calls[rpc]
        whole, held = self._shared.hold(request)
        try:
            digest = None if digested else RequestDigest(KINDS[rpc], whole)
            submitted = _Submitted(answer, request.request_id, prepare(whole), digest)
            submitted.future = self._scheduler.submit(
                submitted.prepared.batch,
                deadline=deadline,
                priority=submitted.prepared.priority,
                caller=caller,
                released=held.then(released),
            )
        except BaseException:
            held.release()
            raise
        submitted.digest()  # while the device works
        return submitted
