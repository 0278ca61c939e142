"""Which instance an operation leads to when several plugins have it."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest

from verifier.errors import NotServedError
from verifier.registry._instance import Instance
from verifier.registry._table import Table

_ids = itertools.count(1)


def instance(plugin: str, version: str, *operations: str) -> Instance:
    served = tuple(SimpleNamespace(name=name, algorithm="SM2", id=f"{name}/SM2") for name in operations)
    manifest = SimpleNamespace(
        name=plugin,
        version=version,
        operations=served,
        index=lambda wanted: next((i for i, o in enumerate(served) if o.id == wanted), None),
    )
    return Instance(next(_ids), manifest, "digest")


def test_what_a_new_version_does_not_have_goes_to_another_plugin_that_has_it():
    other = instance("other", "1.0.0", "verify", "digest")
    both, less = instance("sm2", "1.0.0", "verify", "digest"), instance("sm2", "2.0.0", "verify")
    table = Table().with_active(other).with_active(both)
    assert table.route("digest", "SM2").instance is both
    table = table.with_active(less)
    assert table.route("verify", "SM2").instance is less
    assert table.route("digest", "SM2").instance is other
    with pytest.raises(NotServedError, match="no plugin serves digest for SM2; served are verify for SM2"):
        table.without(other).route("digest", "SM2")


def test_a_new_version_takes_no_operation_from_another_plugin_but_its_own():
    first, second = instance("first", "1.0.0", "digest"), instance("second", "1.0.0", "verify")
    table = Table().with_active(first).with_active(second).with_active(instance("second", "2.0.0", "verify"))
    assert table.route("digest", "SM2").instance is first
    assert table.route("verify", "SM2").instance.version == "2.0.0"
