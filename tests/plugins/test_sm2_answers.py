"""The sm2 plugin's known answers are what their recipe gives, and name every code that the plugin has."""

from __future__ import annotations

import json

from _build import PLUGINS
from make_sm2_answers import text

PATH = PLUGINS / "sm2" / "vectors.json"


def test_the_file_is_the_recipes():
    assert PATH.read_text() == text()


def test_every_code_is_among_them():
    codes = {case["code"] for group in json.loads(PATH.read_text())["groups"] for case in group["cases"]}
    assert codes == {
        *("VALID", "INVALID", "OUT_OF_RANGE", "HIGH_S", "SIGNATURE_LENGTH", "SIGNATURE_DER", "INPUT_LENGTH"),
        *("KEY_LENGTH", "KEY_PREFIX", "KEY_RANGE", "KEY_NOT_ON_CURVE", "KEY_SPKI", "KEY_INDEX"),
    }
