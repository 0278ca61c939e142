"""Addresses to listen on, and what may be listened on without TLS."""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass
from pathlib import Path

import grpc

from verifier.errors import ConfigError

__all__ = ["Tls", "check_listener", "is_private", "open_port", "somebody_listens", "split_address"]


@dataclass(frozen=True, slots=True)
class Tls:
    """PEM files of a listener. With `client_ca_file` clients must show a certificate that it signed."""

    certificate_file: Path
    key_file: Path
    client_ca_file: Path | None = None

    def credentials(self) -> grpc.ServerCredentials:
        """Reads the files. Raises ConfigError naming the setting."""
        key, certificate = _read("tls_key_file", self.key_file), _read("tls_certificate_file", self.certificate_file)
        if self.client_ca_file is None:
            return grpc.ssl_server_credentials([(key, certificate)])
        roots = _read("tls_client_ca_file", self.client_ca_file)
        return grpc.ssl_server_credentials([(key, certificate)], roots, require_client_auth=True)


def _read(setting: str, path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"server.{setting}: {path}: {error.strerror}") from None


def split_address(address: str) -> tuple[str, int]:
    """host and port of "host:port" or "[v6]:port". Raises ConfigError."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise ConfigError(f"listen: {address!r} is neither host:port nor unix:/path")
    return host.strip("[]"), int(port)


def is_private(address: str) -> bool:
    """Whether only this host can reach an address: a Unix socket, or loopback."""
    if address.startswith("unix:"):
        return True
    host, _ = split_address(address)
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_listener(setting: str, address: str, *, tls: bool, insecure: bool) -> None:
    """Raises ConfigError where others could reach the address and nothing protects it."""
    if not (is_private(address) or tls or insecure):
        raise ConfigError(
            f"{setting}: {address} can be reached from other hosts: set server.tls_certificate_file and "
            "server.tls_key_file, or server.insecure = true to have it without TLS"
        )


def open_port(server: grpc.Server, address: str, credentials: grpc.ServerCredentials | None) -> str:
    """Opens an address and returns it with the port that was taken. Raises ConfigError."""
    if address.startswith("unix:"):
        _prepare_socket(Path(address.removeprefix("unix:").removeprefix("//")))
    try:
        if credentials is None or address.startswith("unix:"):
            port = server.add_insecure_port(address)
        else:
            port = server.add_secure_port(address, credentials)
    except RuntimeError:
        raise ConfigError(f"listen: {address} cannot be opened; is another process there?") from None
    if address.startswith("unix:"):
        Path(address.removeprefix("unix:").removeprefix("//")).chmod(0o660)
        return address
    return f"{address.rpartition(':')[0]}:{port}"


def _prepare_socket(path: Path) -> None:
    path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
    if somebody_listens(path):
        raise ConfigError(f"listen: unix:{path} cannot be opened: another process answers there")
    if path.is_socket():
        path.unlink()


def somebody_listens(path: Path) -> bool:
    """Whether a living process serves the socket. gRPC would take it away from it; a dead one's it may have."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True
