"""TLS towards a daemon: the credentials that a command's options name."""

from __future__ import annotations

from pathlib import Path

import grpc
import typer

__all__ = ["credentials"]


def credentials(ca: Path | None, certificate: Path | None, key: Path | None) -> grpc.ChannelCredentials | None:
    """None without files. Raises BadParameter where one is missing, OSError where one cannot be read."""
    if (certificate is None) != (key is None) or (certificate and not ca):
        raise typer.BadParameter("a certificate needs its key and --tls-ca", param_hint="--tls-certificate")
    if ca is None:
        return None
    return grpc.ssl_channel_credentials(*(path.read_bytes() if path else None for path in (ca, key, certificate)))
