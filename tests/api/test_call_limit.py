"""How many calls are handled at once, and what is kept for urgent ones."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from verifier.api._calls import CallLimit
from verifier.errors import CapacityError


def test_a_sixteenth_is_kept_for_urgent_calls():
    limit = CallLimit(32)
    with ExitStack() as entered:
        for _ in range(30):
            entered.enter_context(limit)
        with pytest.raises(CapacityError, match="30 calls are in flight, which is the limit"):
            entered.enter_context(limit)
        for _ in range(2):
            entered.enter_context(limit.urgently())
        with pytest.raises(CapacityError, match="all urgent ones"):
            entered.enter_context(limit.urgently())
    with ExitStack() as entered:  # all of it is given back, to whom it was taken from
        for _ in range(32):
            entered.enter_context(limit.urgently())
        with pytest.raises(CapacityError):
            entered.enter_context(limit)


def test_urgent_calls_take_what_others_leave_first():
    limit = CallLimit(16)
    with ExitStack() as entered:
        for _ in range(15):
            entered.enter_context(limit.urgently())
        with pytest.raises(CapacityError):
            entered.enter_context(limit)
        entered.enter_context(limit.urgently())


def test_a_small_limit_keeps_nothing():
    limit = CallLimit(1)
    with limit, pytest.raises(CapacityError), limit.urgently():
        pass
