"""The chain's promises over seeded runs, and that the checks notice when one is broken."""

import numpy as np
import pytest
from _chain import members

from node_adapter.chain import Membership, make_pool
from node_adapter.chain import _replica as replica
from node_adapter.chain import _view_change as view_change
from node_adapter.chain.byzantine import BEHAVIOURS
from node_adapter.chain.safety import run_seed

SHORT = range(30)


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pool")
    return make_pool(1, 120, accounts=8, fault_share=0.25, folder=folder, processes=1)


def run(seeds, pool, verify, count=4):
    """The outcomes, of which none may have a violation."""
    outcomes = [run_seed(seed, members(count), pool, verify) for seed in seeds]
    bad = [outcome for outcome in outcomes if outcome.violations]
    assert not bad, "\n".join(map(str, bad))
    return outcomes


def broken(seeds, pool, verify):
    """What is found broken over these seeds, one after the other."""
    for seed in seeds:
        yield from run_seed(seed, members(), pool, verify).violations


def test_promises_hold(pool, verify):
    outcomes = run(SHORT, pool, verify)
    assert {name for outcome in outcomes for name in outcome.byzantine.values()} == set(BEHAVIOURS)
    assert all(outcome.height >= 18 for outcome in outcomes), "90 transactions, at most 5 a block"
    assert max(outcome.views for outcome in outcomes) > 5
    assert sum(outcome.lost for outcome in outcomes) > 1000


def test_promises_hold_with_two_traitors_of_seven(pool, verify):
    run(range(4), pool, verify, count=7)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_promises_hold_over_1_000_seeds(pool, verify):
    run(range(1000), pool, verify)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_promises_hold_with_two_traitors_over_100_seeds(pool, verify):
    run(range(100), pool, verify, count=7)


def test_a_seed_gives_one_outcome(pool, verify):
    assert run_seed(5, members(), pool, verify) == run_seed(5, members(), pool, verify)


def test_skipped_verification_is_noticed(pool):
    found = broken(range(2), pool, lambda question: np.ones(len(question), np.uint8))
    assert any("a transaction with fault" in text for text in found)


def test_a_quorum_of_2f_is_noticed(pool, verify, monkeypatch):
    monkeypatch.setattr(Membership, "quorum", property(lambda self: 2 * self.faulty))
    assert any("committed to different blocks" in text for text in broken(SHORT, pool, verify))


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_a_new_view_that_forgets_what_was_prepared_is_noticed(pool, verify, monkeypatch):
    right = view_change.chosen
    for module in (view_change, replica):
        monkeypatch.setattr(module, "chosen", lambda changes: (right(changes)[0], None))
    assert any("committed to different blocks" in text for text in broken(range(200), pool, verify))


def test_a_chain_that_cannot_recover_is_noticed(pool, verify, monkeypatch):
    monkeypatch.setattr(replica.Replica, "start_view_change", lambda self, view: None)
    assert any("a correct chain lacks good transactions" in text for text in broken(range(3), pool, verify))
