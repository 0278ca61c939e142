"""One file to encrypt or decrypt, from its key file to its place on the disk."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from node_adapter.client import CipherClient, CipherMode
from node_adapter.errors import AdapterError
from verifier.cli._cipher_files import FileCipher
from verifier.cli._cipher_input import Input
from verifier.cli._cipher_key import KeyFormat, read_key
from verifier.cli._cipher_names import CipherFileError, Named
from verifier.cli._cipher_output import ending_by_signal, open_output
from verifier.cli._cipher_session import Target, cipher_client

__all__ = ["FileJob"]


@dataclass(frozen=True, slots=True)
class FileJob:
    """What the command line asks for. `iv` is hexadecimal, and given where `detached` leaves no header to hold it."""

    named: Named
    encrypts: bool
    source: str
    sink: str
    key_file: Path
    key_format: KeyFormat
    any_key_mode: bool
    target: Target
    force: bool
    detached: bool
    iv: str | None
    aad: str
    know_ecb: bool
    quiet: bool

    def run(self) -> None:
        """Raises CipherFileError, OSError, VerifierError and AdapterError; OUT is then as it was."""
        iv = self._checked_iv()
        self._check_options()
        self.target.credentials()  # refuses before anything is read
        key = read_key(self.key_file, self.key_format, self.named, any_mode=self.any_key_mode)
        with (
            ending_by_signal(),
            Input(self.source) as source,
            open_output(self.sink, replace=self.force, source_mode=source.mode) as output,
            cipher_client(self.target, self.named.scheme.cipher) as client,
        ):
            passes = 1 if self.encrypts or not self.named.gcm else 2
            total = None if source.size is None else passes * source.size
            with self._cipher(client, key) as cipher, _progress(total, source.name, self.quiet) as advance:
                work = cipher.encrypt if self.encrypts else cipher.decrypt
                work(source, iv, output, advance)
            output.commit()

    @contextlib.contextmanager
    def _cipher(self, client: CipherClient, key: bytearray) -> Iterator[FileCipher]:
        key_bytes = len(key)
        try:
            handle = client.create_key(self.named.scheme.algorithm, key)
        finally:
            key[:] = bytes(key_bytes)
        try:
            yield FileCipher(client, handle, key_bytes, self.named, self.aad.encode(), self.detached)
        finally:
            with contextlib.suppress(AdapterError):  # a daemon that is gone has no key either
                client.delete_key(handle)

    def _check_options(self) -> None:
        if self.named.scheme.mode is CipherMode.ECB and not self.know_ecb:
            raise CipherFileError(
                f"--algorithm {self.named.name}: ECB shows which blocks of a file are equal: use GCM, or say "
                "--i-know-ecb"
            )
        if self.aad and not self.named.gcm:
            raise CipherFileError(f"--aad: {self.named.name} authenticates nothing; GCM does")

    def _checked_iv(self) -> bytes:
        wanted = self.named.scheme.iv_bytes
        if not self.detached:
            if self.iv is not None:
                raise CipherFileError("--iv: only with --detached; otherwise it is random, and the header has it")
            return os.urandom(wanted)
        try:
            iv = bytes.fromhex(self.iv or "")
        except ValueError:
            raise CipherFileError("--iv: not hexadecimal") from None
        if len(iv) != wanted:
            raise CipherFileError(f"--iv: {len(iv)} bytes; {self.named.name} takes {wanted} with --detached")
        return iv


@contextlib.contextmanager
def _progress(total: int | None, name: str, quiet: bool) -> Iterator[Callable[[int], None]]:
    """A bar on standard error, where that is a terminal."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    hidden = quiet or not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=hidden) as progress:
        task = progress.add_task(name, total=total)
        yield lambda nbytes: progress.advance(task, nbytes)
