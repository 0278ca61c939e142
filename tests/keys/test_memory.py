"""Sizes of tables, and which build the settings ask for."""

from __future__ import annotations

from pathlib import Path

import pytest

from verifier.errors import ConfigError
from verifier.keys import RESERVED_SLOTS, TableSize, slot_bytes
from verifier.keys._memory import TableShape, row_count
from verifier.manifest import load_manifest

PLUGINS = Path(__file__).parents[2] / "plugins"


@pytest.fixture(scope="module", params=["sm2", "ecdsa"])
def manifest(request):
    return load_manifest(PLUGINS / request.param)


def test_sizes_are_the_kernels():
    """ceil(256 / w) rows of 2^(w - 1) points of 64 bytes, and a header of 384."""
    assert [slot_bytes(window) for window in (5, 8, 12)] == [53_632, 262_528, 2_883_968]
    assert [row_count(window) for window in (4, 5, 8, 12)] == [64, 52, 32, 22]


def test_nothing_is_asked_for_where_nothing_is_set(manifest):
    assert TableSize().tunables(manifest) == {}


def test_without_enrolment_the_smallest_build_is_taken(manifest):
    assert TableSize(enabled=False).tunables(manifest) == {"KEY_SLOTS": 16}


@pytest.mark.parametrize(
    ("nbytes", "keys", "window", "slots"),
    [
        (40_000_000_000, 10_000, 12, 12288),
        (300_000_000, 1000, 8, 1024),
        (300_000_000, 100_000, 4, 8192),  # they do not fit, whatever the window: as many as do
        (64 << 20, 1000, 5, 1024),
    ],
)
def test_the_window_is_the_largest_that_fits(manifest, nbytes, keys, window, slots):
    chosen = TableSize(nbytes=nbytes, keys=keys).tunables(manifest)
    assert chosen == {"WINDOW_KEY": window, "KEY_SLOTS": slots}
    assert slots * slot_bytes(window) <= nbytes
    manifest.choice("", chosen)  # values that the manifest has


def test_a_window_that_is_set_stands(manifest):
    assert TableSize(window=10).tunables(manifest) == {"WINDOW_KEY": 10}
    assert TableSize(nbytes=300_000_000, window=10).tunables(manifest) == {"WINDOW_KEY": 10, "KEY_SLOTS": 256}


def test_too_little_memory_is_named(manifest):
    with pytest.raises(ConfigError, match=r"keys\.table_bytes: 100000 bytes are too few"):
        TableSize(nbytes=100_000, window=8).tunables(manifest)


def test_a_plugin_without_tables_is_left_alone():
    assert TableSize(enabled=False).tunables(load_manifest(PLUGINS / "keccak")) == {}


def test_shapes_of_builds(manifest):
    for target, gpu, window in (("sm_90", True, 8), ("x86-64-v3", False, 5)):
        _, defines = manifest.build(manifest.choice(), target)
        shape = TableShape.of(defines, gpu=gpu)
        assert shape == TableShape(1024, row_count(window), slot_bytes(window))
        assert shape.slots > RESERVED_SLOTS
