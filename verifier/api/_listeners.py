"""Addresses to listen on, and what may be listened on without TLS."""

from __future__ import annotations

import ipaddress
import os
import socket
import threading
from pathlib import Path

import grpc

from verifier.errors import ConfigError

__all__ = ["check_listener", "is_private", "open_port", "probe_port", "somebody_listens", "split_address"]

_umask_lock = threading.Lock()


def split_address(address: str, setting: str = "listen") -> tuple[str, int]:
    """host and port of "host:port" or "[v6]:port". Raises ConfigError."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise ConfigError(f"{setting}: {address!r} is neither host:port nor unix:/path")
    return host.strip("[]"), int(port)


def is_private(address: str, setting: str = "listen") -> bool:
    """Whether only this host can reach an address: a Unix socket, or loopback."""
    if address.startswith("unix:"):
        return True
    host, _ = split_address(address, setting)
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_listener(setting: str, address: str, *, tls: bool, insecure: bool) -> None:
    """Raises ConfigError where others could reach the address and nothing protects it."""
    if not (is_private(address, setting) or tls or insecure):
        raise ConfigError(
            f"{setting}: {address} can be reached from other hosts: {_remedy(setting.partition('.')[0])}"
        )


def _remedy(section: str) -> str:
    if section == "server":
        return "set server.tls_certificate_file and tls_key_file, or server.insecure = true to have it without TLS"
    return f"set {section}.insecure = true to have it all the same; it has neither TLS nor roles"


def open_port(
    server: grpc.Server,
    address: str,
    credentials: grpc.ServerCredentials | None,
    socket_mode: int = 0o660,
    setting: str = "listen",
) -> str:
    """Opens an address of that setting and returns it with the port that was taken.

    A Unix socket has `socket_mode` from the moment it exists, and no TLS. Raises ConfigError.
    """
    try:
        if address.startswith("unix:"):
            path = Path(address.removeprefix("unix:").removeprefix("//"))
            _prepare_socket(path, setting)
            # The mask is the process's: held for the bind alone.
            with _umask_lock:
                mask = os.umask(0o777 & ~socket_mode)
                try:
                    server.add_insecure_port(address)
                finally:
                    os.umask(mask)
            path.chmod(socket_mode)
            return address
        if credentials is None:
            port = server.add_insecure_port(address)
        else:
            port = server.add_secure_port(address, credentials)
    except OSError as error:
        raise ConfigError(f"{setting}: {address} cannot be opened: {error.strerror}") from None
    except RuntimeError:
        raise ConfigError(f"{setting}: {address} cannot be opened: {_why(address)}") from None
    return f"{address.rpartition(':')[0]}:{port}"


def _why(address: str) -> str:
    """What the system says of an address that gRPC could not open without saying why."""
    try:
        probe_port(address)
    except OSError as error:
        return error.strerror or str(error)
    return "is another process there?"


def probe_port(address: str) -> tuple[socket.AddressFamily, tuple[str | int, ...]]:
    """Takes a port and lets it go: its family, and where it was with the port that a 0 became.

    Without SO_REUSEPORT: another process there must be noticed, not joined. Raises OSError.
    """
    host, port = split_address(address)
    family, _, _, _, where = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(where)
        return family, probe.getsockname()


def _prepare_socket(path: Path, setting: str) -> None:
    path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
    if somebody_listens(path):
        raise ConfigError(f"{setting}: unix:{path} cannot be opened: another process answers there")
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
