"""Certificates that are odd, and legal or in use all the same; and those that are neither."""

import base64

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from node_adapter.client import Algorithm, KeyEncoding
from node_adapter.errors import FormatError
from node_adapter.formats import Signed, verify_signed
from node_adapter.formats.x509 import candidates, load, question
from verifier.model import Code

KEY = ec.derive_private_key(12345, ec.SECP256R1())
K1_KEY = ec.derive_private_key(12345, ec.SECP256K1())
UTF8, PRINTABLE, T61, BMP, UNIVERSAL = 0x0C, 0x13, 0x14, 0x1E, 0x1C


def tlv(tag, *parts):
    content = b"".join(parts)
    if len(content) < 0x80:
        return bytes([tag, len(content)]) + content
    size = len(content).to_bytes((len(content).bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(size)]) + size + content


def sequence(*parts):
    return tlv(0x30, *parts)


def oid(digits):
    return tlv(6, bytes.fromhex(digits))


def name(*values, kind=UTF8, attribute="550403"):
    values = [value.encode() if isinstance(value, str) else value for value in values]
    return sequence(*(tlv(0x31, sequence(oid(attribute), tlv(kind, value))) for value in values))


def point(key, form=PublicFormat.UncompressedPoint):
    return key.public_key().public_bytes(Encoding.X962, form)


def spki(parameters, key_point):
    return sequence(sequence(oid("2a8648ce3d0201"), parameters), tlv(3, b"\0", key_point))


P256 = spki(oid("2a8648ce3d030107"), point(KEY))
ECDSA = sequence(oid("2a8648ce3d040302"))
DATES = sequence(tlv(0x17, b"260101000000Z"), tlv(0x17, b"360101000000Z"))


def certificate(
    *, version=2, number=b"\5", algorithm=ECDSA, outer=None, issuer=None, dates=DATES, subject=None, key=P256,
    more=b"", unused=b"\0", signer=KEY,
):  # fmt: skip
    subject = subject or name("odd")
    begin = tlv(0xA0, tlv(2, bytes([version]))) if version else b""
    body = sequence(begin, tlv(2, number), algorithm, issuer or subject, dates, subject, key, more)
    return sequence(body, outer or algorithm, tlv(3, unused, signer.sign(body, ec.ECDSA(hashes.SHA256()))))


def explicit(prime, a, b, generator, order, cofactor=True):
    def number(value):
        return tlv(
            2, value.to_bytes(33, "big").lstrip(b"\0") if value >> 255 == 0 else b"\0" + value.to_bytes(32, "big")
        )

    return sequence(
        tlv(2, b"\1"),
        sequence(oid("2a8648ce3d0101"), number(prime)),
        sequence(tlv(4, a.to_bytes(32, "big")), tlv(4, b.to_bytes(32, "big"))),
        tlv(4, generator),
        number(order),
        *([tlv(2, b"\1")] if cofactor else []),
    )


P256_PRIME = 2**256 - 2**224 + 2**192 + 2**96 - 1
P256_B = 0x5AC635D8AA3A93E7B3EBBD55769886BC651D06B0CC53B0F63BCE3C3E27D2604B
P256_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
P256_ONE = ec.derive_private_key(1, ec.SECP256R1())


def p256(**changes):
    told = {"prime": P256_PRIME, "a": P256_PRIME - 3, "b": P256_B, "generator": point(P256_ONE), "order": P256_ORDER}
    return explicit(**told | changes)


ODD = {
    "version 1": {"version": 0},
    "version 2": {"version": 1},
    "a number below zero": {"number": b"\xfb"},
    "no number": {"number": b"\0"},
    "a long number": {"number": b"\x7f" * 40},
    "a padded number": {"number": b"\0\0\5"},
    "parameters of the algorithm": {"algorithm": sequence(oid("2a8648ce3d040302"), b"\5\0")},
    "dates with an offset": {"dates": sequence(tlv(0x17, b"260101000000+0800"), tlv(0x17, b"360101000000+0800"))},
    "dates of four digits": {"dates": sequence(tlv(0x18, b"20260101000000Z"), tlv(0x18, b"99991231235959Z"))},
    "an extension that says it is not critical": {
        "more": tlv(0xA3, sequence(sequence(oid("2a0304"), tlv(1, b"\0"), tlv(4, b"\5\0"))))
    },
    "an extension that is none": {"more": tlv(0xA3, sequence(sequence(oid("551d13"), tlv(4, b"junk"))))},
    "unique identifiers": {"more": tlv(0x81, b"\0ab") + tlv(0x82, b"\0cd")},
    "a compressed key": {"key": spki(oid("2a8648ce3d030107"), point(KEY, PublicFormat.CompressedPoint))},
    "a curve written out": {"key": spki(p256(), point(KEY))},
    "a curve written out, no cofactor": {"key": spki(p256(cofactor=False), point(KEY))},
    "a curve written out, its generator compressed": {
        "key": spki(p256(generator=point(P256_ONE, PublicFormat.CompressedPoint)), point(KEY))
    },
}


@pytest.mark.parametrize("odd", ODD)
def test_odd_certificates_are_verified(client, odd):
    (found,) = load(certificate(**ODD[odd]), "file")
    asked = question(found, found)
    assert isinstance(asked, Signed)
    assert verify_signed(client, [asked]).codes.tolist() == [Code.VALID]


@pytest.mark.parametrize(
    ("subject", "text"),
    [
        (name("café".encode("latin-1"), kind=T61), "CN=café"),
        (name("国密".encode("utf-16-be"), kind=BMP), "CN=国密"),
        (name("国".encode("utf-32-be"), kind=UNIVERSAL), "CN=国"),
        (name("a_b*@", kind=PRINTABLE), "CN=a_b*@"),
        (name("China", attribute="550406"), "C=China"),
        (name(""), "CN="),
        (name("x" * 200), "CN=" + "x" * 200),
        (name(b"\xff\xfe"), "CN=#0c02fffe"),
        (name(b"\5", kind=2), "CN=#020105"),
        (name(b"\0ab", kind=3), "CN=#0303006162"),
        (name("a", "b"), "CN=b,CN=a"),
        (name('x, "y"+z'), 'CN=x\\, \\"y\\"\\+z'),
        (name(" #a "), "CN=\\ #a\\ "),
        (name("#a\0"), "CN=\\#a\\00"),
        (name("7", attribute="2a864886f70d01"), "1.2.840.113549.1=7"),
        (sequence(), "(no name)"),
    ],
)
def test_names_of_any_kind(subject, text):
    (found,) = load(certificate(subject=subject), "file")
    assert (found.name, found.issuer.text) == (text, text)


def test_names_are_compared_as_authorities_write_them():
    authority = certificate(subject=name("My  CA", kind=UTF8))
    member = certificate(subject=name("member"), issuer=name("my ca", kind=PRINTABLE))
    other = certificate(subject=name("other"), issuer=name("myca"))
    found = [load(der, "file")[0] for der in (authority, member, other)]
    assert [(pair.issuer, pair.subject) for pair in candidates(found)] == [(0, 0), (0, 1)]


def test_the_curve_is_that_of_the_issuers_key(client):
    key = spki(oid("2b8104000a"), point(K1_KEY))
    (found,) = load(certificate(key=key, signer=K1_KEY), "file")
    assert found.algorithm is Algorithm.ECDSA_SECP256K1
    assert verify_signed(client, [question(found, found)]).codes.tolist() == [Code.VALID]
    (compressed,) = load(
        certificate(key=spki(oid("2b8104000a"), point(K1_KEY, PublicFormat.CompressedPoint))), "file"
    )
    assert question(compressed, found).scheme.key_encoding is KeyEncoding.SEC1_COMPRESSED


@pytest.mark.parametrize(
    "parameters",
    [
        p256(prime=P256_PRIME - 2),
        p256(a=P256_PRIME - 4),
        p256(b=P256_B + 1),
        p256(order=P256_ORDER - 2),
        p256(generator=point(KEY)),  # as in CVE-2020-0601: the key is the generator, and anybody can sign
        sequence(),
        sequence(tlv(2, b"\1"), sequence(), sequence(), tlv(4), tlv(2, b"\1")),
        b"\5\0",
    ],
)
def test_curves_that_are_almost_known(parameters):
    (found,) = load(certificate(key=spki(parameters, point(KEY))), "file")
    assert found.algorithm is None
    assert "on a curve, or of a kind, that no plugin has" in question(found, found).why


def test_other_curves_of_sm2_and_secp256k1_written_out():
    for curve, (prime, a, b, generator, order) in {
        Algorithm.SM2: (
            2**256 - 2**224 - 2**96 + 2**64 - 1,
            2**256 - 2**224 - 2**96 + 2**64 - 4,
            0x28E9FA9E9D9F5E344D5A9E4BCF6509A7F39789F515AB8F92DDBCBD414D940E93,
            "0432c4ae2c1f1981195f9904466a39c9948fe30bbff2660be1715a4589334c74c7"
            "bc3736a2f4f6779c59bdcee36b692153d0a9877cc62a474002df32e52139f0a0",
            0xFFFFFFFEFFFFFFFFFFFFFFFFFFFFFFFF7203DF6B21C6052B53BBF40939D54123,
        ),
        Algorithm.ECDSA_SECP256K1: (
            2**256 - 2**32 - 977,
            0,
            7,
            point(ec.derive_private_key(1, ec.SECP256K1())).hex(),
            0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141,
        ),
    }.items():
        key = spki(explicit(prime, a, b, bytes.fromhex(generator), order), point(KEY))
        assert load(certificate(key=key), "file")[0].algorithm is curve


@pytest.mark.parametrize(
    ("der", "text"),
    [
        (certificate(outer=sequence(oid("2a8648ce3d040303"))), "is not the one that is signed"),
        (certificate(unused=b"\1"), "does not end with a whole byte"),
        (certificate(algorithm=sequence()), "an algorithm's object identifier is expected"),
        (certificate(subject=sequence(tlv(2, b"\1"))), "a part of a name is expected"),
        (certificate(subject=sequence(tlv(0x31, sequence(oid("550403"))))), "a name's attribute is expected"),
        (certificate(dates=tlv(2, b"\1")), "a number, an algorithm, the issuer, dates, the subject and its key"),
        (certificate(key=sequence()), "not a SubjectPublicKeyInfo"),
        (sequence(sequence(), tlv(3, b"\0")), "its body, an algorithm and a signature are expected"),
    ],
)
def test_what_is_no_certificate(der, text):
    with pytest.raises(FormatError, match=text) as caught:
        load(der, "file")
    assert 0 <= caught.value.offset < len(der)


def pem(der, label="CERTIFICATE"):
    return f"-----BEGIN {label}-----\n{base64.encodebytes(der).decode()}-----END {label}-----\n".encode()


def test_labels_of_pem():
    der = certificate()
    for label, content in (("X509 CERTIFICATE", der), ("TRUSTED CERTIFICATE", der + sequence())):
        assert [found.der for found in load(pem(content, label), "file")] == [der]
    mixed = pem(b"key", "EC PRIVATE KEY") + pem(der) + pem(b"list", "X509 CRL") + pem(der, "X509 CERTIFICATE")
    assert [found.source for found in load(b"\xef\xbb\xbf" + mixed, "file")] == ["file:1", "file:2"]
    with pytest.raises(FormatError, match="no certificate: EC PRIVATE KEY and X509 CRL"):
        load(pem(b"key", "EC PRIVATE KEY") + pem(b"list", "X509 CRL"), "file")
    with pytest.raises(FormatError, match=r"in its DER at byte \d+: 1 bytes behind it"):
        load(pem(der + b"!"), "file")
