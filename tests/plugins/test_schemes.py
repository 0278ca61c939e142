"""The enums that kernels read are the contract's."""

from __future__ import annotations

import re

import pytest
from _build import PLUGINS

from verifier.model import Code
from verifier.v1 import verifier_pb2

SCHEME = (PLUGINS / "common" / "scheme.cuh").read_text()
ABI = (PLUGINS / "common" / "abi.cuh").read_text()


def members(body: str) -> dict[str, int]:
    return {name: int(number) for name, number in re.findall(r"(\w+) = (\d+)", body)}


@pytest.mark.parametrize("name", ["Algorithm", "InputKind", "SignatureEncoding", "KeyEncoding", "LowS", "Hash"])
def test_scheme_is_the_contracts(name):
    found = re.search(rf"enum class {name} : u32 {{(.*?)}};", SCHEME, re.DOTALL)
    assert found
    prefix = re.sub(r"(?<=.)([A-Z])", r"_\1", name).upper() + "_"
    contract = getattr(verifier_pb2, name)
    assert members(found[1]) == {key.removeprefix(prefix): number for key, number in contract.items()}


def test_codes_are_the_models_and_the_contracts():
    found = re.search(r"enum Code : u8 {(.*?)};", ABI, re.DOTALL)
    assert found
    codes = members(found[1])
    assert codes == {code.name: code.value for code in Code}
    for name, number in verifier_pb2.ProblemCode.items():
        short = name.removeprefix("PROBLEM_CODE_")
        assert codes["UNDECIDED" if short == "UNDETERMINED" else short] == number
