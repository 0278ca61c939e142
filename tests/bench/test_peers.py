"""The peers that our figures stand beside verify rightly, or their rates would mean nothing."""

from __future__ import annotations

import pytest

from verifier.bench.peers import peers_for
from verifier.bench.signatures import CURVES, FAULTS, make_signatures
from verifier.model import Code

# gmssl checks neither ranges nor keys.
JUDGED = [name for name, (_, code) in FAULTS.items() if code == Code.INVALID]


@pytest.mark.parametrize("algorithm", CURVES)
def test_peers_count_the_valid_ones(algorithm):
    made = make_signatures(algorithm, 30, keys=4, fault_share=0.3, faults=JUDGED, seed=3)
    found = {name: peer(made) for name, peer in peers_for(algorithm)}
    assert found
    assert set(found.values()) == {int(made.valid.sum())}, found
