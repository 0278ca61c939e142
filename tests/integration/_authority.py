"""Certificates made for a test."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

_NAMES = {
    "CN": x509.NameOID.COMMON_NAME,
    "O": x509.NameOID.ORGANIZATION_NAME,
    "OU": x509.NameOID.ORGANIZATIONAL_UNIT_NAME,
}


class Authority:
    """Signs certificates of nodes and daemons."""

    def __init__(self, name: str = "authority") -> None:
        self.name = _subject(f"CN={name}")
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.certificate = self._sign(self.name, self.key, ["localhost"], True, 1.0)

    def _sign(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, names: Sequence[str], ca: bool, hours: float
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        begun = now - datetime.timedelta(hours=2)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(begun)
            .not_valid_after(now + datetime.timedelta(hours=hours))
            .add_extension(x509.BasicConstraints(ca, None), critical=True)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(name) for name in names]), critical=False)
            .sign(self.key, hashes.SHA256())
        )

    def pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    def issue(
        self, subject: str, *, names: Sequence[str] = ("localhost",), hours: float = 1.0
    ) -> tuple[bytes, bytes]:
        """Key and certificate, PEM. `subject` is "CN=node-1,OU=validators"."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._sign(_subject(subject), key, names, False, hours)
        form, none = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        encoding = serialization.Encoding.PEM
        return key.private_bytes(encoding, form, none), certificate.public_bytes(encoding)

    def credentials(self, subject: str, **options) -> grpc.ChannelCredentials:
        """Of a client that trusts this authority and shows a certificate of it."""
        return grpc.ssl_channel_credentials(self.pem(), *self.issue(subject, **options))

    def write(self, folder: Path, subject: str = "CN=daemon", **options) -> dict[str, Path]:
        """The files of a listener, by setting; written anew where they exist."""
        key, certificate = self.issue(subject, **options)
        files = {
            "tls_certificate_file": (folder / "certificate.pem", certificate),
            "tls_key_file": (folder / "key.pem", key),
            "tls_client_ca_file": (folder / "ca.pem", self.pem()),
        }
        for path, data in files.values():
            path.write_bytes(data)
        return {name: path for name, (path, _) in files.items()}


def _subject(text: str) -> x509.Name:
    parts = [part.partition("=") for part in text.split(",")]
    return x509.Name([x509.NameAttribute(_NAMES[name], value) for name, _, value in parts])


def settings(files: dict[str, Path]) -> list[str]:
    """The files as assignments of `verifier serve --set`."""
    return [f"server.{name}={path}" for name, path in files.items()]
