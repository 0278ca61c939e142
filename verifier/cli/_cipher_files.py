"""Encrypts and decrypts files through a daemon, in chunks.

Decryption in GCM reads its file twice: the first time the daemon checks the tag and gives nothing, the second time it
decrypts, and only chunks that are those of the first time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from node_adapter.client import CipherClient, Direction
from node_adapter.errors import AuthenticationError
from verifier.ciphers import GCM_TAG_BYTES
from verifier.cli._cipher_input import Input
from verifier.cli._cipher_names import HEADER_BYTES, CipherFileError, Header, Named

__all__ = ["FileCipher", "Output"]

Progress = Callable[[int], None]


class Output(Protocol):
    """Where the result goes."""

    def write(self, data: bytes) -> None:
        """Appends."""


@dataclass(frozen=True, slots=True)
class FileCipher:
    """An algorithm under a key that a daemon holds. Without `detached` files have a header.

    Raises CipherFileError, AuthenticationError, OSError, and what CipherClient raises.
    """

    client: CipherClient
    key: int
    key_bytes: int
    named: Named
    aad: bytes = b""
    detached: bool = False

    def encrypt(self, source: Input, iv: bytes, output: Output, progress: Progress) -> None:
        """Everything that `source` has."""
        named, block = self.named, self.named.scheme.cipher.block_bytes
        if not self.detached:
            output.write(Header(named.scheme, self.key_bytes, iv).pack())
        chunks = source.chunks(progress)
        if named.padded:
            chunks = _padded(chunks, block)
        with self.client.stream(self.key, named.scheme, Direction.ENCRYPT, chunks, iv=iv, aad=self.aad) as stream:
            for data in stream:
                output.write(data)
            if named.gcm:
                output.write(stream.tag)

    def decrypt(self, source: Input, iv: bytes, output: Output, progress: Progress) -> None:
        """Everything that `source` has; `iv` counts where there is no header."""
        begin = 0
        if not self.detached:
            header = Header.parse(source.read(HEADER_BYTES), source.name)
            header.check(self.named, self.key_bytes, source.name)
            iv, begin = header.iv, HEADER_BYTES
        if self.named.gcm:
            self._open(source, begin, iv, output, progress)
            return
        scheme, block = self.named.scheme, self.named.scheme.cipher.block_bytes
        chunks = source.chunks(progress)
        with self.client.stream(self.key, scheme, Direction.DECRYPT, chunks, iv=iv) as stream:
            for data in _unpadded(stream, block, source.name) if self.named.padded else stream:
                output.write(data)

    def _open(self, source: Input, begin: int, iv: bytes, output: Output, progress: Progress) -> None:
        if source.size is None:
            raise CipherFileError(
                f"{source.name}: not a file that can be read twice, which {self.named.name} needs: nothing is "
                "decrypted before the whole of it was authenticated"
            )
        end = source.size - GCM_TAG_BYTES
        if end < begin:
            raise CipherFileError(f"{source.name}: {source.size} bytes have no room for a tag of {GCM_TAG_BYTES}")
        tag = source.read_at(GCM_TAG_BYTES, end)
        first = source.remember(begin, end, progress)
        with self.client.stream(
            self.key, self.named.scheme, Direction.AUTHENTICATE, first, iv=iv, aad=self.aad, tag=tag
        ) as stream:
            _drain(stream)
            if not stream.authentic:
                raise AuthenticationError(
                    f"{source.name}: the tag is wrong: it was changed or cut, or the key or the associated data is "
                    "another"
                )
        scheme, counter = self.named.scheme.behind_tag(iv)
        second = source.again(begin, end, progress)
        with self.client.stream(self.key, scheme, Direction.DECRYPT, second, iv=counter) as stream:
            for data in stream:
                output.write(data)


def _drain(stream: Iterable[bytes]) -> None:
    for _ in stream:
        pass


def _padded(chunks: Iterator[bytes], block: int) -> Iterator[bytes]:
    """PKCS#7: n bytes of value n, so many that the last block is full, a whole block where it was."""
    length = 0
    for chunk in chunks:
        length += len(chunk)
        yield chunk
    count = block - length % block
    yield bytes([count]) * count


def _unpadded(parts: Iterable[bytes], block: int, where: str) -> Iterator[bytes]:
    kept = b""
    for part in parts:
        kept += part
        whole = max(len(kept) - block, 0)
        yield kept[:whole]
        kept = kept[whole:]
    count = kept[-1] if kept else 0
    if len(kept) != block or not 1 <= count <= block or kept[-count:] != bytes([count]) * count:
        raise CipherFileError(f"{where}: the padding is wrong: the key is another, or the file was changed or cut")
    yield kept[:-count]
