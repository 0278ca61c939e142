"""Runs a plugin's operations, and its known answers, on the g++ build."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from _build import PLUGINS, Plugin, Result, build

from verifier.manifest import Manifest, load_manifest
from verifier.model import Code
from verifier.v1 import verifier_pb2

ENUM_OF = {
    "input_kind": verifier_pb2.InputKind,
    "signature_encoding": verifier_pb2.SignatureEncoding,
    "key_encoding": verifier_pb2.KeyEncoding,
    "low_s": verifier_pb2.LowS,
    "hash": verifier_pb2.Hash,
    "address_hash": verifier_pb2.Hash,
}
PREFIX_OF = {"address_hash": "HASH"}


def parameter_number(name: str, value: str | int) -> int:
    """A parameter's number in the contract."""
    if isinstance(value, int):
        return value
    return int(ENUM_OF[name].Value(f"{PREFIX_OF.get(name, name.upper())}_{value}"))


class BuiltPlugin:
    """A plugin of the repository: its manifest and its library."""

    def __init__(self, name: str, flags: Sequence[str] = ("-O1",)) -> None:
        self.manifest: Manifest = load_manifest(PLUGINS / name)
        defines = {key: int(value) for key, value in self.manifest.defines.items()}
        library = build(PLUGINS / name / self.manifest.source, flags=flags, defines=defines)
        self.plugin = Plugin(library, self.manifest.state)

    def run(
        self,
        operation: str,
        algorithm: str,
        inputs: Mapping[str, Sequence[bytes]],
        constant: bytes = b"",
        **parameters: str | int,
    ) -> Result:
        """One batch. Parameters that are not named take the manifest's first value."""
        found = self.manifest.operation(operation, algorithm)
        assert found is not None
        unknown = set(parameters) - set(found.parameters)
        assert not unknown, f"no such parameters: {unknown}"
        chosen = {name: parameters.get(name, values[0]) for name, values in found.parameters.items()}
        for name, value in chosen.items():
            assert value in found.parameters[name], f"{name} = {value} is not in the manifest"
        return self.plugin.run(
            found.stages,
            [inputs[name] for name in found.inputs],
            parameters=[parameter_number(name, value) for name, value in chosen.items()],
            constant=constant,
            outputs=[output.bytes for output in found.outputs],
        )

    def check_known_answers(self) -> int:
        """Runs vectors.json and asserts every code and output; returns the number of cases."""
        answers: dict[str, Any] = json.loads((PLUGINS / self.manifest.name / self.manifest.vectors).read_text())
        count = 0
        for group in answers["groups"]:
            found = self.manifest.operation(group["operation"], group["algorithm"])
            assert found is not None
            cases = group["cases"]
            inputs = {name: [bytes.fromhex(case["inputs"][name]) for case in cases] for name in found.inputs}
            result = self.run(
                group["operation"],
                group["algorithm"],
                inputs,
                bytes.fromhex(group.get("constant", "")),
                **group.get("parameters", {}),
            )
            for i, case in enumerate(cases):
                assert Code(result.codes[i]).name == case["code"], (group.get("parameters"), case["id"])
                for output, array in zip(found.outputs, result.outputs, strict=True):
                    if output.name in case.get("outputs", {}):
                        assert array[i].tobytes().hex() == case["outputs"][output.name], case["id"]
            valid = np.unpackbits(result.valid, bitorder="little")[: len(cases)]
            assert (valid == (result.codes == Code.VALID)).all()
            count += len(cases)
        return count
