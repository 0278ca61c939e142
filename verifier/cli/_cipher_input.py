"""The file that is read: its chunks, and whether it may be read twice."""

from __future__ import annotations

import hashlib
import os
import stat
import sys
from collections.abc import Callable, Iterator
from types import TracebackType

from verifier.cli._cipher_names import CipherFileError

__all__ = ["CHUNK_BYTES", "Input"]

CHUNK_BYTES = 1 << 20

Progress = Callable[[int], None]


class Input:
    """A file, or standard input for "-". `size` and `mode` are None where it is not a regular file."""

    def __init__(self, path: str) -> None:
        """Raises OSError, CipherFileError."""
        self.name = "standard input" if path == "-" else path
        self._fd = os.dup(sys.stdin.fileno()) if path == "-" else os.open(path, os.O_RDONLY)
        status = os.fstat(self._fd)
        if stat.S_ISDIR(status.st_mode):
            os.close(self._fd)
            raise CipherFileError(f"{path}: a folder; pack it first, for instance with tar")
        regular = stat.S_ISREG(status.st_mode)
        # Standard input may be a file of which something was read already.
        self._begin = os.lseek(self._fd, 0, os.SEEK_CUR) if regular else 0
        self.size = max(status.st_size - self._begin, 0) if regular else None
        self.mode = status.st_mode if regular else None
        self._digests: list[bytes] = []

    def read(self, nbytes: int) -> bytes:
        """So many bytes, fewer only at the end."""
        parts = []
        while nbytes and (part := os.read(self._fd, nbytes)):
            parts.append(part)
            nbytes -= len(part)
        return b"".join(parts)

    def read_at(self, nbytes: int, offset: int) -> bytes:
        """Bytes of a regular file, without moving on."""
        return os.pread(self._fd, nbytes, self._begin + offset)

    def chunks(self, progress: Progress) -> Iterator[bytes]:
        """What is left, chunk by chunk."""
        while chunk := self.read(CHUNK_BYTES):
            yield chunk
            progress(len(chunk))

    def remember(self, begin: int, end: int, progress: Progress) -> Iterator[bytes]:
        """The bytes of a regular file from `begin` to `end`; `again` gives the same or raises."""
        self._digests.clear()
        for chunk in self._range(begin, end):
            self._digests.append(_digest(chunk))
            yield chunk
            progress(len(chunk))

    def again(self, begin: int, end: int, progress: Progress) -> Iterator[bytes]:
        """The bytes that `remember` gave. Raises CipherFileError where the file was changed meanwhile."""
        digests = iter(self._digests)
        for chunk in self._range(begin, end):
            if _digest(chunk) != next(digests, None):
                raise self._changed()
            yield chunk
            progress(len(chunk))

    def _range(self, begin: int, end: int) -> Iterator[bytes]:
        for at in range(begin, end, CHUNK_BYTES):
            wanted = min(CHUNK_BYTES, end - at)
            chunk = self.read_at(wanted, at)
            if len(chunk) != wanted:
                raise self._changed()
            yield chunk

    def _changed(self) -> CipherFileError:
        return CipherFileError(f"{self.name}: was changed while it was read")

    def __enter__(self) -> Input:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._fd)


def _digest(chunk: bytes) -> bytes:
    return hashlib.blake2b(chunk, digest_size=32).digest()
