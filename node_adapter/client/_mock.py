"""A daemon that answers what a test tells it to, for developers of node software.

It speaks real gRPC on a port of the loopback interface, so that a test runs the client's whole path.
"""

from __future__ import annotations

import hashlib
import itertools
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NoReturn

import grpc
import numpy as np
from google.protobuf import any_pb2, duration_pb2
from google.rpc import error_details_pb2, status_pb2
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from node_adapter.client._scheme import (
    Algorithm,
    Hash,
    InputKind,
    KeyEncoding,
    LowS,
    Scheme,
    SignatureEncoding,
)
from node_adapter.client._wire import add_servicer, pb
from verifier.columns_digest import columns_digest
from verifier.model import Code
from verifier.v1.verifier_pb2_grpc import VerifierServicer

__all__ = ["Items", "MockVerifier"]


@dataclass(frozen=True, slots=True)
class Items:
    """The items of one request, taken apart. `keys` is empty where the scheme has no key column."""

    scheme: Scheme
    inputs: Sequence[bytes]
    signatures: Sequence[bytes]
    keys: Sequence[bytes]


def _all_valid(items: Items) -> Iterable[int]:
    return [Code.VALID] * len(items.inputs)


def _hash(name: Hash, message: bytes) -> bytes:
    if name is Hash.SHA256D:
        return hashlib.sha256(hashlib.sha256(message).digest()).digest()
    return hashlib.new(name.name.lower(), message).digest()


class MockVerifier:
    """A daemon in this process that gives the verdicts of a function.

        with MockVerifier(lambda items: [Code.VALID for _ in items.inputs]) as daemon:
            client = VerifierClient(daemon.target)

    `verify` gives one verifier.model.Code an item; `recover` gives (codes, keys, addresses) with zeros where not
    valid. `fail` makes the next calls fail, `alter` changes the next answer, `serving` says what health says, and
    `requests` holds what came in.
    """

    def __init__(
        self,
        verify: Callable[[Items], Iterable[int]] = _all_valid,
        *,
        recover: Callable[[Items], tuple[Iterable[int], bytes, bytes]] | None = None,
        digest: Callable[[Hash, bytes], bytes] = _hash,
        max_items: int = 65_536,
        max_batch_bytes: int = 16 << 20,
        max_message_bytes: int = 32 << 20,
        preferred_items: int = 8_192,
        served_by: str = "mock@0.0.0#1",
        device: str = "mock",
    ) -> None:
        self.requests: list[Any] = []
        self._verify = verify
        self._recover = recover
        self._digest = digest
        self._limits = pb.GetLimitsResponse(
            max_items=max_items,
            max_batch_bytes=max_batch_bytes,
            max_message_bytes=max_message_bytes,
            preferred_items=preferred_items,
        )
        self._label = {"served_by": served_by, "device": device}
        self._lock = threading.Lock()
        self._failures: list[tuple[Callable[[Any], bool], grpc.StatusCode, str, float | None]] = []
        self._changes: list[Callable[[Any], None]] = []
        self._health = health.HealthServicer()
        self._server = grpc.server(ThreadPoolExecutor(16), options=[("grpc.max_receive_message_length", -1)])
        add_servicer(_Servicer(self), self._server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        self.serving(True)
        self._port = self._server.add_insecure_port("127.0.0.1:0")

    @property
    def target(self) -> str:
        """What to give to a client."""
        return f"127.0.0.1:{self._port}"

    def __enter__(self) -> MockVerifier:
        self._server.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.stop(0).wait()

    def serving(self, serves: bool) -> None:
        """What the health service says from now on: clients of several daemons ask only those that serve."""
        code = health_pb2.HealthCheckResponse.SERVING if serves else health_pb2.HealthCheckResponse.NOT_SERVING
        for service in ("", "verifier.v1.Verifier"):
            self._health.set(service, code)

    def fail(
        self,
        code: grpc.StatusCode,
        problem: str = "told to",
        *,
        times: int = 1,
        retry_after_s: float | None = None,
        when: Callable[[Any], bool] = lambda _: True,
    ) -> None:
        """The next `times` requests for which `when` holds fail with this status."""
        with self._lock:
            self._failures += [(when, code, problem, retry_after_s)] * times

    def alter(self, change: Callable[[Any], None]) -> None:
        """The next answer is changed by `change` before it is sent."""
        with self._lock:
            self._changes.append(change)

    def _begin(self, request: Any, context: grpc.ServicerContext) -> None:
        with self._lock:
            self.requests.append(request)
            failure = next((entry for entry in self._failures if entry[0](request)), None)
            if failure:
                self._failures.remove(failure)
        if failure:
            _abort(context, *failure[1:])

    def _end(self, response: Any) -> Any:
        with self._lock:
            change = self._changes.pop(0) if self._changes else None
        if change:
            change(response)
        return response


def _abort(
    context: grpc.ServicerContext, code: grpc.StatusCode, problem: str, retry_after_s: float | None
) -> NoReturn:
    if retry_after_s is not None:
        delay = duration_pb2.Duration()
        delay.FromNanoseconds(int(retry_after_s * 1e9))
        detail = any_pb2.Any()
        detail.Pack(error_details_pb2.RetryInfo(retry_delay=delay))
        status = status_pb2.Status(code=code.value[0], message=problem, details=[detail])
        context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
    context.abort(code, problem)
    raise AssertionError("abort returned")


def _values(column: Any, items: int) -> list[bytes]:
    data = column.data
    if column.offsets:
        ends = np.frombuffer(column.offsets, "<u4").tolist()
    else:
        ends = [i * (len(data) // items) for i in range(items + 1)]
    return [data[start:stop] for start, stop in itertools.pairwise(ends)]


def _items(request: Any) -> Items:
    told = request.scheme
    scheme = Scheme(
        Algorithm(told.algorithm),
        InputKind(told.input_kind),
        SignatureEncoding(told.signature_encoding),
        KeyEncoding(told.key_encoding or KeyEncoding.IN_SIGNATURE),  # recovery ignores it
        LowS(told.low_s or LowS.ACCEPT_ANY),
        Hash(told.hash),
        told.sm2_user_id if told.HasField("sm2_user_id") else None,
        told.digest_bytes,
        told.plugin,
    )
    keyed = request.DESCRIPTOR.name == "VerifyRequest" and scheme.key_encoding is not KeyEncoding.IN_SIGNATURE
    return Items(
        scheme,
        _values(request.input, request.items),
        _values(request.signature, request.items),
        _values(request.key, request.items) if keyed else (),
    )


def _digest(request: Any) -> bytes:
    """Of the columns that came, as the daemon says it."""
    names = [field.name for field in request.DESCRIPTOR.fields if field.message_type is pb.Column.DESCRIPTOR]
    parts = [part for name in names for part in (getattr(request, name).data, getattr(request, name).offsets)]
    return columns_digest(*parts, *([request.key_table] if "key" in names else []))


def _verdicts(codes: Iterable[int]) -> dict[str, Any]:
    code = np.fromiter(codes, np.uint8)
    index = np.flatnonzero((code != Code.VALID) & (code != Code.INVALID))
    return {
        "items": code.size,
        "valid": np.packbits(code == Code.VALID, bitorder="little").tobytes(),
        "decided": np.packbits(code != Code.UNDECIDED, bitorder="little").tobytes(),
        "problems": pb.Problems(index=index.astype("<u4").tobytes(), code=code[index].tobytes()),
    }


class _Servicer(VerifierServicer):
    def __init__(self, mock: MockVerifier) -> None:
        self._mock = mock

    def GetLimits(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802, ARG002
        return self._mock._limits

    def Verify(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        self._mock._begin(request, context)
        answer = _verdicts(self._mock._verify(_items(request)))
        return self._mock._end(
            pb.VerifyResponse(
                request_id=request.request_id, columns_digest=_digest(request), **answer, **self._mock._label
            )
        )

    def Recover(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        self._mock._begin(request, context)
        if self._mock._recover is None:
            _abort(context, grpc.StatusCode.FAILED_PRECONDITION, "this mock recovers nothing", None)
        codes, keys, addresses = self._mock._recover(_items(request))
        return self._mock._end(
            pb.RecoverResponse(
                request_id=request.request_id,
                columns_digest=_digest(request),
                keys=keys,
                addresses=addresses,
                **_verdicts(codes),
                **self._mock._label,
            )
        )

    def Digest(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        self._mock._begin(request, context)
        hashes = [self._mock._digest(Hash(request.hash), m) for m in _values(request.input, request.items)]
        decided = np.packbits(np.ones(len(hashes), np.uint8), bitorder="little").tobytes()
        return self._mock._end(
            pb.DigestResponse(
                request_id=request.request_id,
                columns_digest=_digest(request),
                items=len(hashes),
                decided=decided,
                digests=b"".join(hashes),
                **self._mock._label,
            )
        )
