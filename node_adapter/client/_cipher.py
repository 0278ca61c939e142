"""The blocking client of the daemon's block ciphers."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import grpc
import numpy as np
import numpy.typing as npt

from node_adapter.client._cipher_scheme import CipherAlgorithm, CipherMode, CipherScheme, Direction, pb
from node_adapter.client._cipher_stream import CipherStream
from node_adapter.client._columns import Column, Values, pack
from node_adapter.client._scheme import Priority
from node_adapter.client._transport import CHANNEL_OPTIONS, Retry, failure, may_retry, retry_after_s
from node_adapter.errors import AnswerError, AuthenticationError, RequestError, UndecidedError
from verifier.ciphers import GCM_TAG_BYTES
from verifier.v1 import cipher_pb2_grpc

__all__ = ["CipherClient", "Transformed"]

_STREAM_CHUNK = 4 << 20
_WRONG_TAG = "the tag is wrong: the message, its nonce, key or associated data was changed"
_OVERHEAD = 1 << 16  # of a request's bytes that are not data: nonces, lengths, cells that are not full


@dataclass(frozen=True, slots=True)
class Transformed:
    """Messages of one call. A message that is not valid has no bytes: its tag is wrong, or it is undecided."""

    data: npt.NDArray[np.uint8]
    offsets: npt.NDArray[np.int64]
    tags: npt.NDArray[np.uint8]  # (items, 16) of an encryption in GCM
    valid: npt.NDArray[np.bool_]
    decided: npt.NDArray[np.bool_]
    served_by: str

    def __len__(self) -> int:
        return self.valid.size

    def __getitem__(self, item: int) -> bytes:
        begin, end = self.offsets[item : item + 2]
        return self.data[begin:end].tobytes()


class CipherClient:
    """Encrypts and decrypts through a daemon, which holds the keys.

        with CipherClient("localhost:50051", credentials=tls) as client:
            key = client.create_key(CipherAlgorithm.SM4, secret)
            body, tag = client.seal(key, scheme, b"...", nonce)

    A key travels once, in CreateKey: use TLS or a Unix socket. A handle is known to the daemon that gave it alone, so
    `target` is one daemon. Safe to use from several threads. Every call raises RequestError, RefusedError
    (NotServedError where the cipher's plugin is not loaded), DeadlineError, CapacityError, UnavailableError; decryption
    in GCM raises AuthenticationError where the tag is wrong.
    """

    def __init__(
        self,
        target: str,
        *,
        credentials: grpc.ChannelCredentials | None = None,
        timeout_s: float = 30.0,
        retry: Retry | None = None,
    ) -> None:
        # A handle is one daemon's: unlike verification, calls do not go round the target's addresses.
        options = [option for option in CHANNEL_OPTIONS if option[0] != "grpc.service_config"]
        self._channel = (
            grpc.secure_channel(target, credentials, options)
            if credentials
            else grpc.insecure_channel(target, options)
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
        _require(scheme, gcm=True)
        if len(data) + len(aad) <= self._unary_bytes():
            sealed = self.transform(key, scheme, Direction.ENCRYPT, [data], [nonce], aad=[aad])
            return sealed[0], sealed.tags[0].tobytes()
        with self.stream(key, scheme, Direction.ENCRYPT, _chunks(data), iv=nonce, aad=aad) as stream:
            body = b"".join(stream)
            return body, stream.tag

    def open(self, key: int, scheme: CipherScheme, data: bytes, nonce: bytes, tag: bytes, aad: bytes = b"") -> bytes:
        """The inverse of `seal`. Raises AuthenticationError where the tag is wrong, and then gives nothing."""
        _require(scheme, gcm=True)
        if len(data) + len(aad) <= self._unary_bytes():
            opened = self.transform(key, scheme, Direction.DECRYPT, [data], [nonce], aad=[aad], tags=[tag])
            if not opened.valid[0]:
                raise AuthenticationError(_WRONG_TAG)
            return opened[0]
        with self.stream(key, scheme, Direction.AUTHENTICATE, _chunks(data), iv=nonce, aad=aad, tag=tag) as stream:
            b"".join(stream)
            if not stream.authentic:
                raise AuthenticationError(_WRONG_TAG)
        counters = CipherScheme(scheme.algorithm, CipherMode.CTR, plugin=scheme.plugin)
        return self._one(key, counters, Direction.DECRYPT, data, nonce + bytes(3) + b"\2", 0)

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
        handles = [keys] if isinstance(keys, int) else list(keys)
        column = pack("data", data, None)
        items = column.items
        request = pb.TransformRequest(
            request_id=next(self._ids),
            items=items,
            scheme=scheme.message(direction),
            keys=handles,
            key_index=b"" if key_index is None else np.asarray(key_index).astype("<u4").tobytes(),
            data=column.cut(0, items),
            first_block=first_block,
            priority=priority,
        )
        if scheme.iv_bytes:
            request.iv.CopyFrom(_fixed("iv", ivs, scheme.iv_bytes, items).cut(0, items))
        if aad is not None:
            request.aad.CopyFrom(pack("aad", aad, None, items).cut(0, items))
        if tags is not None:
            request.tags = _fixed("tags", tags, GCM_TAG_BYTES, items).data.tobytes()
        answer = self._call("Transform", request, timeout_s)
        result = _transformed(answer, items)
        if not allow_undecided and not result.decided.all():
            error = UndecidedError(f"{int((~result.decided).sum())} of {items} messages are undecided")
            error.result = result
            raise error
        return result

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
        _require(scheme, gcm=False)
        if len(data) <= self._unary_bytes():
            return self.transform(
                key, scheme, direction, [data], [iv] if scheme.iv_bytes else None, first_block=first_block
            )[0]
        with self.stream(key, scheme, direction, _chunks(data), iv=iv, first_block=first_block) as stream:
            return b"".join(stream)

    def _unary_bytes(self) -> int:
        if self._limits is None:
            self._limits = self.ciphers()
        return int(self._limits.max_batch_bytes) - _OVERHEAD

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
                    late = f"no daemon answered at {self._target} within {seconds:.3g} s"
                    raise failure(error.code(), error.details() or "", late) from None
                time.sleep(delay)
        raise AssertionError("the loop ends by itself")


def _chunks(data: bytes) -> Iterator[bytes]:
    view = memoryview(data)
    return (bytes(view[at : at + _STREAM_CHUNK]) for at in range(0, len(view), _STREAM_CHUNK))


def _require(scheme: CipherScheme, *, gcm: bool) -> None:
    if (scheme.mode is CipherMode.GCM) != gcm:
        calls = "`encrypt` and `decrypt`" if gcm else "`seal` and `open`"
        raise RequestError("scheme.mode", f"{scheme.mode.name} goes through {calls}")


def _fixed(name: str, values: Values | None, width: int, items: int) -> Column:
    column = pack(name, values if values is not None else b"", width, items)
    if column.offsets is not None:
        raise RequestError(name, f"every value has {width} bytes in this scheme")
    return column


def _transformed(answer: Any, items: int) -> Transformed:
    if answer.items != items:
        raise AnswerError(f"{answer.items} items came back of {items}")
    offsets = np.frombuffer(answer.data.offsets, "<u4").astype(np.int64)
    data = np.frombuffer(answer.data.data, np.uint8)
    fits = offsets.size == items + 1 and offsets[0] == 0 and offsets[-1] == data.size
    if not fits or (np.diff(offsets) < 0).any() or 8 * min(len(answer.valid), len(answer.decided)) < items:
        raise AnswerError("the answer's columns are not those of its items")
    valid, decided = (
        np.unpackbits(np.frombuffer(bits, np.uint8), count=items, bitorder="little").astype(np.bool_)
        for bits in (answer.valid, answer.decided)
    )
    tags = np.frombuffer(answer.tags, np.uint8).reshape(-1, GCM_TAG_BYTES)
    return Transformed(data, offsets, tags, valid & decided, decided, answer.served_by)
