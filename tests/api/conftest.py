from __future__ import annotations

from pathlib import Path

import pytest

from verifier.api import Limits
from verifier.api.requests import Requests
from verifier.keys import KeySetLimits, KeySets
from verifier.manifest import load_manifest
from verifier.registry import Instance, Resolved
from verifier.registry._parameters import allowed_numbers
from verifier.registry._table import Table

ROOT = Path(__file__).parents[2]
FOLDERS = ("plugins/sm2", "plugins/ecdsa", "plugins/sm3", "plugins/keccak", "tests/fixtures/plugins/parity")


class Catalogue:
    """The real manifests, without devices."""

    def __init__(self) -> None:
        self.table = Table()
        for number, folder in enumerate(FOLDERS, 1):
            manifest = load_manifest(ROOT / folder)
            instance = Instance(number, manifest, "digest", parameters=allowed_numbers(manifest))
            self.table = self.table.with_active(instance)

    def resolve(self, operation: str, algorithm: str | None, plugin: str = "") -> Resolved:
        if not plugin:
            return self.table.route(operation, algorithm or "none")
        name, _, version = plugin.partition("@")
        return self.table.find(name, version or None).resolve(operation, algorithm, version or None)

    def active(self) -> list[Instance]:
        return list(self.table.active.values())


@pytest.fixture(scope="session")
def catalogue():
    return Catalogue()


@pytest.fixture
def key_sets():
    return KeySets(KeySetLimits(sets=3, bytes=4096))


@pytest.fixture
def requests(catalogue, key_sets):
    return Requests(catalogue, Limits(max_items=1000, max_batch_bytes=100_000), key_sets)
