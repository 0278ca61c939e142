"""A plugin's known answers as requests of the contract."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from _daemon_process import ROOT

from verifier.model import Code
from verifier.v1 import verifier_pb2 as pb

_ENUMS = {
    "algorithm": "ALGORITHM",
    "input_kind": "INPUT_KIND",
    "signature_encoding": "SIGNATURE_ENCODING",
    "key_encoding": "KEY_ENCODING",
    "low_s": "LOW_S",
    "hash": "HASH",
    "address_hash": "HASH",
}


@dataclass(frozen=True)
class Group:
    """Cases that share a scheme."""

    name: str
    data: dict[str, Any]
    parameters: dict[str, Any]

    @property
    def items(self) -> int:
        return len(self.data["cases"])

    @property
    def codes(self) -> list[int]:
        return [Code[case["code"]].value for case in self.data["cases"]]

    def values(self, name: str) -> list[bytes]:
        return [bytes.fromhex(case["inputs"][name]) for case in self.data["cases"]]

    def column(self, name: str) -> pb.Column:
        """With offsets, which every encoding may have; an absent column is empty."""
        values = self.values(name)
        if not any(values) and name == "key":
            return pb.Column()
        offsets = np.cumsum([0, *map(len, values)]).astype("<u4")
        return pb.Column(data=b"".join(values), offsets=offsets.tobytes())

    def scheme(self) -> pb.Scheme:
        fields = {"algorithm": number("algorithm", self.data["algorithm"])}
        for name, value in self.parameters.items():
            if name != "address_hash":
                fields[name] = value if isinstance(value, int) else number(name, value)
        if self.data["algorithm"] == "SM2":
            fields["sm2_user_id"] = bytes.fromhex(self.data.get("constant", ""))
        return pb.Scheme(**fields)

    def verify_request(self, request_id: int = 1) -> pb.VerifyRequest:
        return pb.VerifyRequest(
            request_id=request_id,
            items=self.items,
            scheme=self.scheme(),
            input=self.column("input"),
            signature=self.column("signature"),
            key=self.column("key"),
        )


def number(parameter: str, name: str) -> int:
    return (
        pb.DESCRIPTOR.enum_types_by_name[
            {"address_hash": "Hash", "low_s": "LowS"}.get(parameter)
            or "".join(part.capitalize() for part in parameter.split("_"))
        ]
        .values_by_name[f"{_ENUMS[parameter]}_{name}"]
        .number
    )


def groups(plugin: str, operation: str) -> list[Group]:
    """Every group of one operation; parameters that are not named take the manifest's first value."""
    from verifier.manifest import load_manifest

    folder = ROOT / "plugins" / plugin
    manifest = load_manifest(folder)
    found = []
    for index, data in enumerate(json.loads((folder / "vectors.json").read_text())["groups"]):
        if data["operation"] != operation:
            continue
        declared = manifest.operation(operation, data["algorithm"])
        assert declared is not None
        given = data.get("parameters", {})
        parameters = {name: given.get(name, values[0]) for name, values in declared.parameters.items()}
        found.append(Group(f"{plugin}-{index}", data, parameters))
    return found


def codes_of(answer: Any) -> list[int]:
    """One code an item, from the bitmaps and the problems."""
    valid = np.unpackbits(np.frombuffer(answer.valid, np.uint8), count=answer.items, bitorder="little")
    codes = np.where(valid == 1, Code.VALID, Code.INVALID)
    codes[np.frombuffer(answer.problems.index, "<u4")] = np.frombuffer(answer.problems.code, np.uint8)
    return [int(code) for code in codes]
