"""Every call of a front end is answered once, and not before nobody reads its columns, whenever it is cancelled."""

import gc
import socket
import threading
import weakref
from functools import partial
from multiprocessing.connection import Connection

import numpy as np
import pytest
from _waiting import until

from verifier.attended import Attended
from verifier.channel import Channel
from verifier.errors import RequestError
from verifier.frontend._messages import Call, Cancel, Counts, FromCore, FromFrontEnd, Span
from verifier.frontend._session import Session
from verifier.regions import Region
from verifier.v1 import verifier_pb2 as pb

CANCELLED = 1


class Accepted:
    """A call that the scheduler has: a test says when it is done, and when its columns are read no more."""

    def __init__(self, released, attend=None):
        self.future = Attended()
        self.future.attend = attend and partial(attend, self)
        self.released = released
        self.answered_by = None

    def answer(self):
        self.answered_by = threading.current_thread()
        return self.future.result()


class Operations:
    """Stands for the scheduler, whose threads cannot be told when to pause."""

    def __init__(self):
        self.accepted = []
        self.requests = []
        self.attend = None  # what is done to a call by a thread that has nothing else to do

    def submit(self, rpc, request, *, deadline, caller, released, digested):
        if request.items == 0:
            raise RequestError("items", "0; a batch has 1 or more")
        self.requests.append(request)
        self.accepted.append(Accepted(released, self.attend))
        return self.accepted[-1]


class FrontEnd:
    """The other end of the socket. The core takes messages in order, so that `send` of another call ends a wait."""

    def __init__(self):
        ours, theirs = socket.socketpair()
        self.operations = Operations()
        self.region = Region.create(1 << 16)
        self._mine = Connection(ours.detach())
        self.channel = Channel(self._mine, FromCore)
        self._socket = Connection(theirs.detach())
        self.told = lambda _: None
        self.session = Session(
            Channel(self._socket, FromFrontEnd),
            self.region,
            self.operations,
            lambda message: self.told(message),
            lambda: None,
        )
        self.session.start()

    def call(self, number, items=1, spans=(), priority=pb.PRIORITY_POOL):
        message = pb.VerifyRequest(items=items, priority=priority).SerializeToString()
        self.channel.send(Call(number, "Verify", message, spans, 0, 64, None, "caller"))

    def cancel(self, number):
        self.channel.send(Cancel(number))

    def receive(self):
        assert self._mine.poll(10), "nothing was answered"
        return self.channel.receive()

    def settle(self):
        """Returns when the core has taken everything that was sent."""
        self.call(99, items=0)
        answer = self.receive()
        assert answer.id == 99, f"call {answer.id} was answered, and nothing else was due"

    def close(self):
        self.channel.close()
        self.session.join()
        self._socket.close()
        self.operations.requests.clear()  # whose columns keep the region mapped


@pytest.fixture
def front_end():
    found = FrontEnd()
    yield found
    found.close()


def test_a_call_that_is_done_is_answered_when_its_columns_are_free(front_end):
    front_end.call(1)
    front_end.settle()
    (accepted,) = front_end.operations.accepted
    accepted.future.set_running_or_notify_cancel()
    accepted.future.set_result(b"done")
    front_end.settle()
    assert front_end.region.uses == 1
    accepted.released()
    answer = front_end.receive()
    assert (answer.id, answer.code, answer.body) == (1, 0, b"done")
    assert front_end.region.uses == 0


def test_a_cancelled_call_is_answered_when_its_columns_are_free(front_end):
    front_end.call(1)
    front_end.cancel(1)
    front_end.settle()
    (accepted,) = front_end.operations.accepted
    assert accepted.future.cancelled()
    accepted.released()
    answer = front_end.receive()
    assert (answer.id, answer.code) == (1, CANCELLED)


def test_a_call_that_is_cancelled_between_its_columns_and_its_result_is_answered_too(front_end):
    front_end.call(1)
    front_end.settle()
    (accepted,) = front_end.operations.accepted
    accepted.released()  # as the scheduler does, just before it sets the result
    front_end.cancel(1)
    answer = front_end.receive()
    assert (answer.id, answer.code) == (1, CANCELLED)
    assert accepted.future.cancelled()
    front_end.settle()
    assert front_end.session.open_calls == 0


def test_offsets_that_a_front_end_changes_later_are_those_that_were_checked(front_end):
    offsets = np.array([0, 10, 32], "<u4").view(np.uint8)
    front_end.region.memory[64:76] = offsets
    front_end.call(1, items=2, spans=(Span("signature", 0, 32, 64, 12),))
    front_end.settle()
    front_end.region.memory[64:76] = 0xFF
    (request,) = front_end.operations.requests
    assert bytes(request.signature.offsets) == offsets.tobytes()
    (accepted,) = front_end.operations.accepted
    accepted.released()
    accepted.future.set_result(b"done")
    assert front_end.receive().id == 1


def test_a_report_that_cannot_be_taken_ends_no_calls(front_end):
    """An audit on a full disk, for instance: the front end itself is sound."""

    def full(_):
        raise OSError(28, "No space left on device")

    front_end.told = full
    front_end.channel.send(Counts())
    front_end.settle()


def test_the_only_call_is_looked_for_by_the_thread_that_read_it(front_end):
    threads = []

    def finish(accepted, _limit_s, _idle):
        threads.append(threading.current_thread())
        accepted.released()
        accepted.future.set_result(b"done")

    front_end.operations.attend = finish
    for number in range(3):
        front_end.call(number)
        answer = front_end.receive()
        assert (answer.id, answer.code, answer.body) == (number, 0, b"done")
    assert len(set(threads)) == 1
    assert front_end.session.open_calls == 0
    assert front_end.region.uses == 0


def test_nobody_looks_while_another_call_is_open_and_only_until_another_comes(front_end):
    seen = []

    def look(_accepted, _limit_s, idle):
        seen.append(idle())
        front_end.call(2)
        while idle():
            pass

    front_end.operations.attend = look
    front_end.call(1)
    until(lambda: len(front_end.operations.accepted) == 2)
    front_end.operations.attend = None
    for number, accepted in enumerate(front_end.operations.accepted, 1):
        accepted.released()
        accepted.future.set_result(b"done")
        assert front_end.receive().id == number
    assert seen == [True]


@pytest.mark.parametrize(
    ("priority", "items", "at_once"),
    [
        (pb.PRIORITY_CONSENSUS, 8192, True),
        (pb.PRIORITY_CONSENSUS, 8193, False),
        (pb.PRIORITY_BLOCK, 1, False),
    ],
)
def test_a_small_urgent_answer_is_sent_by_the_thread_that_has_it(front_end, priority, items, at_once):
    front_end.call(1, items=items, priority=priority)
    front_end.settle()
    (accepted,) = front_end.operations.accepted
    accepted.released()
    accepted.future.set_result(b"done")
    assert front_end.receive().body == b"done"
    assert (accepted.answered_by is threading.current_thread()) is at_once
    assert front_end.session.open_calls == 0


def test_urgent_answers_of_several_threads_are_all_sent(front_end):
    count, threads = 1200, 4
    received = []
    reader = threading.Thread(target=lambda: received.extend(front_end.receive().id for _ in range(count)))
    for number in range(count):
        front_end.call(number, priority=pb.PRIORITY_CONSENSUS)
    until(lambda: len(front_end.operations.accepted) == count)
    reader.start()

    def finish(thread):
        for accepted in front_end.operations.accepted[thread::threads]:
            accepted.released()
            accepted.future.set_result(b"done")

    workers = [threading.Thread(target=finish, args=(thread,)) for thread in range(threads)]
    for worker in workers:
        worker.start()
    for thread in (*workers, reader):
        thread.join()
    assert sorted(received) == list(range(count))


def test_no_thread_waits_for_a_front_end_that_reads_nothing(front_end):
    """Its answers wait in the outbox, urgent ones, too."""
    body = bytes(4000)
    count = 200  # more than a socket holds
    for number in range(count):
        front_end.call(number, priority=pb.PRIORITY_CONSENSUS)
    until(lambda: len(front_end.operations.accepted) == count)
    for accepted in front_end.operations.accepted:
        accepted.released()
        accepted.future.set_result(body)
    senders = {accepted.answered_by for accepted in front_end.operations.accepted}
    assert threading.current_thread() in senders
    assert len(senders) > 1
    assert {front_end.receive().id for _ in range(count)} == set(range(count))


def test_what_is_free_after_the_front_end_has_gone_is_let_go_of_without_the_collector(front_end):
    """Its columns lie in the region, which would stay mapped."""
    front_end.call(1)
    front_end.settle()
    accepted = front_end.operations.accepted.pop()
    kept = weakref.ref(accepted)
    gc.collect()
    gc.disable()
    try:
        front_end.channel.close()
        front_end.session.join()
        assert accepted.future.cancelled()
        accepted.released()
        del accepted
        assert kept() is None
        assert front_end.session.open_calls == 0
    finally:
        gc.enable()
