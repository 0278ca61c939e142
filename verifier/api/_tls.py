"""A listener's certificates, read anew when their files change.

gRPC asks for the certificates before every handshake. The files are read each time and compared with what was read
last: a time stamp may stay the same through two changes, contents do not. Connections that are open keep what they
began with.
"""

from __future__ import annotations

import datetime
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import grpc
import structlog
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

from verifier.config import Settings
from verifier.errors import ConfigError

__all__ = ["Tls", "TlsObserver"]

_log = structlog.get_logger(__name__)

# Told of every reading: whether it was taken over, and when what is used now expires (seconds since the epoch).
TlsObserver = Callable[[bool, float], None]


def _nobody(taken: bool, expires: float) -> None:
    """Nobody wants to know."""


@dataclass(frozen=True, slots=True)
class _Files:
    """The contents of a listener's files; None where one could not be read or is not used."""

    certificate: bytes
    key: bytes
    client_ca: bytes | None

    def configuration(self) -> grpc.ServerCertificateConfiguration:
        return grpc.ssl_server_certificate_configuration([(self.key, self.certificate)], self.client_ca)


@dataclass(frozen=True, slots=True)
class Tls:
    """PEM files of a listener. With `client_ca_file` clients must show a certificate that it signed.

    The certificate file may hold a chain, the listener's own certificate first. The key has no passphrase.
    """

    certificate_file: Path
    key_file: Path
    client_ca_file: Path | None = None
    observer: TlsObserver = field(default=_nobody, compare=False)

    @classmethod
    def from_settings(cls, settings: Settings, observer: TlsObserver) -> Self | None:
        """That of the listener for work; None where it has none."""
        server = settings.server
        if server.tls_certificate_file is None or server.tls_key_file is None:
            return None
        return cls(server.tls_certificate_file, server.tls_key_file, server.tls_client_ca_file, observer)

    def credentials(self) -> grpc.ServerCredentials:
        """Credentials that follow the files. Raises ConfigError naming the setting and what is wrong."""
        files = self._read()
        expires = self._check(files)
        self.observer(True, expires)
        return grpc.dynamic_ssl_server_credentials(
            files.configuration(), _Follower(self, files, expires), self.client_ca_file is not None
        )

    def check(self) -> None:
        """Raises ConfigError where the files cannot be used."""
        self._check(self._read())

    def _read(self) -> _Files:
        return _Files(
            _bytes("tls_certificate_file", self.certificate_file),
            _bytes("tls_key_file", self.key_file),
            None if self.client_ca_file is None else _bytes("tls_client_ca_file", self.client_ca_file),
        )

    def _check(self, files: _Files) -> float:
        """When the certificate expires, in seconds since the epoch. Raises ConfigError."""
        own = _certificates("tls_certificate_file", self.certificate_file, files.certificate)[0]
        now = datetime.datetime.now(datetime.UTC)
        where = f"server.tls_certificate_file: {self.certificate_file}"
        if not own.not_valid_before_utc <= now <= own.not_valid_after_utc:
            raise ConfigError(
                f"{where}: valid from {own.not_valid_before_utc} to {own.not_valid_after_utc}, and it is {now:%F %T}"
            )
        if _public_bytes(_key(self.key_file, files.key)) != _public_bytes(own):
            raise ConfigError(f"server.tls_key_file: {self.key_file}: not the key of {self.certificate_file}")
        if files.client_ca is not None:
            assert self.client_ca_file is not None
            _certificates("tls_client_ca_file", self.client_ca_file, files.client_ca)
        return own.not_valid_after_utc.timestamp()


class _Follower:
    """What gRPC calls before every handshake: the new certificates, or None while the old ones hold."""

    def __init__(self, tls: Tls, files: _Files, expires: float) -> None:
        self._tls = tls
        self._lock = threading.Lock()
        self._seen: _Files | str = files  # what was looked at last: contents, or why there were none
        self._refused = False  # what was seen; a certificate's time may come without a change of the files
        self._expires = expires

    # The stubs say that there always is one; gRPC's own text says None for no change.
    def __call__(self) -> Any:
        with self._lock:
            try:
                return self._look()
            except Exception:
                _log.exception("tls_files_not_followed")
                return None

    def _look(self) -> grpc.ServerCertificateConfiguration | None:
        try:
            files = self._tls._read()
        except ConfigError as error:
            self._keep(str(error), str(error))
            return None
        if files == self._seen and not self._refused:
            return None
        try:
            expires = self._tls._check(files)
        except ConfigError as error:
            self._keep(files, str(error))
            return None
        self._seen, self._refused, self._expires = files, False, expires
        when = datetime.datetime.fromtimestamp(expires, datetime.UTC).isoformat()
        _log.info("tls_files_taken", certificate=str(self._tls.certificate_file), expires=when)
        self._tls.observer(True, expires)
        return files.configuration()

    def _keep(self, seen: _Files | str, problem: str) -> None:
        """Says once of each broken state of the files that the old ones stay in use."""
        if self._refused and seen == self._seen:
            return
        self._seen, self._refused = seen, True
        _log.error("tls_files_refused", problem=problem, action="the certificates that were in use stay in use")
        self._tls.observer(False, self._expires)


def _bytes(setting: str, path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"server.{setting}: {path}: {error.strerror}") from None


def _certificates(setting: str, path: Path, pem: bytes) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(pem)
    except (ValueError, x509.InvalidVersion):
        raise ConfigError(f"server.{setting}: {path}: holds no PEM certificate, or one that is cut short") from None


def _key(path: Path, pem: bytes) -> PrivateKeyTypes:
    try:
        return serialization.load_pem_private_key(pem, None)
    except TypeError:
        raise ConfigError(f"server.tls_key_file: {path}: has a passphrase; give a key without one") from None
    except (ValueError, UnsupportedAlgorithm):
        raise ConfigError(f"server.tls_key_file: {path}: holds no PEM key, or one that is cut short") from None


def _public_bytes(holder: PrivateKeyTypes | x509.Certificate) -> bytes:
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return holder.public_key().public_bytes(serialization.Encoding.DER, form)
