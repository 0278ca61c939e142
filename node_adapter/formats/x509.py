"""X.509 certificates signed with SM2 and SM3 (GM/T 0015) or with ECDSA and SHA-256 (RFC 5280, 5758).

What is read of a certificate: its names, its key and its signature. Whether it is valid now, and for what, is for
others to decide: odd serial numbers, dates, extensions and names of any kind of string are no fault here.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

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
from node_adapter.formats._curves import curve_of, named_curve
from node_adapter.formats._der import BIT_STRING, INTEGER, OBJECT_IDENTIFIER, SEQUENCE, Element, read
from node_adapter.formats._names import Name, dotted, read_name
from node_adapter.formats._signed import Signed, Unverifiable

__all__ = [
    "Certificate",
    "Pair",
    "candidates",
    "load",
    "load_first",
    "point_encoding",
    "question",
    "spki",
    "tbs_digests",
]

# RFC 7468 has one label; older tools write X509 CERTIFICATE, and OpenSSL puts what it trusts behind a TRUSTED one.
_LABEL = rb"-----BEGIN (X509 |TRUSTED |)CERTIFICATE-----"
_BEGIN = re.compile(_LABEL)
_PEM = re.compile(_LABEL + rb"[ \t]*\r?\n(.*?)-----END \1CERTIFICATE-----", re.DOTALL)
_ANY_PEM = re.compile(rb"-----BEGIN ([^\r\n]*?)-----[ \t]*\r?\n(.*?)-----END \1-----", re.DOTALL)
_OTHERS = re.compile(rb"-----BEGIN ([A-Z0-9 ]{1,40})-----")

_EC_PUBLIC_KEY = bytes.fromhex("2a8648ce3d0201")  # 1.2.840.10045.2.1
_VERSION, _KEY_FIELD = 0xA0, 5  # the version's tag; the key's place behind it
_SM2_WITH_SM3 = "1.2.156.10197.1.501"
_ECDSA_WITH_SHA256 = "1.2.840.10045.4.3.2"  # the curve is that of the key
_ECDSA = (Algorithm.ECDSA_P256, Algorithm.ECDSA_SECP256K1)
_POINTS = {65: KeyEncoding.SEC1_UNCOMPRESSED, 33: KeyEncoding.SEC1_COMPRESSED}


@dataclass(frozen=True, slots=True)
class Certificate:
    """One certificate. `algorithm` is its key's, None where no plugin knows it; `point` its key as SEC 1 has it."""

    source: str
    subject: Name
    issuer: Name
    tbs: bytes
    signature_oid: str
    signature: bytes
    algorithm: Algorithm | None
    point: bytes
    der: bytes

    @property
    def name(self) -> str:
        """The subject in words."""
        return self.subject.text


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
        return [_certificate(element, source)]
    certificates: list[Certificate] = []
    for match in _PEM.finditer(data):
        der = _decoded(match)
        try:
            certificate = read(der, tag=SEQUENCE)
            if match[1] != b"TRUSTED " and certificate.stop != len(der):
                raise FormatError(certificate.stop, f"{len(der) - certificate.stop} bytes behind it")
            certificates.append(_certificate(certificate, f"{source}:{len(certificates) + 1}"))
        except FormatError as error:
            raise FormatError(match.start(), f"certificate, in its DER {error}") from None
    begun = [match.start() for match in _BEGIN.finditer(data)]
    if len(certificates) != len(begun):
        raise FormatError(begun[-1], "a certificate begins here and does not end")
    if not certificates:
        others = sorted({match[1].decode() for match in _OTHERS.finditer(data)})
        raise FormatError(0, f"no certificate: {' and '.join(others) or 'neither PEM nor DER'}")
    return certificates


def load_first(data: bytes, source: str) -> Certificate:
    """The certificate in a member's identity, as nodes written in Go read it: in the first block of PEM.

    Its label does not count (Fabric 1.0 wrote none), nor does what stands behind it. Raises FormatError.
    """
    match = _ANY_PEM.search(data)
    if match is None:
        return load(data, source)[0]
    der = _decoded(match)
    element = read(der, tag=SEQUENCE)
    if element.stop != len(der):
        raise FormatError(element.stop, f"{len(der) - element.stop} bytes behind the certificate")
    return _certificate(element, source)


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
    if subject.signature_oid == _SM2_WITH_SM3:
        fitting, algorithm = issuer.algorithm is Algorithm.SM2, Algorithm.SM2
    elif subject.signature_oid == _ECDSA_WITH_SHA256:
        fitting = issuer.algorithm in _ECDSA
        algorithm = issuer.algorithm if issuer.algorithm and fitting else Algorithm.ECDSA_P256
    else:
        why = f"signature algorithm {subject.signature_oid} is not SM2 with SM3 or ECDSA with SHA-256"
        return Unverifiable(where, why)
    if not fitting:
        key = issuer.algorithm.name if issuer.algorithm else "on a curve, or of a kind, that no plugin has"
        return Unverifiable(where, f"signed with {algorithm.name.split('_')[0]}, but the issuer's key is {key}")
    encoding = point_encoding(issuer.point)
    if encoding is None:
        return Unverifiable(where, f"the issuer's key is a point of {len(issuer.point)} bytes")
    by_digest = algorithm is Algorithm.SM2 and digest is not None
    scheme = Scheme(
        algorithm,
        InputKind.DIGEST if by_digest else InputKind.MESSAGE,
        SignatureEncoding.DER_STRICT,
        encoding,
        hash=Hash.UNSPECIFIED if algorithm is Algorithm.SM2 else Hash.SHA256,
        sm2_user_id=user_id if algorithm is Algorithm.SM2 and not by_digest else None,
    )
    return Signed(where, scheme, digest if by_digest and digest else subject.tbs, subject.signature, issuer.point)


def point_encoding(point: bytes) -> KeyEncoding | None:
    """The encoding of a SEC 1 point by its length, which its first byte must then confirm."""
    return _POINTS.get(len(point))


def tbs_digests(client: VerifierClient, certificates: Iterable[Certificate]) -> list[bytes]:
    """SM3 over each certificate's TBS, by the daemon."""
    return [row.tobytes() for row in client.digest(Hash.SM3, [c.tbs for c in certificates]).digests]


def _decoded(match: re.Match[bytes]) -> bytes:
    """What a block of PEM holds, the second group of a match. Raises FormatError."""
    try:
        return base64.b64decode(b"".join(match[2].split()), validate=True)
    except binascii.Error as error:
        raise FormatError(match.start(2), f"base64 of a certificate: {error}") from None


def _certificate(certificate: Element, source: str) -> Certificate:
    """Takes a certificate apart. Raises FormatError at the element that is wrong."""
    parts = certificate.children()
    if [part.tag for part in parts] != [SEQUENCE, SEQUENCE, BIT_STRING]:
        raise FormatError(certificate.at, "no certificate: its body, an algorithm and a signature are expected")
    tbs, outer, signature = parts
    fields = tbs.children()
    if fields and fields[0].tag == _VERSION:
        del fields[0]
    if [field.tag for field in fields[: _KEY_FIELD + 1]] != [INTEGER, *[SEQUENCE] * _KEY_FIELD]:
        why = "no certificate: a number, an algorithm, the issuer, dates, the subject and its key are expected"
        raise FormatError(tbs.at, why)
    inner, issuer, subject, key = fields[1], fields[2], fields[4], fields[_KEY_FIELD]
    if inner.content != outer.content:
        raise FormatError(outer.at, "the signature's algorithm is not the one that is signed")
    if signature.content[:1] != b"\0":
        raise FormatError(signature.at, "the signature does not end with a whole byte")
    algorithm, point = spki(key)
    return Certificate(
        source,
        read_name(subject),
        read_name(issuer),
        tbs.data[tbs.at : tbs.stop],
        dotted(_identifier(outer)),
        signature.content[1:],
        algorithm,
        point,
        certificate.data[certificate.at : certificate.stop],
    )


def _identifier(algorithm: Element) -> bytes:
    """The object identifier that an AlgorithmIdentifier begins with."""
    parts = algorithm.children()
    if not parts or parts[0].tag != OBJECT_IDENTIFIER:
        raise FormatError(algorithm.at, "an algorithm's object identifier is expected")
    return parts[0].content


def spki(element: Element) -> tuple[Algorithm | None, bytes]:
    """Algorithm and point of a SubjectPublicKeyInfo. SM2 keys come with either of two identifiers."""
    parts = element.children()
    if element.tag != SEQUENCE or len(parts) != 2 or parts[1].tag != BIT_STRING or parts[1].content[:1] != b"\0":
        raise FormatError(element.at, "not a SubjectPublicKeyInfo")
    kind, *parameters = parts[0].children() or [parts[0]]
    point = parts[1].content[1:]
    if kind.content == _EC_PUBLIC_KEY:
        return (curve_of(parameters[0]) if parameters else None), point
    return named_curve(kind.content), point  # Tongsuo and others name the curve where the key's type belongs
