"""Nodes and daemons that were away come back, catch up, and take only what a quorum committed to."""

import msgspec
import numpy as np
import pytest
from _chain import Counting, agree, members, settle, simulate

from node_adapter.chain import Block, Ledger, NodeSettings, Point, Simulation, by_library, make_pool, requests_of
from node_adapter.chain._messages import BlockRequest, Blocks, Committed, Status
from node_adapter.client import Algorithm
from node_adapter.errors import ChainError
from verifier.model import Code


def test_without_a_quorum_nothing_is_committed(pool, verify):
    world = simulate(pool, verify)
    world.crash(2)
    world.crash(3)
    assert not world.run(lambda: any(node.ledger.height for node in world.nodes), 60)
    world.restart(2)
    assert world.run(lambda: world.client.done, 600)
    assert agree(world, pool, (0, 1, 2))
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
        if not killed and world.nodes[1].receipts.under_way and world.nodes[1].ledger.height:
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


def test_who_speaks_of_blocks_and_gives_none_keeps_nobody_from_catching_up(pool, verify, finished):
    world = simulate(pool, verify, requests=[])
    late, blocks = world.nodes[3], finished.ledgers[0].blocks(1, 100)
    far = Status(0, 1 << 40, True)
    late.receive(far, 4)  # a client is no peer
    late.receive(far, 1)
    world.run(lambda: False, 6)  # as long as an answer may take
    late.receive(far, 1)  # again before anybody else
    late.receive(Status(0, len(blocks), True), 2)
    late.receive(Blocks(blocks), 2)
    world.run(lambda: False, 8)
    assert late.state.root() == finished.nodes[0].state.root()
    # Where more than f gave nothing a correct one is among them.
    late.catch_up.behind(1)
    late.catch_up.behind(2)
    world.run(lambda: False, 16)
    assert not late.catch_up._passed_over
    world.close()


@pytest.mark.parametrize("first", [-(1 << 63), -1, 0, 1 << 20, (1 << 63) - 1, (1 << 64) - 1])
def test_a_request_for_blocks_that_there_cannot_be_is_not_answered(finished, first):
    node = finished.nodes[0]
    height = node.ledger.height
    node.receive(BlockRequest(first, 250), 1)
    assert (node.problem, node.ledger.height) == (None, height)


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
