import base64
import datetime

import _sm2
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from gmssl import func, sm3

from node_adapter.client import Algorithm, MockVerifier, VerifierClient
from node_adapter.errors import FormatError
from node_adapter.formats import Signed, Unverifiable, verify_signed
from node_adapter.formats._der import SEQUENCE, read
from node_adapter.formats.x509 import candidates, load, question, tbs_digests
from verifier.model import Code


def make(subject, issuer, key, signer, algorithm=hashes.SHA256()):  # noqa: B008
    def name(text):
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

    start = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    return x509.CertificateBuilder(name(issuer), name(subject), key.public_key(), 7, start, start).sign(
        signer, algorithm
    )


def pem(certificate):
    return certificate.public_bytes(serialization.Encoding.PEM)


def der(certificate):
    return certificate.public_bytes(serialization.Encoding.DER)


@pytest.fixture(scope="module")
def keys():
    return [ec.generate_private_key(ec.SECP256R1()) for _ in range(2)]


@pytest.fixture(scope="module")
def chain(keys):
    return make("root", "root", keys[0], keys[0]), make("leaf", "root", keys[1], keys[0])


def test_pem_with_text_around_several_certificates(chain):
    data = (
        b"Certificate:\n  some text\n" + pem(chain[0]) + b"between\r\n" + pem(chain[1]).replace(b"\n", b"\r\n") + b"x"
    )
    found = load(data, "f")
    assert [c.source for c in found] == ["f:1", "f:2"]
    assert [c.name for c in found] == ["CN=root", "CN=leaf"]
    assert [c.der for c in found] == [der(c) for c in chain]
    assert found[0].algorithm is Algorithm.ECDSA_P256
    numbers = chain[0].public_key().public_numbers()
    assert found[0].point == b"\4" + numbers.x.to_bytes(32, "big") + numbers.y.to_bytes(32, "big")
    assert found[0].tbs == chain[0].tbs_certificate_bytes


def test_one_certificate_in_der(chain):
    assert [c.name for c in load(der(chain[1]), "f")] == ["CN=leaf"]


@pytest.mark.parametrize(
    ("change", "offset", "text"),
    [
        (lambda c: b"", 0, "no certificate"),
        (lambda c: b"no certificate in here", 0, "neither PEM nor DER"),
        (lambda c: der(c) + b"!", len, "1 bytes behind the certificate"),
        (lambda c: der(c)[:-1], 1, "runs 1 bytes over the end"),
        (lambda c: pem(c).replace(b"MII", b"M*I", 1), 28, "base64"),
        (lambda c: pem(c) + b"-----BEGIN CERTIFICATE-----\nMIIB", lambda d: d.rfind(b"-----BEGIN"), "does not end"),
        (lambda c: b"text" + pem(c).replace(b"MII", b"MIJ", 1), 4, "certificate, in its DER at byte 1: "),
    ],
)
def test_what_is_no_certificate(chain, change, offset, text):
    data = change(chain[0])
    with pytest.raises(FormatError, match=text) as caught:
        load(data, "f")
    expected = offset(data) - (1 if offset is len else 0) if callable(offset) else offset
    assert caught.value.offset == expected


def test_candidates_by_name_and_all(chain):
    certificates = load(pem(chain[0]) + pem(chain[1]), "f")
    assert [(p.issuer, p.subject) for p in candidates(certificates)] == [(0, 0), (0, 1)]
    assert len(candidates(certificates, everything=True)) == 4


def test_what_cannot_be_asked(keys, chain):
    other = ec.generate_private_key(ec.SECP384R1())
    root, leaf = load(pem(chain[0]) + pem(chain[1]), "f")
    (big,) = load(pem(make("root", "root", other, other, hashes.SHA384())), "f")
    assert big.algorithm is None
    assert "the issuer's key is on a curve, or of a kind, that no plugin has" in question(big, leaf).why
    assert "1.2.840.10045.4.3.3 is not" in question(root, big).why
    assert isinstance(question(root, big), Unverifiable)
    assert isinstance(question(root, leaf), Signed)


def sm2_certificates(shared):
    return [
        c for path in sorted((shared / "real" / "sm2-certs").iterdir()) for c in load(path.read_bytes(), path.name)
    ]


def sm3_digest(_, message):
    return bytes.fromhex(sm3.sm3_hash(func.bytes_to_list(message)))


def test_real_sm2_certificates(shared):
    certificates = sm2_certificates(shared)
    assert len(certificates) == 12
    assert {c.algorithm for c in certificates} == {Algorithm.SM2}
    pairs = candidates(certificates)
    valid = set()
    with MockVerifier(_sm2.verify, digest=sm3_digest) as daemon, VerifierClient(daemon.target) as client:
        for za in (True, False):
            digests = [None] * 12 if za else tbs_digests(client, certificates)
            asked = [
                question(certificates[p.issuer], certificates[p.subject], digest=digests[p.subject]) for p in pairs
            ]
            codes = verify_signed(client, asked).codes
            valid |= {(za, q.where) for q, code in zip(asked, codes, strict=True) if code == Code.VALID}
    assert {where for za, where in valid if not za} == {
        "sm2-noza-root-cert.pem:1 -> sm2-noza-root-cert.pem:1",
        "sm2-noza-root-cert.pem:1 -> sm2-noza-cert.pem:1",
    }
    assert {where for za, where in valid if za} >= {
        "sm_ca.crt:1 -> sm_ca.crt:1",
        "sm_ca.crt:1 -> sm_node.crt:2",
        "sm_node.crt:2 -> sm_node.crt:1",
        "sm_node.crt:2 -> sm_ennode.crt:1",
        "sm2-root-cert.pem:1 -> sm2-root-cert.pem:1",
        "sm2-root-cert.pem:1 -> sm2-cert.pem:1",
        "sm2-chain-ca.crt:2 -> sm2-chain-ca.crt:2",
        "sm2-chain-ca.crt:2 -> sm2-chain-ca.crt:1",
        "sm2-chain-ca.crt:1 -> sm2-leaf.crt:1",
    }


@pytest.mark.parametrize(
    ("data", "offset", "text"),
    [
        ("", 0, "ends where an element"),
        ("30", 0, "ends where an element"),
        ("3f0100", 0, "high tag"),
        ("3080", 1, "length of 0 bytes"),
        ("3085000000000100", 1, "length of 5 bytes"),
        ("3081", 1, "inside a length"),
        ("308101ff", 1, "not minimal"),
        ("30820080" + "00" * 128, 1, "not minimal"),
        ("3002ff", 1, "runs 1 bytes over the end"),
        ("0200", 0, "0x30 is expected"),
    ],
)
def test_der_that_is_none(data, offset, text):
    with pytest.raises(FormatError, match=text) as caught:
        read(bytes.fromhex(data), tag=SEQUENCE if text.endswith("expected") else None)
    assert caught.value.offset == offset


def test_der_children_must_fill_their_parent():
    assert [c.content for c in read(bytes.fromhex("3005020101ab00")).children()] == [b"\1", b""]
    with pytest.raises(FormatError, match="ends where an element") as caught:
        read(bytes.fromhex("3004020101ab")).children()
    assert caught.value.offset == 5
    assert base64.b64encode(read(b"\x30\x81\x80" + bytes(128)).content) == base64.b64encode(bytes(128))
