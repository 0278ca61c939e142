"""`verifier verify`: verifies what real systems signed, file by file."""

from __future__ import annotations

import enum
import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated

import grpc
import typer
from rich.console import Console

from node_adapter.client import VerifierClient
from node_adapter.errors import AdapterError, FormatError
from node_adapter.formats import fisco
from verifier.cli._blocks import verify_blocks
from verifier.cli._certificates import CertificateOptions, needed_plugins, read_certificates, verify_certificates
from verifier.cli._console import complain
from verifier.cli._formats import BlockFormat, ChainId, Crypto, SpentFile, block_plugins, block_reader
from verifier.cli._local import daemon_address
from verifier.cli._tls import TlsCa, TlsCertificate, TlsKey, credentials
from verifier.errors import VerifierError

__all__ = ["Format", "register"]

EXIT_INVALID = 1  # something is not validly signed
EXIT_FAILED = 2  # a file cannot be read, or no daemon answers


class Format(enum.StrEnum):
    """What the files hold: certificates, or one of the block formats."""

    x509 = "x509"
    ethereum = "ethereum"
    fabric = "fabric"
    bitcoin = "bitcoin"
    fisco = "fisco"
    chainmaker = "chainmaker"


class Za(enum.StrEnum):
    """How SM2 signatures hash their message."""

    default = "default"
    none = "none"


def register(app: typer.Typer) -> None:
    """Adds the command."""

    @app.command()
    def verify(
        files: Annotated[list[Path], typer.Argument(help="Files to verify.", show_default=False)],
        format_: Annotated[Format, typer.Option("--format", help="What the files hold.", show_default=False)],
        address: Annotated[
            str | None,
            typer.Option(help="A daemon's host:port, or several's. Without it one is started for this run."),
        ] = None,
        tls_ca: TlsCa = None,
        tls_certificate: TlsCertificate = None,
        tls_key: TlsKey = None,
        sm2_za: Annotated[
            Za, typer.Option(help="x509: none if SM2 signatures are over SM3(TBS), without the signer's ZA.")
        ] = Za.default,
        sm2_user_id: Annotated[
            str | None,
            typer.Option(help="x509: the signers' SM2 user id. [default: 1234567812345678]", show_default=False),
        ] = None,
        all_pairs: Annotated[bool, typer.Option(help="x509: try every certificate as every other's issuer.")] = False,
        chain_id: ChainId = None,
        spent: SpentFile = None,
        crypto: Crypto = fisco.Crypto.sm2,
        timeout: Annotated[float, typer.Option(min=0.1, help="Seconds that a batch may take.")] = 120.0,
        brief: Annotated[bool, typer.Option("--brief", help="Print what is not plainly valid, and totals.")] = False,
        as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
    ) -> None:
        """Verify the signatures in files of real systems, through a daemon.

        x509: certificates signed with SM2 or ECDSA, PEM or DER, several in a file; says who signed whom.
        ethereum: blocks in RLP, or era1 files. fabric: block files of a ledger, or Block messages. bitcoin: one block
        a file, or a node's blk*.dat; outputs of earlier files are known to later ones. fisco: blocks or transactions
        of FISCO BCOS 3 or 2 in JSON. chainmaker: Block or Transaction messages, or lines of JSON with message,
        signature in DER and signer.

        Ends with 0 if every signature is valid and every certificate has an issuer among the files. 1: something is
        not validly signed, or cannot be verified. 2: a file cannot be read to its end, nothing is in it, or no daemon
        answers.

        Examples:

          verifier verify --format ethereum --brief mainnet-00000-5ec1ffb8.era1

          verifier verify --format bitcoin --spent spent.json block

          verifier verify --format x509 --json ca.crt node.crt
        """
        console = Console(quiet=as_json)
        options = CertificateOptions(
            None if sm2_user_id is None else sm2_user_id.encode(), sm2_za is Za.default, all_pairs
        )

        with _failures():
            connect = partial(
                _client, address, timeout_s=timeout, credentials=credentials(tls_ca, tls_certificate, tls_key)
            )
            if format_ is Format.x509:
                certificates = read_certificates(files)
                with connect(needed_plugins(certificates, options)) as client:
                    found, good = verify_certificates(client, certificates, options, console)
                broken = None
            else:
                blocks = BlockFormat(format_.value)
                read = block_reader(blocks, chain_id=chain_id, spent=spent, crypto=crypto)
                with connect(block_plugins(blocks, crypto)) as client:
                    found, good, broken = verify_blocks(client, files, read, console, brief=brief)
            if as_json:
                typer.echo(json.dumps({"format": format_.value, "ok": good, **found}, indent=2, ensure_ascii=False))
            if broken:
                raise broken
        raise typer.Exit(0 if good else EXIT_INVALID)


@contextmanager
def _client(
    address: str | None, plugins: tuple[str, ...], *, timeout_s: float, credentials: grpc.ChannelCredentials | None
) -> Iterator[VerifierClient]:
    with (
        daemon_address(address, plugins) as target,
        VerifierClient(target, timeout_s=timeout_s, credentials=credentials if address else None) as client,
    ):
        yield client


@contextmanager
def _failures() -> Iterator[None]:
    """Turns what goes wrong into a message and the exit status."""
    try:
        yield
    except (AdapterError, VerifierError, OSError) as error:
        complain(error, "cannot be read" if isinstance(error, FormatError | OSError) else "error")
        raise typer.Exit(EXIT_FAILED) from None
