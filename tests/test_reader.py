"""Who reads a worker's answers: the caller that waits for the only one, or the thread."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection

import pytest
from _waiting import until

from verifier import cores, reader
from verifier.channel import Channel
from verifier.reader import Reader
from verifier.workers._messages import Answer, Done, Order

HERE, THERE = "caller", "results"
LONG_S = 60.0


def always() -> bool:
    return True


class Desk:
    """A reader, the other end of its socket, and what it was told, with the names of the threads that told it."""

    def __init__(self) -> None:
        ours, theirs = (Connection(end.detach()) for end in socket.socketpair())
        self.other, self._channel = Channel(theirs, Order), Channel(ours, Answer)
        self.taken: list[tuple[int, str]] = []
        self.lost: list[tuple[str, str]] = []
        self.when_taken: Callable[[], None] = lambda: None
        self.reader = Reader(THERE, self._channel, self._take, self._lose)
        self.reader.start()

    def _take(self, answer: Answer) -> None:
        self.when_taken()
        self.taken.append((answer.ticket, threading.current_thread().name))

    def _lose(self, kind: str, problem: str = "") -> None:
        self.lost.append((kind, threading.current_thread().name))

    def answer(self, ticket: int) -> None:
        self.other.send(Done(ticket, 0))

    def read(
        self, wanted: Callable[[], bool], limit_s: float | None = None, idle: Callable[[], bool] = always
    ) -> BaseException | None:
        """Reads as a caller does, in a thread of its own; what it raised."""
        raised: list[BaseException] = []

        def call() -> None:
            try:
                self.reader.read_while(wanted, limit_s, idle)
            except BaseException as error:
                raised.append(error)

        caller = threading.Thread(target=call, name=HERE)
        caller.start()
        caller.join()
        return raised[0] if raised else None

    def read_and(self, act: Callable[[], None], stop: Callable[[], bool] | None = None) -> BaseException | None:
        """Reads, and acts once the caller has the turn, until `stop`, or else until an answer was taken."""
        looks = 0

        def wanted() -> bool:
            nonlocal looks
            looks += 1
            if looks == 2:  # the first look is in front of the turn
                act()
            return not (stop() if stop is not None and looks >= 2 else self.taken)

        return self.read(wanted)

    def close(self) -> None:
        self.other.close()
        self.reader.close()
        self._channel.close()


@pytest.fixture
def desk(callers_read):
    made = Desk()
    yield made
    made.close()


def test_the_thread_reads_where_nobody_waits(desk):
    for ticket in range(3):
        desk.answer(ticket)
    until(lambda: len(desk.taken) == 3)
    assert desk.taken == [(ticket, THERE) for ticket in range(3)]


def test_a_caller_reads_while_it_waits_and_the_thread_does_after(desk):
    assert desk.read_and(lambda: desk.answer(1)) is None
    assert desk.taken == [(1, HERE)]
    desk.answer(2)
    until(lambda: len(desk.taken) == 2)
    assert desk.taken[1] == (2, THERE)


def test_a_caller_takes_others_answers_too(desk):
    def both() -> None:
        desk.answer(1)
        desk.answer(2)

    desk.read_and(both, stop=lambda: len(desk.taken) == 2)
    assert desk.taken == [(1, HERE), (2, HERE)]


def test_what_a_caller_leaves_behind_is_the_threads(desk):
    desk.read_and(lambda: desk.answer(1), stop=lambda: True)
    until(lambda: desk.taken)
    assert desk.taken == [(1, THERE)]


def test_with_few_cores_everything_is_the_threads(monkeypatch):
    monkeypatch.setattr(cores, "SPARE_CORES", 1 << 20)
    desk = Desk()
    desk.read(lambda: True)  # returns at once
    desk.answer(1)
    until(lambda: desk.taken)
    desk.close()
    assert desk.taken == [(1, THERE)]


def test_a_callers_time_is_bounded(desk, monkeypatch):
    desk.read(lambda: True, limit_s=0.001)
    monkeypatch.setattr(reader, "_LOOKED_S", 0.001)
    desk.read(lambda: True)
    desk.read(lambda: True, limit_s=LONG_S)
    assert desk.taken == []
    desk.answer(1)
    until(lambda: desk.taken)
    assert desk.taken == [(1, THERE)]


def test_a_caller_that_has_something_else_to_do_reads_no_more(desk):
    looks = iter([True, True, False])
    desk.read(always, limit_s=LONG_S, idle=lambda: next(looks))
    assert next(looks, None) is None
    desk.answer(1)
    until(lambda: desk.taken)
    assert desk.taken == [(1, THERE)]


def test_one_caller_reads_and_others_return_at_once(desk):
    other = Desk()

    def more() -> None:
        threads = [
            threading.Thread(target=each.reader.read_while, args=(always, None, always)) for each in (desk, other)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        desk.answer(1)

    desk.read_and(more)
    other.close()
    assert desk.taken == [(1, HERE)]


def test_a_caller_returns_at_once_while_the_thread_reads(desk):
    desk.when_taken = lambda: desk.read(lambda: True)
    desk.answer(1)
    until(lambda: desk.taken)
    assert desk.taken == [(1, THERE)]


def test_the_process_ends_while_a_caller_reads(desk):
    assert desk.read_and(lambda: desk.other.close(), stop=lambda: bool(desk.lost)) is None
    until(lambda: desk.lost)
    assert desk.lost == [("died", THERE)]
    desk.reader.close()
    desk.read(lambda: True)  # returns at once


def test_what_is_no_answer_ends_the_process_whoever_reads_it(desk):
    assert desk.read_and(lambda: desk.other.connection.send_bytes(b"\xc1"), stop=lambda: bool(desk.lost)) is None
    assert desk.lost == [("sticky", HERE)]
    desk.answer(1)
    desk.read(lambda: True)  # returns at once
    desk.reader.close()  # the thread ends, though the process has not
    assert desk.taken == []


@pytest.mark.parametrize("error", [KeyboardInterrupt(), MemoryError()])
def test_an_answer_that_is_not_taken_is_not_waited_for(desk, error):
    def fail() -> None:
        raise error

    desk.when_taken = fail
    assert desk.read_and(lambda: desk.answer(1)) is error
    assert desk.lost == [("sticky", HERE)]
