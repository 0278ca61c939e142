"""Who may call what: roles from the subject of the caller's certificate.

A pattern is "*", or ATTRIBUTE=VALUE with CN, O, OU or SAN (DNS names, addresses, URIs and mail addresses) and * and ?
in the value. A certificate has a role where one of the role's patterns matches; gRPC has verified by then that it was
signed by `server.tls_client_ca_file`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import lru_cache

import grpc
from cryptography import x509

__all__ = ["Peer", "Role", "Roles", "allowed_roles", "host_of", "peer_of", "role_of_method"]

_ATTRIBUTES = {"CN": x509.NameOID.COMMON_NAME, "O": x509.NameOID.ORGANIZATION_NAME}
_ATTRIBUTES["OU"] = x509.NameOID.ORGANIZATIONAL_UNIT_NAME


class Role(StrEnum):
    """What a caller may do."""

    VERIFY = "verify"
    CIPHER = "cipher"
    ADMIN = "admin"


_SERVICES = {
    "verifier.v1.Verifier": Role.VERIFY,
    "verifier.v1.CipherService": Role.CIPHER,
    "verifier.v1.PluginAdmin": Role.ADMIN,
}
# Services of the daemon that need no role: they tell nothing that the network does not.
_OPEN_SERVICES = ("grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection")


# What every caller with any role may ask.
_ANY_ROLE = ("/verifier.v1.Verifier/GetLimits", "/verifier.v1.CipherService/GetCiphers")


def role_of_method(method: str) -> Role | None:
    """The role that "/package.Service/Method" needs; None where it needs none. An unknown service needs admin."""
    service = method.removeprefix("/").partition("/")[0]
    return None if service in _OPEN_SERVICES else _SERVICES.get(service, Role.ADMIN)


def allowed_roles(method: str) -> frozenset[Role] | None:
    """The roles one of which "/package.Service/Method" needs; None where it needs none."""
    if method in _ANY_ROLE:
        return frozenset(Role)
    role = role_of_method(method)
    return None if role is None else frozenset((role,))


@dataclass(frozen=True, slots=True)
class Peer:
    """A caller. `name` is the certificate's subject, or where there is none the host or socket it called from."""

    name: str
    facts: frozenset[str] | None = None  # "CN=node-1", "SAN=node-1.example"; None: it showed no certificate


class Roles:
    """The configured map from certificates to roles. Safe to use from several threads."""

    def __init__(self, patterns: Mapping[Role, Sequence[str]], without_certificate: Sequence[Role] = ()) -> None:
        self._patterns = {role: tuple(patterns.get(role, ())) for role in Role}
        self._without_certificate = frozenset(without_certificate)
        self._cached = lru_cache(4096)(self._of_facts)

    def of(self, peer: Peer) -> frozenset[Role]:
        """The caller's roles."""
        return self._without_certificate if peer.facts is None else self._cached(peer.facts)

    def _of_facts(self, facts: frozenset[str]) -> frozenset[Role]:
        return frozenset(
            role
            for role, patterns in self._patterns.items()
            if any(pattern == "*" or any(fnmatchcase(fact, pattern) for fact in facts) for pattern in patterns)
        )


def peer_of(context: grpc.ServicerContext) -> Peer:
    """Who calls."""
    pem = context.auth_context().get("x509_pem_cert")
    if pem:
        return _peer_of_certificate(bytes(pem[0]))
    return Peer(host_of(context))


def host_of(context: grpc.ServicerContext) -> str:
    """The host, without its port, or the socket that a call is from."""
    peer: str = context.peer()
    return peer.rpartition(":")[0] if peer.startswith(("ipv4:", "ipv6:")) else peer


@lru_cache(4096)
def _peer_of_certificate(pem: bytes) -> Peer:
    certificate = x509.load_pem_x509_certificate(pem)
    facts = {
        f"{name}={_text(attribute.value)}"
        for name, oid in _ATTRIBUTES.items()
        for attribute in certificate.subject.get_attributes_for_oid(oid)
    }
    facts |= {f"SAN={value}" for value in _alternative_names(certificate)}
    name = certificate.subject.rfc4514_string() or f"serial {certificate.serial_number:x}"
    return Peer(name[:_LONGEST_NAME], frozenset(facts))


_LONGEST_NAME = 256


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.hex()


def _alternative_names(certificate: x509.Certificate) -> list[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, x509.DuplicateExtension, x509.UnsupportedGeneralNameType, ValueError):
        return []
    texts = (x509.DNSName, x509.UniformResourceIdentifier, x509.RFC822Name)
    return [
        *(value for kind in texts for value in names.get_values_for_type(kind)),
        *(str(address) for address in names.get_values_for_type(x509.IPAddress)),
    ]
