"""TLS towards a daemon: the options of a command, and the credentials that they name."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import grpc
import typer

__all__ = ["TlsCa", "TlsCertificate", "TlsKey", "credentials"]

TlsCa = Annotated[
    Path | None, typer.Option(help="Speak TLS with a daemon whose certificate this authority (PEM) signed.")
]
TlsCertificate = Annotated[Path | None, typer.Option(help="One's own certificate (PEM), to show.")]
TlsKey = Annotated[Path | None, typer.Option(help="The certificate's key (PEM).")]


def credentials(ca: Path | None, certificate: Path | None, key: Path | None) -> grpc.ChannelCredentials | None:
    """None without files. Raises BadParameter where one is missing, OSError where one cannot be read."""
    if (certificate is None) != (key is None) or (certificate and not ca):
        raise typer.BadParameter("a certificate needs its key and --tls-ca", param_hint="--tls-certificate")
    if ca is None:
        return None
    return grpc.ssl_channel_credentials(*(path.read_bytes() if path else None for path in (ca, key, certificate)))
