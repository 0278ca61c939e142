"""Chains for tests: pools, verdicts of a real verifier, and simulated worlds."""

import functools

from node_adapter import LocalVerifier
from node_adapter.chain import (
    MEMBER_SCHEME,
    NodeSettings,
    Point,
    RememberedVerdicts,
    Simulation,
    by_library,
    by_middleware,
    issue_members,
    requests_of,
)


@functools.cache
def members(count=4):
    return issue_members(7, count)


def real_verdicts(stack):
    """Transactions by the plugin on this machine's CPU, members' signatures by OpenSSL, each once."""
    middleware = by_middleware(stack.enter_context(LocalVerifier(["sm2"], trust_any=True)).client())
    return RememberedVerdicts(lambda q: by_library(q) if q.scheme == MEMBER_SCHEME else middleware(q))


def simulate(pool, verify, *, seed=1, count=4, requests=None, **options):
    settings = options.pop("settings", NodeSettings(pool.algorithm, block_transactions=10))
    requests = requests_of(pool) if requests is None else requests
    return Simulation(members(count), pool, requests, verify, seed=seed, settings=settings, **options)


def chain(node):
    """The hashes of a node's blocks, from its disk."""
    return [committed.block.hash for committed in node.ledger.blocks(1, node.ledger.height)]


def on_chain(node):
    """The hashes of a node's transactions, in order."""
    blocks = node.ledger.blocks(1, node.ledger.height)
    return [transaction.hash for committed in blocks for transaction in committed.block.transactions]


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
