"""Published transactions: BIP 143's examples, and old ones that Bitcoin Core keeps as tests."""

import json
from pathlib import Path

import _ecdsa
import pytest

from node_adapter.client import MockVerifier, VerifierClient
from node_adapter.formats import settle, verify_signed
from node_adapter.formats._bitcoin import Output, double_sha256
from node_adapter.formats.bitcoin import records
from verifier.model import Code

CASES = json.loads((Path(__file__).parent / "bitcoin_transactions.json").read_text())["cases"]
LAX_TIME, STRICT_TIME = 1_400_000_000, 1_500_000_000


@pytest.fixture(scope="module")
def client():
    with MockVerifier(_ecdsa.verify) as daemon, VerifierClient(daemon.target) as client:
        yield client


def read(case, time=None, transaction=None, spent=None):
    data = bytes.fromhex(transaction or case["transaction"])
    time = time or (LAX_TIME if case["lax"] else STRICT_TIME)
    header = bytes(36) + double_sha256(data) + time.to_bytes(4, "little") + bytes(8)
    coins = {
        (bytes.fromhex(name)[::-1], index): Output(amount, bytes.fromhex(script))
        for name, index, script, amount in (spent or case["spent"])
    }
    return next(records(header + b"\1" + data, spent=coins))


def codes(client, record):
    return [verdict.code for verdict in settle(record.signed, verify_signed(client, record.signed))]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["about"])
def test_every_signature_is_valid(client, case):
    record = read(case)
    assert record.unverifiable == ()
    assert codes(client, record) == [Code.VALID] * case["signatures"]
    assert len(record.unsigned) == ("by nobody" in case["about"])


@pytest.mark.parametrize("case", [c for c in CASES if c["lax"]], ids=lambda case: case["about"])
def test_since_bip_66_lax_signatures_are_malformed(client, case):
    assert Code.SIGNATURE_DER in codes(client, read(case, STRICT_TIME))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["about"])
def test_amounts_count_where_they_are_signed(client, case):
    spent = [[name, index, script, amount + 1] for name, index, script, amount in case["spent"]]
    witness = sum(script.startswith("00") or "script hash" in case["about"] for _, _, script, _ in case["spent"])
    changed = codes(client, read(case, spent=spent)).count(Code.VALID) != case["signatures"]
    assert changed == bool(witness and "BIP 143" in case["about"])
