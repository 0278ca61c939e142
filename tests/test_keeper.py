"""What the daemon measures of plugins, over many swaps."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from verifier import _keeper
from verifier._keeper import Keeper


class Instance:
    """What a keeper needs of an instance."""

    manifest = SimpleNamespace(operations=())
    workers = ("cpu",)
    answers = ()


@pytest.fixture
def measured(monkeypatch):
    found = []
    monkeypatch.setattr(_keeper, "measure", lambda _scheduler, instance, _answers: found.append(id(instance)))
    return found


def test_every_instance_is_measured_once_and_forgotten_when_it_is_gone(measured):
    active = [Instance()]
    registry = SimpleNamespace(active=lambda: active, subscribe=lambda _: None)
    fleet = SimpleNamespace(on_state=lambda _: None, on_fault=lambda _: None)
    keeper = Keeper(fleet, registry, lambda _: None, None, measures=True)
    scheduler = SimpleNamespace(wake=lambda: None)
    first = active[0]
    keeper._refresh(scheduler)
    for _ in range(5):
        active[:] = [Instance()]
        keeper._refresh(scheduler)
    active[:] = [first]  # a roll-back
    keeper._refresh(scheduler)
    assert len(measured) == 6
    assert list(keeper._measured) == [first]
