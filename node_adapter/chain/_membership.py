"""Who belongs to the chain: X.509 certificates that the chain's own authority issued, and what members sign."""

from __future__ import annotations

import datetime
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Protocol, TypeVar

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import NameOID

from node_adapter.client import Algorithm, Hash, InputKind, KeyEncoding, Scheme, SignatureEncoding
from node_adapter.errors import ChainError

__all__ = ["MEMBER_SCHEME", "Identity", "Membership", "Signed", "issue_members"]

# What members sign consensus messages with, as the middleware is told.
MEMBER_SCHEME = Scheme(
    Algorithm.ECDSA_P256,
    InputKind.MESSAGE,
    SignatureEncoding.DER_STRICT,
    KeyEncoding.SEC1_UNCOMPRESSED,
    hash=Hash.SHA256,
)

_ECDSA = ec.ECDSA(hashes.SHA256(), deterministic_signing=True)
# Fixed, so that certificates follow from the seed alone.
_FROM = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
_UNTIL = datetime.datetime(2126, 1, 1, tzinfo=datetime.UTC)


class Signed(Protocol):
    """A message that names its sender and carries the signature over `body`."""

    @property
    def replica(self) -> int:
        """The sender's number."""

    @property
    def signature(self) -> bytes:
        """DER, over the chain's name and the body."""

    def body(self) -> bytes:
        """What is signed."""

    def with_signature(self: S, signature: bytes) -> S:
        """The same message, signed."""


S = TypeVar("S", bound=Signed)


class Membership:
    """The members of a chain, by number: those that the authority issued certificates to.

    Raises ChainError for fewer than four, for a certificate of another issuer, and for a key that is not P-256.
    """

    def __init__(self, chain: int, authority: x509.Certificate, certificates: Sequence[x509.Certificate]) -> None:
        if len(certificates) < 4:
            raise ChainError(f"{len(certificates)} members cannot bear a faulty one; at least 4 are needed")
        self.chain = chain
        self.authority = authority
        self.certificates = tuple(certificates)
        self.points = tuple(_member_point(certificate, authority) for certificate in certificates)
        self._keys = [ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), point) for point in self.points]
        # A view change carries messages that were checked when they came alone.
        self._verified = lru_cache(1 << 16)(self._verify)

    def __len__(self) -> int:
        return len(self.points)

    @property
    def faulty(self) -> int:
        """f: how many members may be faulty in any way."""
        return (len(self) - 1) // 3

    @property
    def quorum(self) -> int:
        """2f + 1 where n = 3f + 1: any two quorums share an honest member, and the honest members are one."""
        return (len(self) + self.faulty) // 2 + 1

    @cached_property
    def domain(self) -> bytes:
        """What every signature covers beside the message: this chain and its authority."""
        name = self.authority.fingerprint(hashes.SHA256()) + self.chain.to_bytes(4, "big")
        return b"VPBFT1" + hashlib.sha256(name).digest()

    def primary(self, view: int) -> int:
        """The member that proposes in a view."""
        return view % len(self)

    def signed(self, message: Signed) -> bool:
        """Whether the member that a message names has signed it."""
        return 0 <= message.replica < len(self) and self._verified(
            message.replica, self.domain + message.body(), message.signature
        )

    def _verify(self, replica: int, data: bytes, signature: bytes) -> bool:
        try:
            self._keys[replica].verify(signature, data, _ECDSA)
        except InvalidSignature:
            return False
        return True


@dataclass(frozen=True, slots=True)
class Identity:
    """A member's number and its private key."""

    number: int
    key: ec.EllipticCurvePrivateKey
    membership: Membership

    def sign(self, message: S) -> S:
        """The message with this member's signature (ECDSA on P-256, nonce after RFC 6979)."""
        return message.with_signature(self.key.sign(self.membership.domain + message.body(), _ECDSA))


def _member_point(certificate: x509.Certificate, authority: x509.Certificate) -> bytes:
    subject = certificate.subject.rfc4514_string()
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature) as error:
        raise ChainError(f"{subject}: not issued by {authority.subject.rfc4514_string()} ({error})") from None
    key = certificate.public_key()
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise ChainError(f"{subject}: members sign with P-256, and this certificate's key is another kind")
    return key.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)


def issue_members(seed: int, members: int, chain: int = 1) -> list[Identity]:
    """Makes an authority and a certificate for each member. Keys and certificates follow from the seed."""
    root_key = _derived(seed, "authority", chain)
    root_name = _name(f"chain {chain}", "authority")
    root = _issued(root_name, root_key.public_key(), root_name, root_key, 1)
    keys = [_derived(seed, "member", number) for number in range(members)]
    certificates = [
        _issued(_name(f"chain {chain}", f"member {number}"), key.public_key(), root_name, root_key, number + 2)
        for number, key in enumerate(keys)
    ]
    membership = Membership(chain, root, certificates)
    return [Identity(number, key, membership) for number, key in enumerate(keys)]


def _derived(seed: int, role: str, number: int) -> ec.EllipticCurvePrivateKey:
    digest = hashlib.sha512(f"{seed}/{role}/{number}".encode()).digest()
    return ec.derive_private_key(int.from_bytes(digest[:31], "big") + 1, ec.SECP256R1())


def _name(organisation: str, common: str) -> x509.Name:
    return x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, organisation),
            x509.NameAttribute(NameOID.COMMON_NAME, common),
        ]
    )


def _issued(
    subject: x509.Name,
    key: ec.EllipticCurvePublicKey,
    issuer: x509.Name,
    issuer_key: ec.EllipticCurvePrivateKey,
    serial: int,
) -> x509.Certificate:
    builder = x509.CertificateBuilder(
        issuer,
        subject,
        key,
        serial,
        _FROM,
        _UNTIL,
        [x509.Extension(x509.BasicConstraints.oid, True, x509.BasicConstraints(subject == issuer, None))],
    )
    return builder.sign(issuer_key, hashes.SHA256(), ecdsa_deterministic=True)
