"""Manifests of the ciphers, through the registry's own readers."""

from __future__ import annotations

import pytest
from _build import PLUGINS

from verifier.errors import ManifestError
from verifier.manifest import load_manifest, parse_manifest
from verifier.registry._answers import parse_answers

CIPHERS = ["aes", "aria", "hight", "kuznyechik", "skinny", "sm4"]


@pytest.mark.parametrize("name", CIPHERS)
def test_known_answers_are_columns_of_the_stated_widths(name):
    manifest = load_manifest(PLUGINS / name)
    groups = parse_answers(manifest, (PLUGINS / name / "vectors.json").read_bytes(), name)
    for group in groups:
        operation = manifest.operations[group.operation_index]
        for column, field in zip(group.inputs, operation.inputs, strict=True):
            width = operation.widths.get(field)
            assert width is None or (column.stride == width and column.offsets is None), (operation.id, field)


def test_a_width_of_an_unknown_input_is_refused():
    text = (PLUGINS / "aes" / "plugin.toml").read_text()
    assert parse_manifest(text, "aes").name == "aes"
    with pytest.raises(ManifestError, match="widths: datum is not an input"):
        parse_manifest(text.replace("widths = { data = 512 }", "widths = { datum = 512 }", 1), "aes")


def test_a_width_of_nothing_is_refused():
    text = (PLUGINS / "aes" / "plugin.toml").read_text()
    with pytest.raises(ManifestError, match="widths"):
        parse_manifest(text.replace("widths = { data = 512 }", "widths = { data = 0 }", 1), "aes")
