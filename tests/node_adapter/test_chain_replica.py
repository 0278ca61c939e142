"""What a replica says is on its disk first: a crash between the two must not make it say something else."""

from _chain import members

from node_adapter.chain._block import GENESIS, Block, Header, transactions_root
from node_adapter.chain._ledger import Ledger
from node_adapter.chain._messages import NewView, Prepare, Prepared, PrePrepare, ViewChange
from node_adapter.chain._replica import Replica
from node_adapter.chain._state import State
from node_adapter.chain._transaction import Transaction

IDS = members()
TX = Transaction(1, 0, b"k" * 64, b"r" * 20, 1, b"payload", b"signature")
BLOCK = Block(Header(1, 1, GENESIS, 0, transactions_root((TX,)), b"s" * 32), (TX,))
PROPOSAL = IDS[0].sign(PrePrepare(0, 1, BLOCK.hash, 0, BLOCK))
PREPARED = Prepared(PROPOSAL, tuple(IDS[n].sign(Prepare(0, 1, BLOCK.hash, n)) for n in (2, 3)))


class Timer:
    def cancel(self):
        pass


class Host:
    """Keeps what is sent, and what was on the disk at that moment."""

    def __init__(self, ledger):
        self.ledger = ledger
        self.sent = []

    def now(self):
        return 0.0

    def send(self, to, message):
        self.sent.append((message, self.ledger.view(), self.ledger.vote(), self.ledger.prepared()))

    def call_later(self, delay_s, callback):
        return Timer()

    def of(self, kind):
        return [(message, *disk) for message, *disk in self.sent if isinstance(message, kind)]


class Node:
    """Takes every proposal for good."""

    def check(self, block, done):
        done(State(1, {}))

    def commit(self, committed, state):
        raise AssertionError("no quorum of commits was sent")

    def has_work(self):
        return False

    def view_entered(self):
        pass


def replica(number):
    ledger = Ledger(None, 1, {})
    host = Host(ledger)
    return Replica(IDS[number], host, ledger, Node(), 1.0), host


def change(number, prepared=None):
    return IDS[number].sign(ViewChange(1, 0, GENESIS, (), prepared, number))


def test_a_primary_keeps_the_view_that_it_begins_before_it_tells_of_it():
    one, host = replica(1)
    for message in (change(0), change(2, PREPARED), change(3)):
        one.receive_view_change(message)
    told = host.of(NewView)
    assert len(told) == 3  # to every other member
    for message, view, *_ in told:
        assert view == (1, message)
        assert message.pre_prepare.digest == BLOCK.hash
    assert one.active
    assert host.ledger.view() == (1, told[0][0])


def test_a_member_keeps_its_view_before_it_gives_the_earlier_one_up():
    one, host = replica(2)
    one.start_view_change(1)
    assert [view for _, view, *_ in host.of(ViewChange)] == [(1, None)] * 3


def test_a_backup_keeps_its_vote_and_its_certificate_before_it_sends_them():
    one, host = replica(1)
    one.receive_pre_prepare(PROPOSAL)
    prepares = host.of(Prepare)
    assert len(prepares) == 3
    assert all(vote == (0, 1, BLOCK.hash) for _, _, vote, _ in prepares)
    for prepare in PREPARED.prepares:
        one.receive_vote(prepare)
    commits = [entry for entry in host.sent if type(entry[0]).__name__ == "Commit"]
    assert len(commits) == 3
    assert all(prepared.pre_prepare == PROPOSAL for *_, prepared in commits)
