"""Members of the chain that lie, forge, equivocate or say nothing, on a simulated clock."""

import random

import numpy as np
from _chain import agree, on_chain, simulate

from node_adapter.chain import Conditions, Point
from node_adapter.chain.byzantine import Conspiracy, Equivocator, Forger, Liar, SilentPrimary


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


def test_lies_do_not_stop_the_chain(pool, verify):
    world = simulate(pool, verify, dress=dressed(Liar, 2), conditions=Conditions(0.001, 0.05, 0.05))
    assert world.run(lambda: world.client.done, 600)
    assert agree(world, pool, (0, 1, 3))
    world.close()
