"""The blocking client of the daemon's block ciphers."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any

import grpc
import numpy as np
import numpy.typing as npt

from node_adapter.client._cipher_jobs import (
    ONE_DAEMON_OPTIONS,
    Transformed,
    check_authentic,
    check_decided,
    chunks_of,
    require,
    transform_request,
    transformed,
    unary_bytes,
)
from node_adapter.client._cipher_scheme import CipherAlgorithm, CipherScheme, Direction, pb
from node_adapter.client._cipher_stream import CipherStream
from node_adapter.client._columns import Values
from node_adapter.client._scheme import Priority
from node_adapter.client._transport import REASON_S, Retry, failure, may_retry, nobody_answered, retry_after_s
from verifier.v1 import cipher_pb2_grpc

__all__ = ["CipherClient"]


class CipherClient:
    """Encrypts and decrypts through a daemon, which holds the keys.

        with CipherClient("localhost:50051", credentials=tls) as client:
            key = client.create_key(CipherAlgorithm.SM4, secret)
            body, tag = client.seal(key, scheme, b"...", nonce)

    A key travels once, in CreateKey: use TLS or a Unix socket. A handle is known to the daemon that gave it alone, so
    `target` is one daemon. Safe to use from several threads. Every call raises RequestError, RefusedError
    (NotServedError where the cipher's plugin is not loaded), DeadlineError, CapacityError, UnavailableError;
    decryption in GCM raises AuthenticationError where the tag is wrong.
    """

    def __init__(
        self,
        target: str,
        *,
        credentials: grpc.ChannelCredentials | None = None,
        timeout_s: float = 30.0,
        retry: Retry | None = None,
    ) -> None:
        self._channel = (
            grpc.secure_channel(target, credentials, ONE_DAEMON_OPTIONS)
            if credentials
            else grpc.insecure_channel(target, ONE_DAEMON_OPTIONS)
        )
        stub: Any = cipher_pb2_grpc.CipherServiceStub
        self._stub = stub(self._channel)
        self._target = target
        self._timeout_s = timeout_s
        self._retry = retry or Retry()
        self._ids = itertools.count(1)
        self._limits: Any = None

    def __enter__(self) -> CipherClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connection. The daemon keeps the keys until `delete_key`."""
        self._channel.close()

    def ciphers(self, timeout_s: float | None = None) -> Any:
        """The daemon's ciphers and limits (GetCiphersResponse)."""
        return self._call("GetCiphers", pb.GetCiphersRequest(), timeout_s)

    def create_key(self, algorithm: CipherAlgorithm, key: bytes | bytearray) -> int:
        """Gives the daemon a key and returns its handle."""
        request = pb.CreateKeyRequest(algorithm=algorithm, key=bytes(key))
        return int(self._call("CreateKey", request, None, repeat=False).key)

    def delete_key(self, key: int, timeout_s: float | None = None) -> None:
        """Has the daemon overwrite a key, once no call has it any more."""
        self._call("DeleteKey", pb.DeleteKeyRequest(key=key), timeout_s, repeat=False)

    def encrypt(self, key: int, scheme: CipherScheme, data: bytes, iv: bytes = b"", *, first_block: int = 0) -> bytes:
        """One message of any length in ECB, CTR or CBC, whole blocks in ECB and CBC."""
        return self._one(key, scheme, Direction.ENCRYPT, data, iv, first_block)

    def decrypt(self, key: int, scheme: CipherScheme, data: bytes, iv: bytes = b"", *, first_block: int = 0) -> bytes:
        """The inverse of `encrypt`."""
        return self._one(key, scheme, Direction.DECRYPT, data, iv, first_block)

    def seal(
        self, key: int, scheme: CipherScheme, data: bytes, nonce: bytes, aad: bytes = b""
    ) -> tuple[bytes, bytes]:
        """One message of any length in GCM: its ciphertext and tag. Never use a nonce twice under one key."""
        require(scheme, gcm=True)
        if len(data) + len(aad) <= self._unary_bytes():
            sealed = self.transform(key, scheme, Direction.ENCRYPT, [data], [nonce], aad=[aad])
            return sealed[0], sealed.tags[0].tobytes()
        with self.stream(key, scheme, Direction.ENCRYPT, chunks_of(data), iv=nonce, aad=aad) as stream:
            body = b"".join(stream)
            return body, stream.tag

    def open(self, key: int, scheme: CipherScheme, data: bytes, nonce: bytes, tag: bytes, aad: bytes = b"") -> bytes:
        """The inverse of `seal`. Raises AuthenticationError where the tag is wrong, and then gives nothing."""
        require(scheme, gcm=True)
        if len(data) + len(aad) <= self._unary_bytes():
            opened = self.transform(key, scheme, Direction.DECRYPT, [data], [nonce], aad=[aad], tags=[tag])
            check_authentic(bool(opened.valid[0]))
            return opened[0]
        with self.stream(key, scheme, Direction.AUTHENTICATE, chunks_of(data), iv=nonce, aad=aad, tag=tag) as stream:
            b"".join(stream)
            check_authentic(stream.authentic)
        counters, first = scheme.behind_tag(nonce)
        return self._one(key, counters, Direction.DECRYPT, data, first, 0)

    def transform(
        self,
        keys: int | Sequence[int],
        scheme: CipherScheme,
        direction: Direction,
        data: Values,
        ivs: Values | None = None,
        *,
        key_index: npt.NDArray[np.uint32] | None = None,
        aad: Values | None = None,
        tags: Values | None = None,
        first_block: int = 0,
        priority: Priority = Priority.POOL,
        timeout_s: float | None = None,
        allow_undecided: bool = False,
    ) -> Transformed:
        """Many messages in one call, each under `keys[key_index[i]]`, or all under one key.

        Fields are lists of bytes, arrays, or columns, as for VerifierClient. A wrong tag is one message's verdict:
        look at `valid`. Raises UndecidedError where some message stayed undecided, unless `allow_undecided`.
        """
        request = transform_request(
            next(self._ids),
            keys,
            scheme,
            direction,
            data,
            ivs,
            key_index=key_index,
            aad=aad,
            tags=tags,
            first_block=first_block,
            priority=priority,
        )
        return check_decided(transformed(self._call("Transform", request, timeout_s), request.items), allow_undecided)

    def stream(
        self,
        key: int,
        scheme: CipherScheme,
        direction: Direction,
        chunks: Iterable[bytes],
        *,
        iv: bytes = b"",
        aad: bytes = b"",
        tag: bytes = b"",
        first_block: int = 0,
        priority: Priority = Priority.BULK,
        timeout_s: float | None = None,
    ) -> CipherStream:
        """One message of any length, in chunks of at most GetCiphers' `max_chunk_bytes`. None: no deadline."""
        begin = pb.TransformBegin(
            scheme=scheme.message(direction),
            key=key,
            iv=iv,
            aad=aad,
            tag=tag,
            first_block=first_block,
            priority=priority,
        )
        late = f"the message was not done by {self._target} in time"
        return CipherStream(self._stub.TransformStream, begin, chunks, timeout_s, late)

    def _one(
        self, key: int, scheme: CipherScheme, direction: Direction, data: bytes, iv: bytes, first_block: int
    ) -> bytes:
        require(scheme, gcm=False)
        if len(data) <= self._unary_bytes():
            return self.transform(
                key, scheme, direction, [data], [iv] if scheme.iv_bytes else None, first_block=first_block
            )[0]
        with self.stream(key, scheme, direction, chunks_of(data), iv=iv, first_block=first_block) as stream:
            return b"".join(stream)

    def _unary_bytes(self) -> int:
        if self._limits is None:
            self._limits = self.ciphers()
        return unary_bytes(self._limits)

    def _call(self, method: str, request: Any, timeout_s: float | None, *, repeat: bool = True) -> Any:
        """A call; where the daemon is full or away and `repeat` allows it, again."""
        seconds = self._timeout_s if timeout_s is None else timeout_s
        deadline = time.monotonic() + seconds
        for attempt in itertools.count():
            try:
                left = max(0.0, deadline - time.monotonic())
                return getattr(self._stub, method)(request, timeout=left, wait_for_ready=True)
            except grpc.RpcError as error:
                delay = self._retry.delay_s(attempt, retry_after_s(error.trailing_metadata()))
                again = repeat and may_retry(error.code()) and attempt + 1 < self._retry.attempts
                if not again or time.monotonic() + delay > deadline:
                    reason = self._reason() if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED else ""
                    late = nobody_answered(self._target, seconds, reason)
                    raise failure(error.code(), error.details() or "", late) from None
                time.sleep(delay)
        raise AssertionError("the loop ends by itself")

    def _reason(self) -> str:
        """Why nobody is there, where gRPC knows it."""
        try:
            self._stub.GetCiphers(pb.GetCiphersRequest(), timeout=REASON_S)
        except grpc.RpcError as error:
            return str(error.details()) if error.code() is grpc.StatusCode.UNAVAILABLE else ""
        return ""
