"""The ciphers' client for an event loop: the blocking client's calls, in threads.

gRPC's asyncio streams lose the status of a call that ends while a chunk is written: these are the blocking ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import TracebackType
from typing import Any, TypeVar

import grpc
import numpy as np
import numpy.typing as npt

from node_adapter.client._cipher import CipherClient
from node_adapter.client._cipher_jobs import Transformed
from node_adapter.client._cipher_scheme import CipherAlgorithm, CipherScheme, Direction
from node_adapter.client._cipher_stream import CipherStream
from node_adapter.client._columns import Values
from node_adapter.client._scheme import Priority
from node_adapter.client._transport import Retry

__all__ = ["AsyncCipherClient", "AsyncCipherStream"]

T = TypeVar("T")
_END = b""  # parts of a message are never empty


class AsyncCipherStream:
    """A message on its way through the daemon, as CipherStream: `async for part in stream`, `await stream.read()`."""

    def __init__(self, stream: CipherStream, threads: ThreadPoolExecutor) -> None:
        self._stream = stream
        self._threads = threads

    async def __aiter__(self) -> AsyncIterator[bytes]:
        loop = asyncio.get_running_loop()
        parts: Iterator[bytes] = iter(self._stream)
        while part := await loop.run_in_executor(self._threads, next, parts, _END):
            yield part

    async def read(self) -> bytes:
        """The whole message."""
        return b"".join([part async for part in self])

    @property
    def tag(self) -> bytes:
        """At the end of an encryption in GCM, its tag."""
        return self._stream.tag

    @property
    def authentic(self) -> bool:
        """At the end of a decryption in GCM, whether its tag was right."""
        return self._stream.authentic

    def close(self) -> None:
        """Gives the message up, unless it is at its end."""
        self._stream.close()


class AsyncCipherClient:
    """Encrypts and decrypts through a daemon, on an event loop. Arguments, results and errors as `CipherClient`.

    `calls` of them are under way at once; others wait.
    """

    def __init__(
        self,
        target: str,
        *,
        credentials: grpc.ChannelCredentials | None = None,
        timeout_s: float = 30.0,
        retry: Retry | None = None,
        calls: int = 16,
    ) -> None:
        self._client = CipherClient(target, credentials=credentials, timeout_s=timeout_s, retry=retry)
        self._threads = ThreadPoolExecutor(calls, thread_name_prefix="cipher-client")

    async def __aenter__(self) -> AsyncCipherClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends the connection, and the calls that are under way. The daemon keeps the keys until `delete_key`."""
        self._client.close()
        await asyncio.to_thread(self._threads.shutdown, cancel_futures=True)

    async def ciphers(self, timeout_s: float | None = None) -> Any:
        """The daemon's ciphers and limits (GetCiphersResponse)."""
        return await self._run(self._client.ciphers, timeout_s)

    async def create_key(self, algorithm: CipherAlgorithm, key: bytes | bytearray) -> int:
        """Gives the daemon a key and returns its handle."""
        return await self._run(self._client.create_key, algorithm, key)

    async def delete_key(self, key: int, timeout_s: float | None = None) -> None:
        """Has the daemon overwrite a key, once no call has it any more."""
        await self._run(self._client.delete_key, key, timeout_s)

    async def encrypt(
        self, key: int, scheme: CipherScheme, data: bytes, iv: bytes = b"", *, first_block: int = 0
    ) -> bytes:
        """One message of any length in ECB, CTR or CBC, whole blocks in ECB and CBC."""
        return await self._run(partial(self._client.encrypt, first_block=first_block), key, scheme, data, iv)

    async def decrypt(
        self, key: int, scheme: CipherScheme, data: bytes, iv: bytes = b"", *, first_block: int = 0
    ) -> bytes:
        """The inverse of `encrypt`."""
        return await self._run(partial(self._client.decrypt, first_block=first_block), key, scheme, data, iv)

    async def seal(
        self, key: int, scheme: CipherScheme, data: bytes, nonce: bytes, aad: bytes = b""
    ) -> tuple[bytes, bytes]:
        """One message of any length in GCM: its ciphertext and tag. Never use a nonce twice under one key."""
        return await self._run(self._client.seal, key, scheme, data, nonce, aad)

    async def open(
        self, key: int, scheme: CipherScheme, data: bytes, nonce: bytes, tag: bytes, aad: bytes = b""
    ) -> bytes:
        """The inverse of `seal`. Raises AuthenticationError where the tag is wrong, and then gives nothing."""
        return await self._run(self._client.open, key, scheme, data, nonce, tag, aad)

    async def transform(
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
        """Many messages in one call, as `CipherClient.transform`."""
        call = partial(
            self._client.transform,
            key_index=key_index,
            aad=aad,
            tags=tags,
            first_block=first_block,
            priority=priority,
            timeout_s=timeout_s,
            allow_undecided=allow_undecided,
        )
        return await self._run(call, keys, scheme, direction, data, ivs)

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
    ) -> AsyncCipherStream:
        """One message of any length. `chunks` is read in another thread; None as timeout: no deadline."""
        stream = self._client.stream(
            key,
            scheme,
            direction,
            chunks,
            iv=iv,
            aad=aad,
            tag=tag,
            first_block=first_block,
            priority=priority,
            timeout_s=timeout_s,
        )
        return AsyncCipherStream(stream, self._threads)

    async def _run(self, call: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, partial(call, *arguments))
