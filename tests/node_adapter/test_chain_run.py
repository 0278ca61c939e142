"""Nodes of the chain on a simulated clock: what they verify, refuse, agree on and remember."""

from pathlib import Path

import pytest
from _chain import Counting, agree, chain, on_chain, settle, simulate

from node_adapter.chain import Conditions, NodeSettings, Point, Request, by_library, make_pool, requests_of
from node_adapter.chain._messages import Submit
from node_adapter.client import Algorithm


def test_exactly_the_spoilt_transactions_are_rejected(pool, verify):
    requests = requests_of(pool, malformed=4)
    counting = Counting(verify)
    world = simulate(pool, counting, requests=requests)
    settle(world)
    assert {r.name: r.reason for r in requests} == world.client.outcomes
    assert sum(reason is not None for reason in world.client.outcomes.values()) == 24 + 4
    assert agree(world, pool)
    assert len(world.client.latencies) == 36
    assert counting.items[Point.RECEIPT] >= 4 * 55
    assert world.nodes[0].ledger.state().root() == world.nodes[3].state.root()
    world.close()


@pytest.mark.parametrize("seed", [1, 2])
def test_a_seed_gives_one_run(pool, verify, seed):
    runs = []
    for _ in range(2):
        world = simulate(pool, verify, seed=seed, conditions=Conditions(0.001, 0.2, 0.1))
        settle(world, 600)
        runs.append((chain(world.nodes[0]), world.queue.time(), world.network.sent, world.network.lost))
        world.close()
    assert runs[0] == runs[1]
    assert runs[0][3] > 0


def test_ecdsa(tmp_path, verify):
    pool = make_pool(4, 40, algorithm=Algorithm.ECDSA_P256, accounts=6, fault_share=0.4, folder=tmp_path)
    world = simulate(pool, by_library)
    settle(world)
    assert agree(world, pool)
    world.close()


def test_seven_members(pool, verify):
    world = simulate(pool, verify, count=7)
    world.crash(2)
    world.crash(5)
    assert world.run(lambda: world.client.done, 120)
    assert agree(world, pool, (0, 1, 3, 4, 6))
    certificates = [committed.certificate for committed in world.ledgers[0].blocks(1, 100)]
    assert all(len({commit.replica for commit in certificate}) >= 5 for certificate in certificates)
    world.close()


def test_verdicts_may_wait_for_the_proposal(pool, verify):
    counting = Counting(verify)
    good = [request for request in requests_of(pool) if request.reason is None]
    settings = NodeSettings(block_transactions=10, verify_early=False)
    world = simulate(pool, counting, requests=good, settings=settings)
    settle(world)
    assert agree(world, pool)
    assert counting.items[Point.RECEIPT] == 0
    assert counting.items[Point.PROPOSAL] >= 4 * 36
    world.close()


def test_received_transactions_wait_for_others(pool, verify):
    """Clients send one at a time: without the delay a batch has what came during the batches before it."""
    asked = {}
    for delay_s in (0.0, 0.5):
        batches = asked[delay_s] = []

        def noting(question, batches=batches):
            batches.append((question.point, len(question)))
            return verify(question)

        settings = NodeSettings(pool.algorithm, block_transactions=10, receipt_delay_s=delay_s)
        world = simulate(pool, noting, settings=settings)
        settle(world)
        assert agree(world, pool)
        world.close()
    received = {delay_s: [n for point, n in batches if point is Point.RECEIPT] for delay_s, batches in asked.items()}
    assert sum(received[0.5]) >= 4 * 55
    assert len(received[0.5]) < len(received[0.0]) / 2
    assert max(received[0.5]) >= 10, "or until there are enough for a block"


def test_a_primary_drops_what_it_finds_forged_before_it_proposes(pool, verify):
    settings = NodeSettings(block_transactions=10, verify_early=False)
    world = simulate(pool, verify, settings=settings)
    good = {entry.transaction.hash for entry in pool.entries if entry.fault is None}
    assert world.run(lambda: set(on_chain(world.nodes[0])) == good, 600)
    assert all(node.replica.view == 0 for node in world.nodes)
    world.close()


def test_what_was_proposed_and_is_in_no_block_is_forgotten(pool, verify):
    """Two pools full of hashes are kept; what is forgotten is verified again."""
    counting = Counting(verify)
    world = simulate(pool, counting, requests=[])
    good = [entry.transaction for entry in pool.entries if entry.fault is None]
    node = world.nodes[0]
    node.mempool.limit = 5
    for asked in (len(good), 2 * len(good) - 10):
        found = []
        node._verify(good, found.append)
        assert world.run(lambda found=found: bool(found), 60)
        assert found == [[]]
        assert len(node._valid) == 10
        assert counting.items[Point.PROPOSAL] == asked
    world.close()


def test_replays_are_answered_and_not_applied_again(pool, verify):
    world = simulate(pool, verify)
    settle(world)
    heights = [node.ledger.height for node in world.nodes]
    before = world.nodes[0].state.root()
    replayed = [request.data for request in requests_of(pool) if request.reason is None]
    heard = []
    world.client.receive = lambda message, sender: heard.append((sender, message))
    for node in world.nodes:
        node.receive(Submit(tuple(replayed)), 4)
    world.run(lambda: False, world.queue.time() + 5)
    assert [node.ledger.height for node in world.nodes] == heights
    assert world.nodes[0].state.root() == before
    answered = {name for sender, message in heard if sender == 0 for name in message.hashes}
    assert answered == set(on_chain(world.nodes[0]))
    assert all(message.height for _, message in heard)
    world.close()


def test_nonces_of_the_future_do_not_move_the_view(pool, verify):
    """A client that leaves a nonce out has its transactions wait; no primary is blamed for it."""
    requests = [r for r in requests_of(pool) if r.reason is None]
    late = [Request(r.data) for r in requests[len(requests) // 2 :]]
    world = simulate(pool, verify, requests=late)
    world.run(lambda: False, 60)
    assert all(node.replica.view == 0 for node in world.nodes)
    assert any(len(node.mempool) for node in world.nodes)
    world.close()


def test_the_example_of_the_document_runs(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    text = (Path(__file__).parents[2] / "docs" / "chain.md").read_text(encoding="utf-8")
    code = text.partition("```python\n")[2].partition("```")[0]
    exec(compile(code, "docs/chain.md", "exec"), {})
    assert capsys.readouterr().out.startswith("[2, 2, 2, 2] {b'")
