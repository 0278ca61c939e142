"""A future that whoever waits for it may bring about."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import CancelledError, Future

import pytest

from verifier.attended import Attended, attend_as


class Desk:
    """What attends to a future: it may have a result, and notes what it was allowed."""

    def __init__(self, result: int | None = None) -> None:
        self.future: Attended[int] = Attended()
        self.future.attend = self._attend
        self.allowed: list[float | None] = []
        self._result = result

    def _attend(self, limit_s: float | None, idle: Callable[[], bool]) -> None:
        self.allowed.append(limit_s)
        self.idle = idle
        if self._result is not None:
            self.future.set_result(self._result)


def test_whoever_waits_attends():
    desk = Desk(7)
    assert desk.future.result() == 7
    assert desk.future.result(1.0) == 7
    assert desk.allowed == [None]


def test_what_attending_did_not_get_is_waited_for():
    desk = Desk()
    for _ in range(2):
        with pytest.raises(TimeoutError):
            desk.future.result(0.001)
    assert desk.allowed == [0.001], "the first that waits, once"


def test_nobody_attends_to_what_is_done_or_not_waited_for():
    desk = Desk()
    with pytest.raises(TimeoutError):
        desk.future.result(0)
    assert desk.allowed == []
    cancelled = Desk()
    cancelled.future.cancel()
    with pytest.raises(CancelledError):
        cancelled.future.result()
    assert cancelled.allowed == []


def test_a_thread_that_does_not_wait_looks_while_it_has_nothing_else_to_do():
    desk = Desk(7)
    idle = iter([True, False])
    desk.future.look(lambda: next(idle))
    assert desk.future.result(0) == 7
    assert [desk.idle(), desk.idle()] == [True, False]
    desk.future.look(lambda: True)  # nothing is left to do
    assert desk.allowed == [None]


def test_an_outer_future_is_attended_to_as_the_inner_one():
    inner, outer = Desk(7), Attended[int]()
    inner.future.add_done_callback(lambda done: outer.set_result(done.result() + 1))
    attend_as(outer, inner.future)
    assert outer.result() == 8
    attend_as(outer, Future())
    assert outer.attend is None
