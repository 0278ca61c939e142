"""Known answers: vectors.json to batches with expected codes and outputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from verifier.errors import ManifestError
from verifier.gather import gather
from verifier.manifest import Manifest, Name, Symbol
from verifier.model import Batch, BatchKey, Bytes, Code, Column
from verifier.registry._parameters import parameter_number
from verifier.schemes import fixed_width

__all__ = ["Group", "parse_answers"]


def _from_hex(text: object) -> bytes:
    if not isinstance(text, str):
        raise ValueError("must be a string of hexadecimal digits")
    return bytes.fromhex(text)


Hex = Annotated[bytes, BeforeValidator(_from_hex)]


def _code(name: object) -> Code:
    if not isinstance(name, str) or name not in Code.__members__ or Code[name] in (Code.UNDECIDED, Code.RETRY):
        raise ValueError(f"must be the name of a decided code, not {name!r}")
    return Code[name]


DecidedCode = Annotated[Code, BeforeValidator(_code)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Case(_Strict):
    id: str = Field(min_length=1, max_length=200)
    source: str = ""
    inputs: dict[Name, Hex]
    code: DecidedCode
    outputs: dict[Name, Hex] = Field(default_factory=dict)


class _Group(_Strict):
    operation: Name
    algorithm: Symbol
    parameters: dict[Name, str | int] = Field(default_factory=dict)
    constant: Hex = b""
    cases: tuple[_Case, ...] = Field(min_length=1)


class _Answers(_Strict):
    source: str = ""
    groups: tuple[_Group, ...] = Field(min_length=1)


@dataclass(frozen=True)
class Group:
    """Cases of one operation under one key, as columns.

    `inputs` are in the manifest's order, `codes` one Code a case; `outputs` pairs each output's expected bytes
    (cases, width) with a mask of the cases that state them.
    """

    operation_index: int
    key: BatchKey
    ids: tuple[str, ...]
    inputs: tuple[Column, ...]
    codes: Bytes
    outputs: tuple[tuple[Bytes, npt.NDArray[np.bool_]], ...]

    def __len__(self) -> int:
        return len(self.ids)

    def tiled(self, items: int) -> tuple[Batch, npt.NDArray[np.intp]]:
        """A batch of `items` items that repeats the cases in order, and which case each item is."""
        cases = np.arange(items) % len(self)
        columns = tuple(gather(column, cases) for column in self.inputs)
        return Batch(self.key, items, columns), cases

    def valid(self) -> Group | None:
        """The valid cases alone, or None where there are none."""
        cases = np.flatnonzero(self.codes == Code.VALID)
        if not cases.size:
            return None
        return Group(
            self.operation_index,
            self.key,
            tuple(self.ids[case] for case in cases),
            tuple(gather(column, cases) for column in self.inputs),
            self.codes[cases],
            tuple((expected[cases], stated[cases]) for expected, stated in self.outputs),
        )


def parse_answers(manifest: Manifest, data: bytes, where: str) -> tuple[Group, ...]:
    """Reads a plugin's known answers.

    Every operation of the manifest must have at least one group. Raises ManifestError naming the file and the place.
    """
    try:
        answers = _Answers.model_validate_json(data)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise ManifestError(": ".join(filter(None, (where, place, first["msg"])))) from None
    groups = tuple(_build(manifest, group, f"{where}: groups.{i}") for i, group in enumerate(answers.groups))
    have = {group.operation_index for group in groups}
    for index, operation in enumerate(manifest.operations):
        if index not in have:
            raise ManifestError(f"{where}: groups: {operation.id} has no known answers")
    return groups


def _build(manifest: Manifest, group: _Group, where: str) -> Group:
    index = manifest.index(f"{group.operation}/{group.algorithm}")
    if index is None:
        raise ManifestError(f"{where}: the manifest has no operation {group.operation} for {group.algorithm}")
    operation = manifest.operations[index]
    named = _parameters(operation.parameters, group.parameters, where)
    numbers = tuple(parameter_number(name, value) for name, value in named.items())
    for case in group.cases:
        if set(case.inputs) != set(operation.inputs):
            raise ManifestError(f"{where}: {case.id}: inputs must be {', '.join(operation.inputs)}")
    inputs = tuple(
        _column([case.inputs[name] for case in group.cases], operation.widths.get(name) or fixed_width(name, named))
        for name in operation.inputs
    )
    outputs = []
    known = {output.name: output.bytes for output in operation.outputs}
    for case in group.cases:
        for name, value in case.outputs.items():
            if len(value) != known.get(name):
                raise ManifestError(
                    f"{where}: {case.id}: output {name} has {len(value)} bytes, not {known.get(name)}"
                )
    for name, width in known.items():
        stated = np.array([name in case.outputs for case in group.cases], np.bool_)
        joined = b"".join(case.outputs.get(name, bytes(width)) for case in group.cases)
        outputs.append((np.frombuffer(joined, np.uint8).reshape(len(group.cases), width), stated))
    return Group(
        operation_index=index,
        key=BatchKey(manifest.name, operation.id, numbers, group.constant),
        ids=tuple(case.id for case in group.cases),
        inputs=inputs,
        codes=np.array([case.code for case in group.cases], np.uint8),
        outputs=tuple(outputs),
    )


def _parameters(
    declared: Mapping[str, tuple[str | int, ...]], given: Mapping[str, str | int], where: str
) -> dict[str, str | int]:
    for name, value in given.items():
        if name not in declared:
            raise ManifestError(f"{where}: parameters.{name}: the operation has no such parameter")
        if value not in declared[name]:
            raise ManifestError(f"{where}: parameters.{name}: {value} is not one of the manifest's values")
    return {name: given.get(name, values[0]) for name, values in declared.items()}


def _column(values: list[bytes], width: int | None) -> Column:
    data = np.frombuffer(b"".join(values), np.uint8)
    sizes = np.array([len(value) for value in values], np.uint32)
    if width is not None and (sizes == width).all():
        return Column(data, width)
    return Column(data, 0, np.concatenate([np.zeros(1, np.uint32), np.cumsum(sizes, dtype=np.uint32)]))
