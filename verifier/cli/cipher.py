"""`verifier cipher`: encrypts and decrypts files with block ciphers."""

from __future__ import annotations

import contextlib
import enum
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from node_adapter.client import CipherByteOrder, CipherClient
from node_adapter.errors import AdapterError, AuthenticationError
from verifier.ciphers import CIPHERS
from verifier.cli._cipher_job import FileJob
from verifier.cli._cipher_key import KeyFormat
from verifier.cli._cipher_names import CipherFileError, parse_algorithm
from verifier.cli._cipher_session import Target
from verifier.cli._console import complain
from verifier.cli._tls import TlsCa, TlsCertificate, TlsKey
from verifier.errors import VerifierError

__all__ = ["register"]

EXIT_NOT_AUTHENTIC = 1
EXIT_FAILED = 2

app = typer.Typer(
    help="Encrypt and decrypt files with the block ciphers of a daemon, or of this machine.", no_args_is_help=True
)


class ByteOrder(enum.StrEnum):
    """HIGHT's byte orders."""

    low_first = "low-first"
    high_first = "high-first"


Source = Annotated[str, typer.Argument(metavar="IN", help="A file, or - for standard input.", show_default=False)]
Sink = Annotated[str, typer.Argument(metavar="OUT", help="A file, or - for standard output.", show_default=False)]
Algorithm = Annotated[
    str, typer.Option("--algorithm", "-a", help="Cipher and mode, such as sm4-gcm.", show_default=False)
]
KeyFile = Annotated[Path, typer.Option("--key-file", "-k", help="The key, in hexadecimal.", show_default=False)]
KeyForm = Annotated[KeyFormat, typer.Option("--key-format", help="raw: the file is the key's own bytes.")]
AnyKeyMode = Annotated[bool, typer.Option("--any-key-mode", help="Take a key file that others may read or change.")]
Force = Annotated[bool, typer.Option("--force", "-f", help="Replace OUT where there is one.")]
Detached = Annotated[bool, typer.Option("--detached", help="No header: the bare ciphertext, in GCM with its tag.")]
Iv = Annotated[str | None, typer.Option(help="With --detached: the initial vector in hexadecimal.")]
Aad = Annotated[str, typer.Option(help="GCM: text that is authenticated with the file and not kept in it.")]
KnowEcb = Annotated[bool, typer.Option("--i-know-ecb", help="Use ECB, which shows which blocks are equal.")]
Order = Annotated[ByteOrder | None, typer.Option("--byte-order", help="hight: which of its byte orders.")]
Gost = Annotated[bool, typer.Option("--gost-counter", help="kuznyechik-ctr: an iv of half a block (GOST R 34.13).")]
Address = Annotated[str | None, typer.Option("--target", help="A daemon's address. Without it one starts here.")]
Device = Annotated[str, typer.Option(help="Without --target: cpu, cuda:0, ...")]
Insecure = Annotated[bool, typer.Option("--insecure", help="Let the key cross a network without TLS.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar.")]


def register(parent: typer.Typer) -> None:
    """Adds the commands."""
    parent.add_typer(app, name="cipher")


_ENCRYPT = """Encrypt a file. OUT appears when it is whole, or not at all.

Only GCM authenticates. CBC and ECB pad with PKCS#7. The iv is made at random and kept in a header of 32 bytes.
Ends with 2 where something failed.
"""

_DECRYPT = """Decrypt a file. OUT appears when it is whole, and in GCM authentic, or not at all.

The header must say what --algorithm says: whoever changes a file could otherwise choose a mode that authenticates
nothing. Ends with 1 where the tag is wrong, 2 where something else failed.
"""


@app.command(
    "encrypt",
    help=_ENCRYPT,
    epilog="Example: [bold]verifier cipher encrypt -a sm4-gcm -k key.hex ledger.db ledger.db.enc[/bold]",
)
@app.command(
    "decrypt",
    help=_DECRYPT,
    epilog="Example: [bold]verifier cipher decrypt -a sm4-gcm -k key.hex ledger.db.enc ledger.db[/bold]",
)
def file_command(
    context: typer.Context,
    source: Source,
    sink: Sink,
    algorithm: Algorithm,
    key_file: KeyFile,
    key_format: KeyForm = KeyFormat.hex,
    any_key_mode: AnyKeyMode = False,
    force: Force = False,
    detached: Detached = False,
    iv: Iv = None,
    aad: Aad = "",
    i_know_ecb: KnowEcb = False,
    byte_order: Order = None,
    gost_counter: Gost = False,
    target: Address = None,
    device: Device = "auto",
    tls_ca: TlsCa = None,
    tls_certificate: TlsCertificate = None,
    tls_key: TlsKey = None,
    insecure: Insecure = False,
    quiet: Quiet = False,
) -> None:
    """Encrypts or decrypts a file, as the command's name says."""
    with _failures():
        order = CipherByteOrder.UNSPECIFIED
        if byte_order is not None:
            order = CipherByteOrder[byte_order.name.upper()]
        FileJob(
            named=parse_algorithm(algorithm, byte_order=order, gost=gost_counter),
            encrypts=context.info_name == "encrypt",
            source=source,
            sink=sink,
            key_file=key_file,
            key_format=key_format,
            any_key_mode=any_key_mode,
            target=Target(target, device, tls_ca, tls_certificate, tls_key, insecure),
            force=force,
            detached=detached,
            iv=iv,
            aad=aad,
            know_ecb=i_know_ecb,
            quiet=quiet,
        ).run()


@app.command("list")
def list_(
    target: Address = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the ciphers: sizes of keys, blocks and initial vectors in bytes, and modes.

    With --target also which of them the daemon has loaded.

    Example: verifier cipher list --target 127.0.0.1:50051
    """
    with _failures():
        loaded = {}
        if target:
            with CipherClient(target) as client:
                names = list(CIPHERS)
                loaded = {names[cipher.algorithm - 1]: cipher.served_by for cipher in client.ciphers().ciphers}
    rows = [_row(name, loaded.get(name) if target else None) for name in CIPHERS]
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    table = Table(box=None, pad_edge=False)
    headings = ("cipher", "key", "block", "iv by mode", *(("loaded",) if target else ()))
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for row in rows:
        vectors = ", ".join(f"{mode} {size}" for mode, size in row["iv_bytes"].items())
        cells = (row["name"], " ".join(map(str, row["key_bytes"])), str(row["block_bytes"]), vectors)
        table.add_row(*cells, *((row["loaded"] or "no",) if target else ()))
    Console().print(table)


def _row(name: str, loaded: str | None) -> dict[str, Any]:
    cipher = CIPHERS[name]
    row: dict[str, Any] = {
        "name": name.lower().replace("_", "-"),
        "key_bytes": list(cipher.key_bytes),
        "block_bytes": cipher.block_bytes,
        "iv_bytes": {mode.lower(): cipher.iv_bytes(mode) for mode in cipher.modes},
        "plugin": cipher.plugin,
    }
    return row if loaded is None else {**row, "loaded": loaded}


@contextlib.contextmanager
def _failures() -> Iterator[None]:
    """Turns what goes wrong into a message and the exit status."""
    try:
        yield
    except (CipherFileError, AdapterError, VerifierError, OSError) as error:
        complain(_text(error))
        raise typer.Exit(EXIT_NOT_AUTHENTIC if isinstance(error, AuthenticationError) else EXIT_FAILED) from None


def _text(error: Exception) -> str:
    if isinstance(error, BrokenPipeError):
        return "who read the output has gone: it is not whole"
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror}" if error.filename else f"{error.strerror}: OUT was not written"
    return str(error)
