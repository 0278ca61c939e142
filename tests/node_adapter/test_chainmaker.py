import datetime
import json
import re
from dataclasses import replace

import _ecdsa
import _sm2
import pytest
from cryptography import x509 as x509_of
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from node_adapter.chain import SigningKey
from node_adapter.client import Algorithm, Hash, MockVerifier, VerifierClient
from node_adapter.errors import FormatError
from node_adapter.formats import settle, verify_signed
from node_adapter.formats.chainmaker import records
from verifier.model import Code

SM2_KEY = SigningKey.derive(1, "chainmaker", 0)
SM2_SPKI = bytes.fromhex("3059301306072a8648ce3d020106082a811ccf5501822d03420004") + SM2_KEY.public
P256_KEY = ec.derive_private_key(7, ec.SECP256R1())
K1_KEY = ec.derive_private_key(7, ec.SECP256K1())


def field(tag, content):
    return bytes([tag << 3 | 2]) + varint(len(content)) + content


def number(tag, value):
    return bytes([tag << 3]) + varint(value)


def varint(value):
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes(out) + bytes([value])


def pem(key):
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def certificate(key):
    name = x509_of.Name([x509_of.NameAttribute(x509_of.NameOID.COMMON_NAME, "member")])
    day = datetime.datetime(2026, 1, 1)
    made = x509_of.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    made = made.serial_number(1).not_valid_before(day).not_valid_after(day.replace(year=2036))
    return made.sign(key, hashes.SHA256())


def sm2_signature(message):
    raw = SM2_KEY.sign(message)
    return encode_dss_signature(int.from_bytes(raw[:32], "big"), int.from_bytes(raw[32:], "big"))


def ecdsa_signature(key, message):
    return key.sign(message, ec.ECDSA(hashes.SHA256()))


def payload(what=b"transfer"):
    return field(1, b"chain1") + field(3, b"id") + field(7, what)


def entry(signer, signature, kind=2):
    member = field(1, b"org1") + (number(2, kind) if kind else b"") + field(3, signer)
    return field(1, member) + field(2, signature)


def transaction(what=b"transfer"):
    """Signed by an SM2 key, endorsed by P-256 certificates, paid for by a secp256k1 key."""
    signed = payload(what)
    cert = certificate(P256_KEY)
    return (
        field(1, signed)
        + field(2, entry(SM2_SPKI, sm2_signature(signed)))
        + field(3, entry(cert.public_bytes(Encoding.PEM), ecdsa_signature(P256_KEY, signed), kind=0))
        + field(3, entry(cert.public_bytes(Encoding.DER), ecdsa_signature(P256_KEY, signed), kind=0))
        + field(5, entry(pem(K1_KEY), ecdsa_signature(K1_KEY, signed)))
    )


def block(*transactions, height=9, count=None):
    header = number(1, 2) + field(3, b"chain1") + number(4, height)
    header += number(8, len(transactions) if count is None else count)
    return field(1, header) + field(2, b"") + b"".join(field(3, tx) for tx in transactions)


def answer(items):
    return (_sm2 if items.scheme.algorithm is Algorithm.SM2 else _ecdsa).verify(items)


def verdicts(data):
    with MockVerifier(answer) as daemon, VerifierClient(daemon.target) as client:
        found = list(records(data))
        items = [item for record in found for item in record.signed]
        codes = {v.where: v.code for v in settle(items, verify_signed(client, items))} if items else {}
        return codes, [item.why for record in found for item in record.unverifiable]


def test_senders_endorsers_and_payers():
    codes, why = verdicts(block(transaction(), transaction(b"more")))
    assert why == []
    names = ["sender", "endorser 0", "endorser 1", "payer"]
    assert list(codes) == [f"block 9 transaction {number} {name}" for number in (0, 1) for name in names]
    assert set(codes.values()) == {Code.VALID}
    (record,) = records(block(transaction()))
    assert {(item.scheme.algorithm, item.scheme.hash) for item in record.signed} == {
        (Algorithm.SM2, Hash.UNSPECIFIED),
        (Algorithm.ECDSA_P256, Hash.SHA256),
        (Algorithm.ECDSA_SECP256K1, Hash.SHA256),
    }


def test_a_changed_payload_spoils_every_signature_of_its_transaction():
    data = block(transaction(), transaction(b"more"))
    at = data.index(b"transfer")
    codes, _ = verdicts(data[:at] + b"T" + data[at + 1 :])
    assert {code for where, code in codes.items() if "transaction 0" in where} == {Code.INVALID}
    assert {code for where, code in codes.items() if "transaction 1" in where} == {Code.VALID}


def test_transactions_alone_and_several_messages_in_a_file():
    one, two = transaction(), block(transaction())
    assert len(verdicts(one)[0]) == 4
    data = b"".join(varint(len(message)) + message for message in (one, two))
    assert [record.name for record in records(data)] == ["transaction 0", "block 9"]
    found = records(data[:-1])
    assert len(next(found).signed) == 4
    with pytest.raises(FormatError, match=r"a message of \d+ bytes, but \d+ are left") as caught:
        next(found)
    assert caught.value.offset == len(varint(len(one))) + len(one)


def test_what_nodes_answer_with():
    inner = block(transaction())
    sets = field(2, field(1, b"id"))
    for info in (field(1, inner), field(1, inner) + sets):
        assert list(records(info)) == [replace(record, stop=len(info)) for record in records(inner)]
    info = field(1, transaction()) + number(2, 9) + field(3, b"h" * 32) + number(4, 1) + number(5, 7)
    assert list(verdicts(info)[0].values()) == [Code.VALID] * 4


def test_transactions_by_nobody():
    alone = field(1, payload())
    assert verdicts(alone)[1] == ["nobody sent it: its sender is missing"]
    assert verdicts(block(alone))[1] == ["nobody sent it: its sender is missing"]
    (record,) = records(block(alone, height=0))
    assert (record.signed, record.unverifiable) == ((), ())
    assert "first configuration" in record.unsigned[0].why


@pytest.mark.parametrize(
    ("signer", "kind", "why"),
    [
        (b"h" * 32, 1, "the signer is the hash of a certificate"),
        (b"did:cm:1", 3, "a decentralised identifier"),
        (b"name", 4, "an alias"),
        (b"x", 9, "of kind 9"),
        (b"nothing", 0, "neither a certificate nor a public key"),
        (SM2_SPKI + b"!", 2, "1 bytes behind the key"),
        (b"-----BEGIN PUBLIC KEY-----!-----END PUBLIC KEY-----", 2, "base64 of a key"),
        (SM2_SPKI.replace(bytes.fromhex("822d"), bytes.fromhex("822e")), 2, "not on SM2's curve"),
    ],
)
def test_signers_without_a_key(signer, kind, why):
    codes, reasons = verdicts(block(field(1, payload()) + field(2, entry(signer, b"s", kind))))
    assert codes == {}
    assert why in reasons[0]


def test_another_chain():
    data = block(transaction())
    (record,) = records(data, chain_id="chain2")
    assert record.signed == ()
    assert re.fullmatch(r"signed for chain 'chain1' at byte \d+, not for 'chain2'", record.unverifiable[0].why)
    assert data[int(record.unverifiable[0].why.split()[6].rstrip(",")) :].startswith(b"chain1")
    (record,) = records(data, chain_id="chain1")
    assert len(record.signed) == 4


def test_a_header_that_counts_otherwise():
    assert verdicts(block(transaction(), count=2))[1] == ["the header counts 2 transactions; 1 are here"]


@pytest.mark.parametrize(
    ("data", "offset", "text"),
    [
        (b"\0", 0, "a message of no bytes"),
        (b"\x7f", 0, "a message of 127 bytes, but 0 are left"),
        (b"\x0a\xff\xff\xff\xff\x0f", 0, "runs over the end"),
        (b"\x0a\0", 0, "this is no Block and no Transaction"),
        (block() + b"\x32\0", len(block()), "field 6 does not occur"),
    ],
)
def test_files_that_are_none(data, offset, text):
    with pytest.raises(FormatError, match=text) as caught:
        list(records(data))
    assert caught.value.offset == offset


def line(message=b"any bytes", **changes):
    fields = {
        "message": message.hex(),
        "signature": sm2_signature(message).hex(),
        "signer": SM2_SPKI.hex(),
    }
    return json.dumps(fields | changes) + "\n"


def test_lines_of_json():
    p256 = {"signature": ecdsa_signature(P256_KEY, b"any bytes").hex(), "signer": pem(P256_KEY).decode()}
    data = line() + "\n" + line(**p256) + line(message=b"other", signature=sm2_signature(b"any bytes").hex())
    codes, why = verdicts(data.encode())
    assert why == []
    assert codes == {"line 1": Code.VALID, "line 3": Code.VALID, "line 4": Code.INVALID}


@pytest.mark.parametrize(
    ("bad", "offset", "text"),
    [
        ('{"a": }\n', 6, "not JSON"),
        ('{"message": "00", "signature": "00"}\n', 0, "KeyError 'signer'"),
        ('{"message": 1, "signature": "00", "signer": "00"}\n', 0, "TypeError"),
        ("[]\n", 0, "TypeError"),
    ],
)
def test_lines_before_a_bad_one_are_given(bad, offset, text):
    good = line()
    found = records((good + bad + good).encode())
    assert len(next(found).signed) == 1
    with pytest.raises(FormatError, match=text) as caught:
        next(found)
    assert caught.value.offset == len(good) + offset
