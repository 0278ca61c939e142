"""Real chains' files through `verifier verify` and a daemon in another process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from _bitcoin_cases import CASES, STRICT_TIME, read
from _daemon_process import ROOT, DaemonProcess

from node_adapter.client import KeyEncoding, VerifierClient
from node_adapter.formats import settle, verify_signed
from verifier.model import Code


@pytest.fixture(scope="module")
def real():
    folder = Path(os.environ.get("VERIFIER_SHARED", ROOT.parent / "shared")) / "real"
    if not folder.is_dir():
        pytest.skip("no real files: set VERIFIER_SHARED to the folder that has real/")
    return folder


@pytest.fixture(scope="module")
def daemon(real, tmp_path_factory):
    made = DaemonProcess(tmp_path_factory.mktemp("daemon"), ["ecdsa"], cache=None)
    yield made
    made.stop()


def verify(daemon, format_, path):
    command = [sys.executable, "-m", "verifier", "verify", "--json", "--format", format_, "--address", daemon.address]
    result = subprocess.run([*command, str(path)], capture_output=True, text=True, check=False, timeout=500)
    (file,) = json.loads(result.stdout)["files"]
    signatures = [signature for record in file["records"] for signature in record["signatures"]]
    assert len(signatures) == file["signatures"]
    return result.returncode, file, signatures


@pytest.mark.parametrize(
    ("name", "transactions", "senders"),
    [
        ("ethereum-chain.rlp", 603, {"7435ed30a8b4aeb0877cef0c6e8cffe834eb865f": 603}),
        ("ethereum-blockchain.blocks", 32, {"a94f5374fce5edbc8e2a8697c15331677e6ebf0b": 32}),
    ],
)
def test_ethereum(daemon, real, name, transactions, senders):
    status, file, signatures = verify(daemon, "ethereum", real / name)
    assert status == 0
    assert file["transactions"] == transactions
    assert {signature["verdict"] for signature in signatures} == {"VALID"}
    assert not any(record["not_verifiable"] for record in file["records"])
    of_transactions = [s["address"][2:] for s in signatures if "authorisation" not in s["where"]]
    assert {sender: of_transactions.count(sender) for sender in of_transactions} == senders


def test_fabric(daemon, real):
    status, file, signatures = verify(daemon, "fabric", real / "fabric-v2.0-ledger.blockfile")
    assert status == 0
    assert {signature["verdict"] for signature in signatures} == {"VALID"}
    assert not any(record["not_verifiable"] for record in file["records"])
    creators = [s for s in signatures if s["where"].endswith("creator") and "last update" not in s["where"]]
    assert (file["transactions"], len(creators)) == (20, 20)
    assert sum("endorsement" in signature["where"] for signature in signatures) == 21


def test_bitcoin(daemon, real):
    status, file, signatures = verify(daemon, "bitcoin", real / "bitcoin-block-413567.raw")
    assert status == 1
    assert (file["transactions"], len(signatures)) == (1557, 5815)
    # The file is not the block that was mined: its Merkle root differs from the header's, and one signature is wrong.
    wrong = [signature["where"] for signature in signatures if signature["verdict"] != "VALID"]
    assert [where.split()[1::2][0] + " " + where.split()[-1] for where in wrong] == ["513 44"]
    notes = [note["why"] for record in file["records"] for note in record["not_verifiable"]]
    assert len(notes) == 1
    assert "Merkle root" in notes[0]


def test_published_bitcoin_transactions(daemon):
    """Lax signatures, separators, every hash type: by the plugin, not by the tests' oracle."""
    with VerifierClient(daemon.address) as client:
        for case in CASES:
            signed = read(case).signed
            codes = [verdict.code for verdict in settle(signed, verify_signed(client, signed))]
            assert codes == [Code.VALID] * case["signatures"], case["about"]
            if case["lax"]:
                signed = read(case, STRICT_TIME).signed
                assert Code.SIGNATURE_DER in verify_signed(client, signed).codes


def test_keys_that_are_none_are_decided(daemon):
    """What stands in the place of keys in old multi-signature scripts."""
    (item,) = read(CASES[3]).signed
    junk = {b"short": Code.KEY_LENGTH, b"\7" + bytes(64): Code.KEY_PREFIX, b"\5" * 33: Code.KEY_PREFIX}
    with VerifierClient(daemon.address) as client:
        for key, code in junk.items():
            encoding = KeyEncoding.SEC1_UNCOMPRESSED if len(key) == 65 else KeyEncoding.SEC1_COMPRESSED
            asked = replace(item, key=key, scheme=replace(item.scheme, key_encoding=encoding))
            assert verify_signed(client, [asked]).codes.tolist() == [code]
