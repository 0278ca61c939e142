"""When received transactions go to the verifier."""

import numpy as np
import pytest

from node_adapter.chain._meter import Meter
from node_adapter.chain._receipts import Receipts, Waits
from node_adapter.chain._transaction import TRANSACTION_SCHEME, Transaction
from verifier.model import Code


class Host:
    """A clock that is set, timers that are rung, and a verifier that answers when it is told to."""

    def __init__(self):
        self.time, self.timers, self.asked = 0.0, [], []

    def now(self):
        return self.time

    def call_later(self, delay_s, callback):
        timer = Timer(self.time + delay_s, callback)
        self.timers.append(timer)
        return timer

    def verify(self, question, answer):
        self.asked.append((question, answer))

    def advance(self, time):
        self.time = time
        due = [timer for timer in self.timers if timer.when <= time]
        self.timers = [timer for timer in self.timers if timer not in due]
        for timer in due:
            if not timer.cancelled:
                timer.callback()

    @property
    def sizes(self):
        return [len(question) for question, _ in self.asked]

    def answer(self, batch, code=Code.VALID):
        question, answer = self.asked[batch]
        answer(np.full(len(question), code, np.uint8))


class Timer:
    def __init__(self, when, callback):
        self.when, self.callback, self.cancelled = when, callback, False

    def cancel(self):
        self.cancelled = True


def some(start, stop):
    """By their hashes, as a node has them."""
    return {received[0].hash: received for received in pairs(start, stop)}


def pairs(start, stop):
    return [(Transaction(1, n, bytes([n]) * 64, bytes(20), n, b"p" * n, bytes([n])), 9) for n in range(start, stop)]


class Case:
    def __init__(self, delay_s, under_way=2):
        self.host, self.used, self.hungry = Host(), [], True
        self.receipts = Receipts(
            self.host,
            TRANSACTION_SCHEME,
            Waits(delay_s, enough=4, under_way=under_way, retry_s=0.5),
            Meter(),
            hungry=lambda: self.hungry,
            use=lambda received, codes: self.used.append((list(received), codes.tolist())),
        )


def test_without_a_delay_a_batch_is_what_came_while_others_were_under_way():
    case = Case(0.0)
    for start in range(0, 10, 2):
        case.receipts.add(some(start, start + 2))
    assert case.host.sizes == [2, 2]
    case.host.answer(1)
    assert case.host.sizes == [2, 2, 6]
    assert case.used == [(pairs(2, 4), [Code.VALID] * 2)]


def test_a_batch_has_the_columns_of_its_transactions():
    case = Case(0.1)
    case.receipts.add(some(0, 2))
    case.receipts.add(some(2, 3))
    case.host.advance(0.1)
    ((question, _),) = case.host.asked
    batch = [transaction for transaction, _ in pairs(0, 3)]
    assert question.inputs == [transaction.signed for transaction in batch]
    assert question.signatures == [transaction.signature for transaction in batch]
    assert question.keys == [transaction.key for transaction in batch]
    case.receipts.add(some(3, 4))
    assert len(question) == 3, "what comes later is in another batch"


def test_a_batch_waits_for_the_delay_from_its_first():
    case = Case(0.1)
    case.hungry = False
    case.receipts.add(some(0, 3))
    case.host.advance(0.06)
    case.receipts.add(some(3, 9))
    assert case.host.sizes == []
    case.host.advance(0.1)
    assert case.host.sizes == [9]


def test_it_does_not_wait_where_the_node_could_not_fill_a_block_without_it():
    case = Case(0.1)
    case.receipts.add(some(0, 3))
    assert case.host.sizes == []
    case.receipts.add(some(3, 5))
    assert case.host.sizes == [5]
    case.host.advance(0.2)
    assert case.host.sizes == [5], "its timer is called off"


def test_it_stops_waiting_when_the_pool_becomes_too_small_for_a_block():
    case = Case(0.1)
    case.hungry = False
    case.receipts.add(some(0, 6))
    case.hungry = True
    case.receipts.go()
    assert case.host.sizes == [6]


@pytest.mark.parametrize("code", [Code.VALID, Code.INVALID])
def test_it_knows_what_waits_and_what_is_at_the_verifier(code):
    case = Case(0.0, under_way=1)
    case.receipts.add(some(0, 1))
    case.receipts.add(some(1, 2))
    names = [transaction.hash for transaction, _ in pairs(0, 3)]
    assert [name in case.receipts for name in names] == [True, True, False]
    case.host.answer(0, code)
    assert [name in case.receipts for name in names] == [False, True, False]
    assert case.used == [(pairs(0, 1), [code])]


def test_what_is_undecided_is_asked_again_and_not_used():
    case = Case(0.0, under_way=1)
    case.receipts.add(some(0, 2))
    case.host.answer(0, Code.UNDECIDED)
    assert case.used == []
    assert pairs(0, 1)[0][0].hash in case.receipts
    case.host.advance(0.5)
    assert case.host.sizes == [2, 2]
    case.host.answer(1)
    assert case.used == [(pairs(0, 2), [Code.VALID] * 2)]


def test_one_that_is_stopped_asks_nothing_more():
    case = Case(0.1)
    case.receipts.add(some(0, 2))
    case.receipts.stop()
    case.host.advance(0.2)
    case.receipts.add(some(2, 9))
    assert case.host.sizes == []
