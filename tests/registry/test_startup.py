"""Which plugins a daemon starts with."""

from __future__ import annotations

import pytest

from verifier.registry import load_all
from verifier.registry._startup import reachable


class Loads:
    """Notes what is loaded."""

    def __init__(self) -> None:
        self.names = []

    def load(self, what, *, activate=True):
        self.names.append(what)
        return what


@pytest.mark.parametrize(
    ("asked", "more"), [(None, ()), (["auto"], ()), (["auto", "sm4"], ("sm4",)), (["hight", "auto"], ("hight",))]
)
def test_auto_is_what_every_daemon_serves(asked, more):
    registry = Loads()
    outcomes = load_all(registry, asked)
    assert set(registry.names) == set(outcomes) == {*reachable(), *more}


def test_block_ciphers_are_loaded_by_name_alone():
    assert {"sm2", "ecdsa", "sm3"} <= set(reachable())
    assert not {"aes", "sm4", "aria", "hight", "kuznyechik", "skinny"} & set(reachable())
    registry = Loads()
    load_all(registry, ["aes"])
    assert registry.names == ["aes"]
