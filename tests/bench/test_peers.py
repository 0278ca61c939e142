"""The peers that our figures stand beside verify rightly, or their rates would mean nothing."""

from __future__ import annotations

import pytest

from verifier.bench.peers import peers_for
from verifier.bench.signatures import CURVES, FAULTS, make_signatures, sm2_hash
from verifier.drivers.build import host_target
from verifier.manifest import load_manifest
from verifier.model import Code
from verifier.registry import offers, shipped_folder

# gmssl checks neither ranges nor keys.
JUDGED = [name for name, (_, code) in FAULTS.items() if code == Code.INVALID]


@pytest.mark.parametrize("algorithm", CURVES)
def test_peers_count_the_valid_ones(algorithm):
    made = make_signatures(algorithm, 30, keys=4, fault_share=0.3, faults=JUDGED, seed=3)
    found = {name: peer(made) for name, peer in peers_for(algorithm)}
    assert found
    assert set(found.values()) == {int(made.valid.sum())}, found


@pytest.mark.parametrize("items", [1, 8, 30])
def test_crypto_mb_by_itself(items):
    """Its SM2 hashes a message; the last of its lanes may be left over."""
    (offer,) = offers(load_manifest(shipped_folder() / "sm2"), host_target())
    if offer.library is None:
        pytest.skip(offer.problem)
    for algorithm, messages in (("SM2", True), ("ECDSA_P256", False)):
        hashed = sm2_hash if messages else None
        made = make_signatures(algorithm, items, keys=4, fault_share=0.3, faults=JUDGED, seed=4, hashed=hashed)
        peers = dict(peers_for(algorithm, messages=messages))
        assert peers["crypto_mb"](made) == int(made.valid.sum())
        spoilt = make_signatures(algorithm, items, keys=4, fault_share=1.0, faults=["wrong s"], hashed=hashed)
        assert peers["crypto_mb"](spoilt) == 0


def test_messages_have_no_peer_that_takes_digests():
    assert set(dict(peers_for("SM2", messages=True))) <= {"crypto_mb"}
    assert dict(peers_for("ECDSA_P256", messages=True)) == {}
