"""The chain against a mock daemon that verifies with Python integers."""

from dataclasses import replace

import _sm2
import grpc
import pytest

from node_adapter.chain import Phase, Simulation, State, Validator, catch_up, make_pool
from node_adapter.chain._block import Vote
from node_adapter.chain._checker import Checker
from node_adapter.client import MockVerifier, Retry, VerifierClient
from node_adapter.errors import ChainError, UndecidedError
from verifier.model import Code


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    return make_pool(3, 30, accounts=4, fault_share=0.5, folder=tmp_path_factory.mktemp("pool"), processes=1)


def quick(target):
    return VerifierClient(target, retry=Retry(attempts=2, base_s=0.001, cap_s=0.001))


def test_exactly_the_spoilt_transactions_are_rejected(pool):
    with MockVerifier(_sm2.verify) as daemon:
        simulation = Simulation(daemon.target, pool, seed=3, block_transactions=20, connect=quick)
        blocks = []
        report = simulation.run(blocks.append)
    assert report.ok, report.mismatches
    assert blocks == [20, 10]
    assert (report.blocks, report.transactions) == (2, 30)
    assert report.rejected == report.expected
    assert sum(report.rejected.values()) == 15
    assert len(set(report.states)) == 1
    for validator in simulation.validators:
        for committed in validator.blocks:
            assert len(committed.votes) >= 3
            assert {vote.phase for vote in committed.votes} == {Phase.COMMIT}
    # Each block: transactions, the proposer's signature, 4 votes twice, at each of 4 validators.
    assert report.verifications == 4 * (30 + 2 * (1 + 4 + 4))
    assert set(report.served) == {("mock@0.0.0#1", "mock")}
    assert simulation.late.height == 2
    assert report.states[-1] == simulation.late.state.root().hex()
    assert report.sync.items == 30


def test_two_runs_are_equal(pool):
    states = []
    for _ in range(2):
        with MockVerifier(_sm2.verify) as daemon:
            states.append(Simulation(daemon.target, pool, seed=3, block_transactions=30).run().states)
    assert states[0] == states[1]


def test_a_daemon_that_passes_everything_is_caught(pool):
    with MockVerifier() as daemon:
        report = Simulation(daemon.target, pool, seed=3, block_transactions=30).run()
    assert not report.ok
    assert any("came out applied, not" in text for text in report.mismatches)


def test_a_daemon_that_is_wrong_about_one_transaction_is_caught(pool):
    good = next(entry.transaction for entry in pool.entries if entry.fault is None)

    def wrong(items):
        codes = _sm2.verify(items)
        return [Code.INVALID if m == good.body() else c for m, c in zip(items.inputs, codes, strict=True)]

    with MockVerifier(wrong) as daemon:
        report = Simulation(daemon.target, pool, seed=3, block_transactions=30).run()
    assert not report.ok
    assert any("(good) came out INVALID, not applied" in text for text in report.mismatches)


def test_undecided_stops_the_chain_and_rejects_nothing(pool):
    with MockVerifier(_sm2.verify) as daemon:
        simulation = Simulation(daemon.target, pool, seed=3, connect=quick)
        simulation.validators[0].checker.client.limits()
        daemon.fail(grpc.StatusCode.UNAVAILABLE, times=10_000)
        with pytest.raises(UndecidedError):
            simulation.run()
    assert all(validator.height == 0 for validator in simulation.validators)


def test_forged_votes_and_foreign_proposals_do_not_count(pool):
    with MockVerifier(_sm2.verify) as daemon:
        simulation = Simulation(daemon.target, pool, seed=3, block_transactions=5, connect=quick)
        first, second = simulation.validators[:2]
        proposal = first.propose(5)
        assert second.propose(5) is None
        second.receive(proposal)
        second.begin()
        (prepare,) = second.finish()
        assert prepare.phase is Phase.PREPARE
        # Votes in the names of three others, signed by nobody: no quorum comes of them.
        for number in (0, 2, 3):
            second.receive(Vote(Phase.PREPARE, 0, 0, prepare.block, prepare.result, number, prepare.signature))
        second.receive(prepare)
        second.begin()
        assert second.finish() == []
        # The same vote many times is one vote.
        for _ in range(4):
            second.receive(prepare)
        second.begin()
        assert second.finish() == []
        assert second.height == 0
        for validator in simulation.validators:
            validator.checker.client.close()
        simulation.late.checker.client.close()


def test_a_proposal_signed_by_another_is_not_voted_for(pool):
    with MockVerifier(_sm2.verify) as daemon:
        simulation = Simulation(daemon.target, pool, seed=3, block_transactions=5, connect=quick)
        first, second = simulation.validators[:2]
        proposal = first.propose(5)
        forged = type(proposal)(proposal.block, 0, second.key.sign(proposal.block.header.body()))
        second.receive(forged)
        second.begin()
        assert second.finish() == []
        later = type(proposal)(proposal.block, 1, proposal.signature)
        second.receive(later)
        assert second._proposals == []
        for validator in simulation.validators:
            validator.checker.client.close()
        simulation.late.checker.client.close()


def test_too_few_validators(pool):
    with pytest.raises(ChainError, match="3 validators"):
        Simulation("127.0.0.1:1", pool, seed=3, validators=3)


@pytest.fixture(scope="module")
def run(pool):
    """A finished chain of four blocks, and a daemon for nodes that catch up with it."""
    with MockVerifier(_sm2.verify) as daemon:
        simulation = Simulation(daemon.target, pool, seed=3, block_transactions=8, connect=quick)
        assert simulation.run().ok
        yield daemon, simulation


@pytest.fixture
def newcomer(run, pool):
    daemon, simulation = run
    with quick(daemon.target) as client:
        member = simulation.validators[0]
        yield Validator(9, 1, member.key, member.members, Checker(client, 30), State(pool.balances))


def test_catching_up_in_parts(run, newcomer):
    blocks = run[1].validators[0].blocks
    catch_up(newcomer, [])
    catch_up(newcomer, blocks[:1])
    catch_up(newcomer, blocks[1:])
    assert newcomer.state.root() == run[1].validators[0].state.root()
    assert [committed.reasons for committed in newcomer.blocks] == [committed.reasons for committed in blocks]


def without_a_vote(committed):
    return replace(committed, votes=committed.votes[:2])


def one_vote_thrice(committed):
    return replace(committed, votes=committed.votes[:1] * 3)


def forged_votes(committed):
    return replace(committed, votes=tuple(replace(v, signature=bytes(63) + b"\1") for v in committed.votes))


def votes_in_others_names(committed):
    first = committed.votes[0]
    return replace(committed, votes=tuple(replace(first, validator=number) for number in range(4)))


def votes_of_strangers(committed):
    return replace(committed, votes=tuple(replace(v, validator=v.validator + 4) for v in committed.votes))


@pytest.mark.parametrize(
    "spoil", [without_a_vote, one_vote_thrice, forged_votes, votes_in_others_names, votes_of_strangers]
)
def test_a_block_without_a_quorum_is_not_adopted(run, newcomer, spoil):
    blocks = list(run[1].validators[0].blocks)
    blocks[2] = spoil(blocks[2])
    with pytest.raises(ChainError, match=r"block 2: \d of 4 members vote for its result; 3 are needed"):
        catch_up(newcomer, blocks)
    assert newcomer.height == 2


def test_a_block_with_other_transactions_does_not_follow(run, newcomer):
    blocks = list(run[1].validators[0].blocks)
    fewer = replace(blocks[1].block, transactions=blocks[1].block.transactions[1:])
    blocks[1] = replace(blocks[1], block=fewer)
    with pytest.raises(ChainError, match="block 1: what was offered does not follow"):
        catch_up(newcomer, blocks)
    with pytest.raises(ChainError, match="block 1: what was offered does not follow"):
        catch_up(newcomer, run[1].validators[0].blocks[2:])


def test_a_late_node_with_a_wrong_daemon_finds_no_quorum(run, newcomer, pool):
    """It finds another result than the members voted for, and stops rather than follow."""
    everything_valid = lambda items: [Code.VALID] * len(items.inputs)  # noqa: E731
    with MockVerifier(everything_valid) as daemon, quick(daemon.target) as client:
        newcomer.checker = Checker(client, 30)
        with pytest.raises(ChainError, match="0 of 4 members vote for its result"):
            catch_up(newcomer, run[1].validators[0].blocks)
