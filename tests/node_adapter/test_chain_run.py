"""Nodes of the chain on a simulated clock: what they verify, refuse, agree on and remember."""

import contextlib
import random
from pathlib import Path

import msgspec
import numpy as np
import pytest
from _chain import chain, members, on_chain, real_verdicts, simulate

from node_adapter.chain import (
    Block,
    Conditions,
    Ledger,
    NodeSettings,
    Point,
    Request,
    Simulation,
    by_library,
    make_pool,
    requests_of,
)
from node_adapter.chain._messages import Blocks, Committed, Submit
from node_adapter.chain.byzantine import Conspiracy, Equivocator, Forger, Liar, SilentPrimary
from node_adapter.client import Algorithm
from node_adapter.errors import ChainError
from verifier.model import Code


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    return make_pool(3, 60, accounts=6, fault_share=0.4, folder=tmp_path_factory.mktemp("pool"), processes=1)


@pytest.fixture(scope="module")
def verify():
    with contextlib.ExitStack() as stack:
        yield real_verdicts(stack)


class Counting:
    """A verifier that says which points of a node's work asked it."""

    def __init__(self, verify):
        self.verify, self.items = verify, dict.fromkeys(Point, 0)

    def __call__(self, question):
        self.items[question.point] += len(question)
        return self.verify(question)


def agree(world, pool, numbers=range(4)):
    """Soon every good transaction is on these nodes' chains, exactly once, and no other; the chains are equal."""
    good = {entry.transaction.hash for entry in pool.entries if entry.fault is None}
    nodes = [world.nodes[number] for number in numbers]
    level = world.run(lambda: len({node.ledger.height for node in nodes}) == 1, world.queue.time() + 60)
    return (
        level
        and len({tuple(chain(node)) for node in nodes}) == 1
        and set(on_chain(nodes[0])) == good
        and len(on_chain(nodes[0])) == len(good)
    )


def settle(world, limit_s=120):
    """Runs until the client has its answers, and the nodes the same height."""
    assert world.run(lambda: world.client.done, limit_s), "the client was not answered"
    assert world.run(lambda: len({node.ledger.height for node in world.nodes}) == 1, limit_s)


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


def test_without_a_quorum_nothing_is_committed(pool, verify):
    world = simulate(pool, verify)
    world.crash(2)
    world.crash(3)
    assert not world.run(lambda: any(node.ledger.height for node in world.nodes), 60)
    world.restart(2)
    assert world.run(lambda: world.client.done, 600)
    assert agree(world, pool, (0, 1, 2))
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


def dressed(behaviour, *numbers, seed=1):
    return Conspiracy(random.Random(seed)).dress(dict.fromkeys(numbers, behaviour))


def test_a_forged_proposal_moves_the_view_and_never_the_chain(pool, verify):
    world = simulate(pool, verify, dress=dressed(Forger, 0))
    assert world.run(lambda: world.client.done, 300)
    assert agree(world, pool, (1, 2, 3))
    assert {node.replica.view for node in world.nodes[1:]} != {0}
    world.close()


def test_without_verification_on_proposal_the_forged_one_is_accepted(pool, verify):
    """The test before this one tests something."""

    def careless(question):
        return np.ones(len(question), np.uint8) if question.point is Point.PROPOSAL else verify(question)

    world = simulate(pool, careless, dress=dressed(Forger, 0))
    good = {entry.transaction.hash for entry in pool.entries if entry.fault is None}
    assert world.run(lambda: bool(set(on_chain(world.nodes[1])) - good), 300)
    world.close()


def test_equivocation_is_survived(pool, verify):
    world = simulate(pool, verify, dress=dressed(Equivocator, 0))
    assert world.run(lambda: world.client.done, 300)
    assert agree(world, pool, (1, 2, 3))
    world.close()


def test_a_silent_primary_is_replaced(pool, verify):
    world = simulate(pool, verify, dress=dressed(SilentPrimary, 0))
    assert world.run(lambda: world.client.done, 300)
    assert agree(world, pool, (1, 2, 3))
    assert world.nodes[1].replica.view == 1
    world.close()


def test_undecided_is_neither_applied_nor_rejected(pool, verify):
    """Every daemon is down: nothing happens. They come back: everything does."""
    world = simulate(pool, verify)
    for number in range(4):
        world.crash_daemon(number)
    world.run(lambda: False, 30)
    assert not any(node.ledger.height for node in world.nodes)
    assert not any(reason in Code.__members__ for reason in world.client.outcomes.values())
    for number in range(4):
        world.restart_daemon(number)
    settle(world, 300)
    assert agree(world, pool)
    world.close()


def test_a_daemon_that_dies_mid_block_costs_nothing(pool, verify):
    world = simulate(pool, verify, verification_s=(0.2, 0.4))
    killed = []

    def kill_mid_block():
        if not killed and world.nodes[1]._asked and world.nodes[1].ledger.height:
            world.crash_daemon(1)
            world.queue.call_later(3, lambda: world.restart_daemon(1))
            killed.append(world.nodes[1].ledger.height)
        return world.client.done

    assert world.run(kill_mid_block, 300)
    assert killed
    settle(world)
    assert agree(world, pool)
    world.close()


def test_a_crashed_node_comes_back_from_its_disk(pool, verify, tmp_path):
    ledgers = [Ledger(tmp_path / f"{number}.sqlite", 1, pool.balances) for number in range(4)]
    counting = Counting(verify)
    world = simulate(pool, counting, ledgers=ledgers)
    world.run(lambda: world.nodes[3].ledger.height == 1, 60)
    world.crash(3)
    ledgers[3].close()
    assert world.run(lambda: world.client.done, 60)
    ledgers[3] = world.ledgers[3] = Ledger(tmp_path / "3.sqlite", 1, {})
    assert ledgers[3].height == 1
    world.restart(3)
    assert world.nodes[3].ledger.height == 1
    settle(world)
    assert agree(world, pool)
    assert counting.items[Point.SYNC] > 0
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


def test_a_late_node_with_a_wrong_daemon_stops(pool, verify):
    """A quorum committed to transactions that its daemon calls invalid: it does not follow, and says so."""

    def wrong_on_sync(question):
        return np.full(len(question), Code.INVALID, np.uint8) if question.keys[0][0] != 4 else verify(question)

    world = simulate(pool, lambda q: wrong_on_sync(q) if q.point is Point.SYNC else verify(q))
    world.crash(3)
    assert world.run(lambda: world.client.done, 60)
    world.restart(3)
    assert world.run(lambda: world.nodes[3].problem is not None, 60)
    assert "block 1: a quorum committed to it, and here 10 signatures are not valid" in world.nodes[3].problem
    assert world.nodes[3].ledger.height == 0
    world.close()


@pytest.fixture(scope="module")
def finished(pool, verify):
    world = simulate(pool, verify)
    settle(world)
    yield world
    world.close()


def without_a_vote(committed):
    return Committed(committed.block, committed.certificate[:2])


def one_vote_thrice(committed):
    return Committed(committed.block, committed.certificate[:1] * 3)


def forged_votes(committed):
    return Committed(committed.block, tuple(c.with_signature(c.signature[::-1]) for c in committed.certificate))


def votes_in_others_names(committed):
    first = committed.certificate[0]
    return Committed(
        committed.block, tuple(msgspec.structs.replace(first, replica=n) for n in range(len(committed.certificate)))
    )


def votes_of_strangers(committed):
    return Committed(
        committed.block, tuple(msgspec.structs.replace(c, replica=c.replica + 4) for c in committed.certificate)
    )


def fewer_transactions(committed):
    block = Block(committed.block.header, committed.block.transactions[1:])
    return Committed(block, committed.certificate)


@pytest.mark.parametrize(
    "spoil",
    [
        without_a_vote,
        one_vote_thrice,
        forged_votes,
        votes_in_others_names,
        votes_of_strangers,
        fewer_transactions,
    ],
)
def test_a_block_without_a_quorum_is_not_taken(pool, verify, finished, spoil):
    """The peer that a late node asks spoils its third block: two are taken, and no peer can do more."""
    world = simulate(pool, verify, requests=[])
    late = world.nodes[3]
    blocks = list(finished.ledgers[0].blocks(1, 100))
    late.catch_up.behind(1)
    late.receive(Blocks((*blocks[:2], spoil(blocks[2]), *blocks[3:])), 1)
    world.run(lambda: False, 2)
    assert late.ledger.height == 2
    assert late.problem is None
    late.catch_up.behind(1)
    late.receive(Blocks(tuple(blocks[2:])), 2)
    assert late.ledger.height == 2, "nobody asked node 2"
    late.receive(Blocks(tuple(blocks[2:])), 1)
    world.run(lambda: False, 4)
    assert late.state.root() == finished.nodes[0].state.root()
    world.close()


def test_lies_do_not_stop_the_chain(pool, verify):
    world = simulate(pool, verify, dress=dressed(Liar, 2), conditions=Conditions(0.001, 0.05, 0.05))
    assert world.run(lambda: world.client.done, 600)
    assert agree(world, pool, (0, 1, 3))
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


def test_a_ledger_takes_only_what_follows(pool, finished):
    ledger = Ledger(None, 1, pool.balances)
    with pytest.raises(ChainError, match="block 2 does not follow block 0"):
        ledger.append(finished.ledgers[0].blocks(2, 1)[0], ledger.state())
    with pytest.raises(ChainError, match="there is no block 5"):
        ledger.hash(5)
    ledger.close()


def catch_up_with(blocks, tmp_path):
    """A node that was away while `blocks` blocks of two transactions were made, on disks, comes back."""
    pool = make_pool(8, 2 * blocks, algorithm=Algorithm.ECDSA_P256, accounts=20, fault_share=0, folder=tmp_path)
    ledgers = [Ledger(tmp_path / f"{number}.sqlite", 1, pool.balances) for number in range(4)]
    for ledger in ledgers:
        ledger._database.execute("PRAGMA synchronous = OFF")  # a test's disk need not survive a power failure
    settings = NodeSettings(Algorithm.ECDSA_P256, block_transactions=2, view_timeout_s=60)
    counting = Counting(by_library)
    world = Simulation(
        members(), pool, requests_of(pool), counting, seed=1, settings=settings, ledgers=ledgers, window=64
    )
    world.crash(3)
    assert world.run(lambda: world.client.done, 1e6)
    assert world.nodes[0].ledger.height >= blocks
    world.restart(3)
    assert world.run(lambda: world.nodes[3].ledger.height == world.nodes[0].ledger.height, 2e6)
    assert world.nodes[3].ledger.state().root() == world.nodes[0].state.root()
    assert counting.items[Point.SYNC] == 2 * blocks + sum(
        len(committed.certificate) for committed in ledgers[3].blocks(1, 1 << 20)
    )
    world.close()


def test_catching_up_300_blocks(tmp_path):
    catch_up_with(300, tmp_path)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_catching_up_10_000_blocks(tmp_path):
    catch_up_with(10_000, tmp_path)


def test_the_example_of_the_document_runs(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    text = (Path(__file__).parents[2] / "docs" / "chain.md").read_text(encoding="utf-8")
    code = text.partition("```python\n")[2].partition("```")[0]
    exec(compile(code, "docs/chain.md", "exec"), {})
    assert capsys.readouterr().out.startswith("[2, 2, 2, 2] {b'")
