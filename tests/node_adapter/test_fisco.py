import json
from pathlib import Path

import _ecdsa
import _sm2
import pytest
from coincurve import PrivateKey
from gmssl import func, sm3

from node_adapter.chain import SigningKey
from node_adapter.client import Items, MockVerifier, VerifierClient
from node_adapter.errors import FormatError
from node_adapter.formats import settle, verify_signed
from node_adapter.formats.fisco import Crypto, records, transaction_hash
from verifier.model import Code

SM2_KEY = SigningKey.derive(1, "fisco", 0)
K1_KEY = PrivateKey(bytes(31) + b"\5")
FIELDS = {
    "version": 0,
    "chainID": "chain0",
    "groupID": "group0",
    "blockLimit": 501,
    "nonce": "7061",
    "to": "0x" + "ab" * 20,
    "input": "0x0102ff",
    "abi": "[]",
}


CASES = json.loads((Path(__file__).parent / "fisco_transactions.json").read_text())["cases"]


def sm3_hash(data):
    return bytes.fromhex(sm3.sm3_hash(func.bytes_to_list(data)))


def signed(crypto=Crypto.sm2, nonce=None, **changes):
    fields = FIELDS | changes
    hashed = transaction_hash(fields, fields["nonce"].encode() if nonce is None else nonce, crypto)
    if crypto is Crypto.sm2:
        signature = SM2_KEY.sign(hashed) + SM2_KEY.public
        sender = sm3_hash(SM2_KEY.public)[-20:]
    else:
        signature = K1_KEY.sign_recoverable(hashed, hasher=None)
        sender = _ecdsa.keccak256(K1_KEY.public_key.format(False)[1:])[-20:]
    return fields | {
        "hash": "0x" + hashed.hex(),
        "signature": "0x" + signature.hex(),
        "from": "0x" + sender.hex(),
    }


def in_signature(items):
    """The Python oracle takes keys from their own column."""
    scheme = type(items.scheme)(
        items.scheme.algorithm,
        items.scheme.input_kind,
        type(items.scheme.signature_encoding).RAW_RS,
        type(items.scheme.key_encoding).RAW_XY,
    )
    return _sm2.verify(
        Items(scheme, items.inputs, [s[:64] for s in items.signatures], [s[64:] for s in items.signatures])
    )


def verdicts(data, crypto=Crypto.sm2):
    with MockVerifier(in_signature, recover=_ecdsa.recover) as daemon, VerifierClient(daemon.target) as client:
        found = list(records(json.dumps(data).encode(), crypto=crypto))
        items = [item for record in found for item in record.signed]
        codes = [v.code for v in settle(items, verify_signed(client, items))]
        return codes, [item.why for record in found for item in record.unverifiable]


@pytest.mark.parametrize("crypto", list(Crypto))
def test_transactions_in_every_envelope(crypto):
    good = signed(crypto)
    for data in (
        good,
        [good],
        {"result": good},
        {"number": 5, "transactions": [good]},
        {"result": [{"transactions": [good]}]},
        [{"id": 1, "result": {"transactions": [good]}}],
    ):
        assert verdicts(data, crypto) == ([Code.VALID], [])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["about"])
def test_published_transactions(case):
    crypto, transaction = Crypto(case["crypto"]), case["transaction"]
    assert verdicts(transaction, crypto) == ([Code.VALID], [])
    (other,) = set(Crypto) - {crypto}
    assert verdicts(transaction, other) == ([], [f"its hash is that of a chain with {crypto}, not {other}"])
    for field in ("nonce", "input", "to", "blockLimit"):
        changed = transaction | {field: "0x77" if field != "blockLimit" else 7}
        assert verdicts(changed, crypto) == ([], ["its hash is not that of its fields"])


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"from": "0x" + "11" * 20}, None),
        ({"signature": None}, "a field is not what it must be"),
        ({"signature": {}}, "signature is missing"),
        ({"signature": {"signature": "0x1234"}}, "a signature of 2 bytes; it has 65, or 128 with SM2"),
        ({"gas": "0xgas"}, "a field is not what it must be"),
        ({"gas": -1}, "-1 is below zero"),
        ({"gas": None}, "a field is not what it must be"),
        ({"chainId": "0x2"}, "its hash is not that of its fields"),
    ],
)
def test_version_2_that_is_not_verifiable(change, why):
    codes, reasons = verdicts(CASES[1]["transaction"] | change, Crypto.secp256k1)
    assert (codes, reasons) == ([Code.INVALID], []) if why is None else why in reasons[0]


def test_version_2_for_another_chain():
    data = json.dumps(CASES[1]["transaction"]).encode()
    (record,) = records(data, crypto=Crypto.secp256k1, chain_id="2")
    assert [item.why for item in record.unverifiable] == ["signed for chain '1', not for '2'"]
    (record,) = records(data, crypto=Crypto.secp256k1, chain_id="1")
    assert len(record.signed) == 1


def test_the_hash_is_over_the_fields():
    # Version 0 and 1 differ by five fields; every other field counts.
    assert transaction_hash(FIELDS, b"7061", Crypto.sm2) == sm3_hash(
        bytes(4) + b"chain0group0" + (501).to_bytes(8, "big") + b"7061" + b"0x" + b"ab" * 20 + b"\1\2\xff[]"
    )
    assert verdicts(signed(version=1, value="5", gasLimit=7)) == ([Code.VALID], [])
    assert verdicts(signed(version=2, value="5", extension="0x0102")) == ([Code.VALID], [])
    changed = signed(version=2, extension="0x0102") | {"extension": "0x0103"}
    assert verdicts(changed) == ([], ["its hash is not that of its fields"])


@pytest.mark.parametrize("nonce", [b"7061", b"pa"])
def test_nonces_as_they_are_or_in_hexadecimal(nonce):
    assert verdicts(signed(nonce=nonce)) == ([Code.VALID], [])


@pytest.mark.parametrize("field", ["chainID", "groupID", "blockLimit", "nonce", "to", "input", "abi", "version"])
def test_a_changed_field_no_longer_has_the_hash(field):
    spoilt = signed()
    spoilt[field] = 1 if field in ("version", "blockLimit") else "0x99" if field == "input" else "99"
    assert verdicts(spoilt) == ([], ["its hash is not that of its fields"])


@pytest.mark.parametrize("crypto", list(Crypto))
def test_a_changed_signature_is_invalid(crypto):
    spoilt = signed(crypto)
    raw = bytearray.fromhex(spoilt["signature"][2:])
    raw[40] ^= 1
    spoilt["signature"] = "0x" + raw.hex()
    assert verdicts(spoilt, crypto) == ([Code.INVALID], [])


def test_another_sender():
    assert verdicts(signed() | {"from": "0x" + "11" * 20}) == ([], ["it is signed by another than the sender"])
    assert verdicts(signed(Crypto.secp256k1) | {"from": "0x" + "11" * 20}, Crypto.secp256k1) == ([Code.INVALID], [])


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"signature": None}, "a field is not what it must be"),
        ({"signature": "0xzz"}, "a field is not what it must be"),
        ({"version": 9}, "transaction version 9"),
        ({"type": 1}, "an Ethereum transaction in the chain's own"),
        ({"blockLimit": -1}, "a field is not what it must be"),
    ],
)
def test_what_is_not_verifiable(change, why):
    codes, reasons = verdicts([signed() | change, signed()])
    assert codes == [Code.VALID]
    assert why in reasons[0]


@pytest.mark.parametrize("crypto", list(Crypto))
def test_a_chain_with_the_other_algorithms_is_named(crypto):
    (other,) = set(Crypto) - {crypto}
    assert verdicts(signed(other), crypto) == ([], [f"its hash is that of a chain with {other}, not {crypto}"])


def test_another_chain():
    good = json.dumps(signed()).encode()
    (record,) = records(good, chain_id="chain1")
    assert [item.why for item in record.unverifiable] == ["signed for chain 'chain0', not for 'chain1'"]
    (record,) = records(good, chain_id="chain0")
    assert len(record.signed) == 1


def test_missing_fields_and_bare_hashes():
    without = signed()
    del without["hash"]
    assert verdicts({"transactions": [without, "0x1234"]}) == (
        [],
        ["hash is missing", "only its hash is given: ask the node for whole transactions"],
    )


@pytest.mark.parametrize(
    ("data", "offset", "text"),
    [
        (b'{"a": }', 6, "not JSON"),
        ('{"ä": }'.encode(), 7, "not JSON"),
        (b"\xff", 0, "not UTF-8"),
        (b"[1]", 0, "neither a block nor a transaction"),
    ],
)
def test_files_that_are_none(data, offset, text):
    with pytest.raises(FormatError, match=text) as caught:
        list(records(data))
    assert caught.value.offset == offset
