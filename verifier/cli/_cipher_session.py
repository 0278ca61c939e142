"""A client of ciphers for the length of one command: of a daemon, or of one started here."""

from __future__ import annotations

import contextlib
import ipaddress
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc

from node_adapter.client import CipherClient
from node_adapter.local import private_overrides
from verifier.ciphers import Cipher
from verifier.cli._cipher_names import CipherFileError
from verifier.config import load_settings

__all__ = ["Target", "cipher_client"]


@dataclass(frozen=True, slots=True)
class Target:
    """Which daemon. `address` None: one that is started here, on `device`."""

    address: str | None = None
    device: str = "auto"
    ca_file: Path | None = None
    certificate_file: Path | None = None
    key_file: Path | None = None
    insecure: bool = False

    def credentials(self) -> grpc.ChannelCredentials | None:
        """TLS where files for it are named. Raises OSError; CipherFileError where a key would travel in the clear."""
        if (self.certificate_file is None) != (self.key_file is None):
            raise CipherFileError("--tls-certificate and --tls-key belong together")
        if self.ca_file or self.certificate_file:
            return grpc.ssl_channel_credentials(
                *(
                    path.read_bytes() if path else None
                    for path in (self.ca_file, self.key_file, self.certificate_file)
                )
            )
        if self.address and not self.insecure and not _stays_here(self.address):
            raise CipherFileError(
                f"--target {self.address}: the key would travel in the clear: name --tls-ca, or say --insecure"
            )
        return None


@contextlib.contextmanager
def cipher_client(target: Target, cipher: Cipher) -> Iterator[CipherClient]:
    """Raises CipherFileError, VerifierError where no daemon can be started."""
    credentials = target.credentials()
    if target.address:
        with CipherClient(target.address, credentials=credentials) as client:
            yield client
        return
    from verifier.daemon import Daemon

    with tempfile.TemporaryDirectory(prefix="verifier-") as folder:  # its mode keeps others from the socket
        overrides = private_overrides(
            {"load": [cipher.plugin]},
            server={"listen": [f"unix:{folder}/cipher.sock"], "processes": 1},
            health={"listen": []},
            devices={"use": [target.device]},
            scheduling={"measure": False},
        )
        with Daemon(load_settings(overrides=overrides)) as daemon, CipherClient(daemon.addresses[0]) as client:
            yield client


def _stays_here(address: str) -> bool:
    if address.startswith("unix:"):
        return True
    host = address.removeprefix("dns:///").rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
