"""A file that appears whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import signal
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType, TracebackType

from verifier.cli._cipher_names import CipherFileError

__all__ = ["FileOutput", "StandardOutput", "ending_by_signal", "open_output"]

_PRIVATE = 0o600


class FileOutput:
    """Writes without a name where the file system can (O_TMPFILE), so that no end of the process, whichever, leaves
    anything; elsewhere to a temporary file in the same folder, which is removed. `commit` gives it its name."""

    def __init__(self, path: Path, *, replace: bool, mode: int) -> None:
        """Raises CipherFileError where there is a file that may not be replaced, OSError."""
        self._path = Path(os.path.realpath(path))  # a link's target is what is meant
        self._replace = replace
        _check_target(self._path, replace)
        self._folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY)
        self._temporary: str | None = None
        try:
            self._fd = self._open()
            os.fchmod(self._fd, mode)
        except BaseException:
            self._remove()
            os.close(self._folder)
            raise

    def _open(self) -> int:
        try:
            return os.open(".", os.O_TMPFILE | os.O_WRONLY, _PRIVATE, dir_fd=self._folder)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL):
                raise
        self._temporary = self._name()
        return os.open(self._temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE, dir_fd=self._folder)

    def _name(self) -> str:
        return f".{self._path.name[:200]}.{secrets.token_hex(8)}"

    def write(self, data: bytes) -> None:
        """Appends. Raises OSError, for instance where the disk is full."""
        _write_all(self._fd, data)

    def commit(self) -> None:
        """The file is on the disk, and has its name, when this returns. Raises OSError, CipherFileError."""
        os.fsync(self._fd)
        if self._temporary is None:
            if not self._replace:
                self._link(self._path.name)
                os.fsync(self._folder)
                return
            name = self._name()
            self._link(name)
            self._temporary = name
        _check_target(self._path, self._replace)
        os.replace(self._temporary, self._path.name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        self._temporary = None
        os.fsync(self._folder)

    def _link(self, name: str) -> None:
        try:
            os.link(
                f"/proc/self/fd/{self._fd}",
                name,
                src_dir_fd=self._folder,
                dst_dir_fd=self._folder,
                follow_symlinks=True,
            )
        except FileExistsError:
            raise CipherFileError(f"{self._path}: came into being meanwhile; --force replaces it") from None

    def _remove(self) -> None:
        if self._temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(self._temporary, dir_fd=self._folder)
            self._temporary = None

    def __enter__(self) -> FileOutput:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._fd)
        self._remove()
        os.close(self._folder)


class StandardOutput:
    """Standard output. What was written cannot be taken back."""

    def __init__(self) -> None:
        """Raises CipherFileError where it is a terminal."""
        self._fd = sys.stdout.fileno()
        if os.isatty(self._fd):
            raise CipherFileError("standard output is a terminal: name a file, or pipe it on")

    def write(self, data: bytes) -> None:
        """Writes on. Raises OSError."""
        _write_all(self._fd, data)

    def commit(self) -> None:
        """Nothing is left to do."""

    def __enter__(self) -> StandardOutput:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


def open_output(path: str, *, replace: bool, source_mode: int | None) -> FileOutput | StandardOutput:
    """The file at `path`, with the mode of what it is made from, or its owner's alone; standard output for "-"."""
    if path == "-":
        return StandardOutput()
    return FileOutput(Path(path), replace=replace, mode=_PRIVATE if source_mode is None else source_mode & 0o666)


@contextlib.contextmanager
def ending_by_signal() -> Iterator[None]:
    """SIGTERM and SIGHUP end the block by SystemExit, so that what it opened is closed and removed."""

    def end(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _check_target(path: Path, replace: bool) -> None:
    try:
        status = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISREG(status.st_mode):
        raise CipherFileError(f"{path}: not a regular file; write to - and redirect it there")
    if not replace:
        raise CipherFileError(f"{path}: exists; --force replaces it")


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
