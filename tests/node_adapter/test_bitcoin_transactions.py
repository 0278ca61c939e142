"""Published transactions: BIP 143's examples, and old ones that Bitcoin Core keeps as tests."""

import pytest
from _bitcoin_cases import CASES, STRICT_TIME, read

from node_adapter.formats import settle, verify_signed
from verifier.model import Code


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
