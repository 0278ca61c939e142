"""What a manifest may not say."""

from __future__ import annotations

from pathlib import Path

import pytest

from verifier.errors import ManifestError
from verifier.manifest import parse_manifest

SM2 = (Path(__file__).parents[1] / "plugins" / "sm2" / "plugin.toml").read_text()


def test_the_shipped_one_reads():
    manifest = parse_manifest(SM2, "plugin.toml")
    assert manifest.label == "sm2@1.0.0"
    assert manifest.operations[0].round_stage == "sm2_verify"


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        ('round_stage = "sm2_verify"', 'round_stage = "sm2_parse"', "sm2_parse is not one of the stages"),
        ("abi = 1", "abi = 1\ncolour = 3", r"plugin.toml:4: colour: Extra inputs"),
        ('version = "1.0.0"', 'version = "one"', r"plugin.toml:2: version"),
        ('source = "sm2.cu"', 'source = "../sm2.cu"', "source"),
        ('name = "sm2"', 'name = "SM2"', r"plugin.toml:1: name"),
        ("abi = 1", "abi =", "not TOML"),
    ],
)
def test_errors_name_the_key_and_the_line(before, after, problem):
    assert before in SM2
    with pytest.raises(ManifestError, match=problem):
        parse_manifest(SM2.replace(before, after, 1), "plugin.toml")
