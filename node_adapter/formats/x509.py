"""X.509 certificates signed with SM2 and SM3 (GM/T 0015) or with ECDSA P-256 and SHA-256 (RFC 5280, 5758).

`cryptography` takes certificates apart; it does not know SM2 keys, so the subject's key is read here.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cryptography import x509

from node_adapter.client import (
    Algorithm,
    Hash,
    InputKind,
    KeyEncoding,
    Scheme,
    SignatureEncoding,
    VerifierClient,
)
from node_adapter.errors import FormatError
from node_adapter.formats._der import BIT_STRING, OBJECT_IDENTIFIER, SEQUENCE, Element, read
from node_adapter.formats._signed import Signed, Unverifiable

__all__ = [
    "Certificate",
    "Pair",
    "candidates",
    "load",
    "name_text",
    "point_encoding",
    "question",
    "spki",
    "tbs_digests",
]

_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----[ \t]*\r?\n(.*?)-----END CERTIFICATE-----", re.DOTALL)
_BEGIN = b"-----BEGIN CERTIFICATE-----"

_EC_PUBLIC_KEY = bytes.fromhex("2a8648ce3d0201")  # 1.2.840.10045.2.1
_CURVES = {
    bytes.fromhex("2a811ccf5501822d"): Algorithm.SM2,  # 1.2.156.10197.1.301
    bytes.fromhex("2a8648ce3d030107"): Algorithm.ECDSA_P256,  # 1.2.840.10045.3.1.7
    bytes.fromhex("2b8104000a"): Algorithm.ECDSA_SECP256K1,  # 1.3.132.0.10
}
_SIGNATURES = {
    "1.2.156.10197.1.501": (Algorithm.SM2, Hash.UNSPECIFIED),
    "1.2.840.10045.4.3.2": (Algorithm.ECDSA_P256, Hash.SHA256),
}
_POINTS = {65: KeyEncoding.SEC1_UNCOMPRESSED, 33: KeyEncoding.SEC1_COMPRESSED}


def name_text(name: x509.Name) -> str:
    """A name in words (RFC 4514)."""
    return name.rfc4514_string({x509.NameOID.EMAIL_ADDRESS: "E"}) or "(no name)"


@dataclass(frozen=True, slots=True)
class Certificate:
    """One certificate. `algorithm` is its key's, None where no plugin knows it; `point` its key as SEC 1 has it."""

    source: str
    subject: x509.Name
    issuer: x509.Name
    tbs: bytes
    signature_oid: str
    signature: bytes
    algorithm: Algorithm | None
    point: bytes
    der: bytes

    @property
    def name(self) -> str:
        """The subject in words."""
        return name_text(self.subject)


@dataclass(frozen=True, slots=True)
class Pair:
    """Two certificates of which the first may have signed the second, as indices."""

    issuer: int
    subject: int


def load(data: bytes, source: str) -> list[Certificate]:
    """The certificates of a file: PEM with any text around them, or one in DER.

    Raises FormatError with the offset in the file; `source` names the file in the certificates.
    """
    if data[:1] == b"\x30":
        element = read(data, 0, tag=SEQUENCE)
        if element.stop != len(data):
            raise FormatError(element.stop, f"{len(data) - element.stop} bytes behind the certificate")
        return [_certificate(data, 0, source)]
    certificates: list[Certificate] = []
    for match in _PEM.finditer(data):
        try:
            der = base64.b64decode(b"".join(match[1].split()), validate=True)
        except binascii.Error as error:
            raise FormatError(match.start(1), f"base64 of a certificate: {error}") from None
        certificates.append(_certificate(der, match.start(), f"{source}:{len(certificates) + 1}"))
    if len(certificates) != data.count(_BEGIN):
        raise FormatError(data.rfind(_BEGIN), "a certificate begins here and does not end")
    if not certificates:
        raise FormatError(0, "no certificate: neither PEM nor DER")
    return certificates


def candidates(certificates: Sequence[Certificate], *, everything: bool = False) -> list[Pair]:
    """Pairs whose names say that the first signed the second, or all pairs."""
    return [
        Pair(i, s)
        for s, subject in enumerate(certificates)
        for i, issuer in enumerate(certificates)
        if everything or issuer.subject == subject.issuer
    ]


def question(
    issuer: Certificate, subject: Certificate, *, user_id: bytes | None = None, digest: bytes | None = None
) -> Signed | Unverifiable:
    """What to ask the daemon to learn whether `issuer` signed `subject`.

    `digest` is SM3 over the subject's TBS, for SM2 signatures without ZA; None: with ZA and `user_id`.
    """
    where = f"{issuer.source} -> {subject.source}"
    known = _SIGNATURES.get(subject.signature_oid)
    if known is None:
        return Unverifiable(
            where, f"signature algorithm {subject.signature_oid} is not SM2 or ECDSA P-256 with SHA-256"
        )
    algorithm, hash_ = known
    if issuer.algorithm is not algorithm:
        key = issuer.algorithm.name if issuer.algorithm else "another"
        return Unverifiable(where, f"signed with {algorithm.name}, but the issuer's key is {key}")
    encoding = point_encoding(issuer.point)
    if encoding is None:
        return Unverifiable(where, f"the issuer's key is a point of {len(issuer.point)} bytes")
    by_digest = algorithm is Algorithm.SM2 and digest is not None
    scheme = Scheme(
        algorithm,
        InputKind.DIGEST if by_digest else InputKind.MESSAGE,
        SignatureEncoding.DER_STRICT,
        encoding,
        hash=hash_,
        sm2_user_id=user_id if algorithm is Algorithm.SM2 and not by_digest else None,
    )
    return Signed(where, scheme, digest if by_digest and digest else subject.tbs, subject.signature, issuer.point)


def point_encoding(point: bytes) -> KeyEncoding | None:
    """The encoding of a SEC 1 point by its length, which its first byte must then confirm."""
    return _POINTS.get(len(point))


def tbs_digests(client: VerifierClient, certificates: Iterable[Certificate]) -> list[bytes]:
    """SM3 over each certificate's TBS, by the daemon."""
    return [row.tobytes() for row in client.digest(Hash.SM3, [c.tbs for c in certificates]).digests]


def _certificate(der: bytes, offset: int, source: str) -> Certificate:
    try:
        parsed = x509.load_der_x509_certificate(der)
        subject, issuer = parsed.subject, parsed.issuer
        signature, oid = parsed.signature, parsed.signature_algorithm_oid.dotted_string
    except ValueError as error:
        raise FormatError(offset, f"certificate: {error}") from None
    try:
        algorithm, point = _key(parsed.tbs_certificate_bytes)
    except FormatError as error:
        raise FormatError(offset, f"certificate, in its TBS {error}") from None
    return Certificate(source, subject, issuer, parsed.tbs_certificate_bytes, oid, signature, algorithm, point, der)


def _key(tbs: bytes) -> tuple[Algorithm | None, bytes]:
    """The subject's key in a TBSCertificate: version [0], serial, algorithm, issuer, validity, subject, key."""
    fields = read(tbs, tag=SEQUENCE).children()
    place = 6 if fields[0].tag == 0xA0 else 5
    if len(fields) <= place:
        raise FormatError(0, "the subject's key is missing")
    return spki(fields[place])


def spki(element: Element) -> tuple[Algorithm | None, bytes]:
    """Algorithm and point of a SubjectPublicKeyInfo. SM2 keys come with either of two identifiers."""
    parts = element.children()
    if element.tag != SEQUENCE or len(parts) != 2 or parts[1].tag != BIT_STRING or parts[1].content[:1] != b"\0":
        raise FormatError(element.at, "not a SubjectPublicKeyInfo")
    identifiers = [part.content for part in parts[0].children() if part.tag == OBJECT_IDENTIFIER]
    point = parts[1].content[1:]
    if identifiers and identifiers[0] == _EC_PUBLIC_KEY:
        return (_CURVES.get(identifiers[1]) if len(identifiers) > 1 else None), point
    # Tongsuo and others name the curve where the key's type belongs.
    return (_CURVES.get(identifiers[0]) if identifiers else None), point
