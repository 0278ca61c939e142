"""The plugins and independent libraries give the same verdicts on random items, good and spoilt."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from verifier.bench.peers import peers_for
from verifier.bench.rig import Rig, columns_of
from verifier.bench.signatures import CURVES, FAULTS, make_signatures
from verifier.model import Code

PLUGINS = Path(__file__).resolve().parents[2] / "plugins"
PLUGIN_OF = {"SM2": "sm2", "ECDSA_P256": "ecdsa", "ECDSA_SECP256K1": "ecdsa"}
# gmssl looks at neither ranges nor keys, so it can judge only what is well formed.
WELL_FORMED = [name for name, (_, code) in FAULTS.items() if code == Code.INVALID]
PART = 50  # items whose valid ones are counted together: two errors would have to fall into one and cancel


@pytest.mark.parametrize("items", [200, pytest.param(20_000, marks=[pytest.mark.long, pytest.mark.timeout(3600)])])
@pytest.mark.parametrize("algorithm", CURVES)
def test_oracles(algorithm, items):
    made = make_signatures(algorithm, items, seed=31, keys=64, fault_share=0.1, faults=WELL_FORMED)
    with Rig("cpu", PLUGINS / PLUGIN_OF[algorithm], PLUGINS / "common") as rig:
        slot = rig.fill("verify", algorithm, columns_of(made), items)
        rig.run(slot)
        assert np.array_equal(slot.codes, made.codes)
    oracles = dict(peers_for(algorithm))
    assert oracles, "no library to compare with"
    for begin in range(0, items, PART):
        part = made.part(begin, begin + PART)
        found = {name: peer(part) for name, peer in oracles.items()}
        assert set(found.values()) == {int(part.valid.sum())}, (begin, found)
