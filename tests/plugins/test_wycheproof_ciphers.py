"""Every file of Wycheproof for GCM and padded CBC that the shared folder has, of our ciphers."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import pytest
from _answers import BuiltPlugin
from _shared import SHARED, shared_json

from verifier.cli._cipher_files import _unpadded
from verifier.cli._cipher_names import CipherFileError
from verifier.model import Code

FOLDER = SHARED / "vectors" / "wycheproof"
NAMES = ("aes", "aria", "sm4")
GCM_FILES = [name for name in NAMES if (FOLDER / f"{name}_gcm_test.json").exists()]
CBC_FILES = [name for name in NAMES if (FOLDER / f"{name}_cbc_pkcs5_test.json").exists()]
CBC = 3


@functools.cache
def plugin(name: str) -> BuiltPlugin:
    return BuiltPlugin(name)


def groups_of(file: str) -> Iterator[tuple[dict[str, Any], list[dict[str, bytes]], list[bool]]]:
    """Each group, its messages of at most a cell, and which of them are right."""
    for group in shared_json("wycheproof", file)["testGroups"]:
        tests = [test for test in group["tests"] if len(test["ct"]) <= 1024]
        fields = ("key", "iv", "aad", "msg", "ct", "tag")
        if tests:
            rows = [{name: bytes.fromhex(test[name]) for name in fields if name in test} for test in tests]
            yield group, rows, [test["result"] == "valid" for test in tests]


@pytest.mark.parametrize("name", GCM_FILES)
def test_gcm(name):
    """Nonces of 12 bytes and whole tags; a nonce of any other length is refused."""
    for group, rows, right in groups_of(f"{name}_gcm_test.json"):
        columns = {field: [row[field] for row in rows] for field in rows[0]}
        inputs = {field: columns[field] for field in ("key", "iv", "aad")}
        sealed = plugin(name).run("gcm_encrypt_each", name.upper(), inputs | {"data": columns["msg"]})
        opened = plugin(name).run(
            "gcm_decrypt_each", name.upper(), inputs | {"data": columns["ct"], "tag": columns["tag"]}
        )
        if group["ivSize"] != 96 or group["tagSize"] != 128:
            assert set(opened.codes) == {Code.INPUT_LENGTH}
            assert not opened.outputs[0].any()
            continue
        assert (sealed.codes == Code.VALID).all()
        assert list(opened.codes) == [Code.VALID if good else Code.INVALID for good in right]
        for i, row in enumerate(rows):
            cell, wanted = opened.outputs[0][i].tobytes(), row["msg"] if right[i] else b""
            assert cell == wanted.ljust(512, b"\0")
            if right[i]:
                assert sealed.outputs[0][i].tobytes() == row["ct"].ljust(512, b"\0")
                assert sealed.outputs[1][i].tobytes() == row["tag"]


def unpadded(text: bytes) -> bytes | None:
    """As the file tool takes the padding off; None where it is wrong."""
    try:
        return b"".join(_unpadded([text], 16, "a file"))
    except CipherFileError:
        return None


@pytest.mark.parametrize("name", CBC_FILES)
def test_padded_cbc(name):
    for _, rows, right in groups_of(f"{name}_cbc_pkcs5_test.json"):
        inputs = {"data": [row["ct"] for row in rows]} | {n: [row[n] for row in rows] for n in ("key", "iv")}
        result = plugin(name).run("decrypt_each", name.upper(), inputs, mode=CBC)
        for i, row in enumerate(rows):
            assert (result.codes[i] == Code.VALID) == (len(row["ct"]) % 16 == 0)
            text = result.outputs[0][i].tobytes()[: len(row["ct"])]
            assert unpadded(text) == (row["msg"] if right[i] else None)
