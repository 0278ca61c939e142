"""The structures of abi.cuh and their mirrors, field by field, as both compilers lay them out."""

from __future__ import annotations

import ctypes
import subprocess

import pytest

from verifier.drivers import ABI_VERSION, BatchStruct, ColumnStruct, PluginInfo
from verifier.drivers import _abi as abi
from verifier.drivers._cxx import find_compiler
from verifier.drivers.build import build_image
from verifier.errors import BuildError, DeviceUnavailableError
from verifier.model import Code

STRUCTURES = {"Batch": BatchStruct, "Column": ColumnStruct, "PluginInfo": PluginInfo}
FIELDS = [(name, field[0]) for name, structure in STRUCTURES.items() for field in structure._fields_]
CONSTANTS = {
    "ABI_VERSION": ABI_VERSION,
    "MAX_INPUTS": abi.MAX_INPUTS,
    "MAX_OUTPUTS": abi.MAX_OUTPUTS,
    "MAX_PARAMETERS": abi.MAX_PARAMETERS,
}


def mirrored() -> dict[str, int]:
    """Expressions of C++ and the values that the mirrors give them."""
    values = {}
    for name, structure in STRUCTURES.items():
        values[f"sizeof({name})"] = ctypes.sizeof(structure)
    for name, field in FIELDS:
        values[f"__builtin_offsetof({name}, {field})"] = getattr(STRUCTURES[name], field).offset
        values[f"sizeof((({name}*)8)->{field})"] = getattr(STRUCTURES[name], field).size
    return values | CONSTANTS | {f"(int){code.name}": int(code) for code in Code}


def test_the_host_compiler_agrees(parity_files, tmp_path):
    for name, data in parity_files.items():
        (tmp_path / name).write_bytes(data)
    expected = mirrored()
    lines = "".join(f'    printf("%lld\\n", (long long)({expression}));\n' for expression in expected)
    (tmp_path / "print.cpp").write_text(f'#include "abi.cuh"\n#include <stdio.h>\nint main() {{\n{lines}}}\n')
    try:
        compiler = find_compiler()
    except DeviceUnavailableError as error:
        pytest.skip(str(error))
    subprocess.run([*compiler.command, "-std=c++17", "print.cpp", "-o", "print"], cwd=tmp_path, check=True)
    printed = subprocess.run([tmp_path / "print"], capture_output=True, text=True, check=True).stdout.split()
    assert dict(zip(expected, map(int, printed), strict=True)) == expected


def assertions(values: dict[str, int]) -> bytes:
    lines = [f'static_assert({expression} == {value}, "{expression}");' for expression, value in values.items()]
    return "\n".join(['#include "abi.cuh"', *lines, ""]).encode()


def test_nvrtc_agrees(parity_files, image_cache):
    try:
        build_image(parity_files | {"a.cu": assertions(mirrored())}, "a.cu", "sm_90", {}, cache=image_cache)
    except DeviceUnavailableError as error:
        pytest.skip(str(error))
    wrong = mirrored() | {"__builtin_offsetof(Batch, codes)": BatchStruct.codes.offset + 8}
    with pytest.raises(BuildError, match=r"offsetof\(Batch, codes\)"):
        build_image(parity_files | {"a.cu": assertions(wrong)}, "a.cu", "sm_90", {}, cache=image_cache)


def test_every_field_is_mirrored(parity_files):
    """A field that only the header has would show as a size or an offset; one that has another name, here."""
    text = parity_files["abi.cuh"].decode()
    for name, structure in STRUCTURES.items():
        body = text.partition(f"\nstruct {name} {{\n")[2].partition("\n};")[0]
        declared = [line.partition(";")[0].split()[-1].partition("[")[0] for line in body.splitlines() if ";" in line]
        assert declared == [field[0] for field in structure._fields_]
