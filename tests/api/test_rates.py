"""Token buckets, on a clock of the test's."""

from __future__ import annotations

import pytest
from _clock import Clock

from verifier.api import _rates
from verifier.api._rates import Rate, Rates
from verifier.api._roles import Role


@pytest.fixture
def clock():
    return Clock()


def test_what_has_no_limit_never_waits(clock):
    rates = Rates({Role.VERIFY: Rate(), Role.ADMIN: Rate(1)}, clock=clock)
    assert not any(rates.wait_s(Role.VERIFY, "a", 1 << 30) for _ in range(1000))


def test_calls_are_refilled_as_time_goes(clock):
    rates = Rates({Role.VERIFY: Rate(calls_per_s=10)}, burst_s=0.5, clock=clock)
    assert [rates.wait_s(Role.VERIFY, "a", 0) for _ in range(6)] == [0, 0, 0, 0, 0, pytest.approx(0.1)]
    clock.now += 0.1
    assert rates.wait_s(Role.VERIFY, "a", 0) == 0
    assert rates.wait_s(Role.VERIFY, "a", 0) == pytest.approx(0.1)
    clock.now += 60
    assert [rates.wait_s(Role.VERIFY, "a", 0) > 0 for _ in range(6)] == [False] * 5 + [True], "no more than the burst"


def test_a_call_that_is_refused_takes_nothing(clock):
    rates = Rates({Role.VERIFY: Rate(calls_per_s=100, size_per_s=10)}, clock=clock)
    assert rates.wait_s(Role.VERIFY, "a", 10) == 0
    for _ in range(1000):
        assert rates.wait_s(Role.VERIFY, "a", 10) == pytest.approx(1.0)
    clock.now += 1
    assert rates.wait_s(Role.VERIFY, "a", 10) == 0


def test_one_larger_than_the_burst_passes_alone_and_is_paid_off(clock):
    rates = Rates({Role.VERIFY: Rate(size_per_s=100)}, clock=clock)
    assert rates.wait_s(Role.VERIFY, "a", 1000) == 0
    assert rates.wait_s(Role.VERIFY, "a", 1) == pytest.approx(9.01)
    clock.now += 9.5
    assert rates.wait_s(Role.VERIFY, "a", 1000) == pytest.approx(0.5)
    assert rates.wait_s(Role.VERIFY, "a", 1) == 0


def test_callers_and_roles_have_their_own(clock):
    rates = Rates({Role.VERIFY: Rate(calls_per_s=1), Role.CIPHER: Rate(calls_per_s=1)}, clock=clock)
    takers = [(Role.VERIFY, "a"), (Role.VERIFY, "b"), (Role.CIPHER, "a")]
    assert [rates.wait_s(*taker, 0) for taker in takers] == [0, 0, 0]
    assert all(rates.wait_s(*taker, 0) > 0 for taker in takers)


def test_callers_without_end_take_bounded_memory(clock, monkeypatch):
    monkeypatch.setattr(_rates, "_MOST_CALLERS", 10)
    rates = Rates({Role.VERIFY: Rate(calls_per_s=1)}, clock=clock)
    for number in range(100):
        rates.wait_s(Role.VERIFY, str(number), 0)
    assert len(rates._callers) == 10
    assert rates.wait_s(Role.VERIFY, "99", 0) > 0, "the newest are remembered"
    assert rates.wait_s(Role.VERIFY, "0", 0) == 0
