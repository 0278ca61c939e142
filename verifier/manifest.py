"""A plugin's manifest: what plugin.toml may say.

A plugin is a folder of data: plugin.toml, kernel source, known answers. Unknown keys are errors, so that a
misspelt setting is never silently ignored.
"""

from __future__ import annotations

import functools
import re
import tomllib
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from verifier.errors import ManifestError

__all__ = ["FILE_NAME", "Manifest", "Operation", "Output", "Variant", "load_manifest", "parse_manifest"]

FILE_NAME = "plugin.toml"
MAX_MANIFEST_BYTES = 256 * 1024

Name = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,63}$")]
Symbol = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$")]
Version = Annotated[str, StringConstraints(pattern=r"^\d{1,6}\.\d{1,6}\.\d{1,6}$")]
FileName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$")]
Define = int | str


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Output(_Strict):
    """Bytes that an operation gives for every item."""

    name: Name
    bytes: int = Field(ge=1, le=1 << 20)


class Operation(_Strict):
    """What a plugin does to an item."""

    name: Name
    algorithm: Symbol
    inputs: tuple[Name, ...] = Field(min_length=1, max_length=6)
    widths: dict[Name, Annotated[int, Field(ge=1, le=1 << 20)]] = Field(default_factory=dict)  # of fixed-width inputs
    outputs: tuple[Output, ...] = Field(default=(), max_length=2)
    stages: tuple[Symbol, ...] = Field(min_length=1, max_length=16)
    round_stage: Symbol | None = None  # nearly all the work: batches are cut into whole rounds of it
    constant: Name | None = None
    parameters: dict[Name, tuple[str | int, ...]] = Field(default_factory=dict, max_length=14)

    @model_validator(mode="after")
    def _widths_are_of_inputs(self) -> Operation:
        for name in self.widths:
            if name not in self.inputs:
                raise ValueError(f"widths: {name} is not an input")
        return self

    @model_validator(mode="after")
    def _the_round_stage_is_one(self) -> Operation:
        if self.round_stage is not None and self.round_stage not in self.stages:
            raise ValueError(f"round_stage: {self.round_stage} is not one of the stages {', '.join(self.stages)}")
        return self

    @property
    def id(self) -> str:
        """name/algorithm, as BatchKey.operation has it: a plugin may do one thing for several algorithms."""
        return f"{self.name}/{self.algorithm}"


class Variant(_Strict):
    """Another way to build the plugin: macros that replace or add to the defaults."""

    description: str = ""
    defines: dict[Symbol, Define]


class Manifest(_Strict):
    """plugin.toml."""

    name: Name
    version: Version
    abi: int
    description: str = ""
    source: FileName
    vectors: FileName = "vectors.json"
    state: tuple[Symbol, ...] = ()
    defines: dict[Symbol, Define] = Field(default_factory=dict)
    variants: dict[Name, Variant] = Field(default_factory=dict)
    tunables: dict[Symbol, tuple[Define, ...]] = Field(default_factory=dict)
    operations: tuple[Operation, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _names_are_unique(self) -> Manifest:
        pairs = [(operation.name, operation.algorithm) for operation in self.operations]
        for pair in pairs:
            if pairs.count(pair) > 1:
                raise ValueError(f"operations: {pair[0]} for {pair[1]} is declared twice")
        return self

    def operation(self, name: str, algorithm: str) -> Operation | None:
        """The operation of that name for that algorithm, or None."""
        return next((o for o in self.operations if o.name == name and o.algorithm == algorithm), None)

    def index(self, operation_id: str) -> int | None:
        """Where the operation with that id stands in `operations`, or None."""
        return next((i for i, o in enumerate(self.operations) if o.id == operation_id), None)

    @property
    def label(self) -> str:
        """name@version."""
        return f"{self.name}@{self.version}"


@functools.lru_cache(maxsize=64)  # reloads of one plugin share its manifest
def parse_manifest(text: str, where: str) -> Manifest:
    """Reads a manifest. `where` names it in errors. Raises ManifestError naming the key and the line."""
    if len(text) > MAX_MANIFEST_BYTES:
        raise ManifestError(f"{where}: {len(text)} characters, the limit is {MAX_MANIFEST_BYTES}")
    try:
        data: dict[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ManifestError(f"{where}: not TOML: {error}") from None
    try:
        return Manifest.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        line = _line_of(text, first["loc"])
        place = f"{where}:{line}" if line else where
        raise ManifestError(f"{place}: {key}: {first['msg']}") from None


def load_manifest(folder: Path) -> Manifest:
    """Reads folder/plugin.toml. Raises ManifestError."""
    path = folder / FILE_NAME
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ManifestError(f"{path}: {error}") from None
    return parse_manifest(text, str(path))


def _line_of(text: str, location: tuple[int | str, ...]) -> int | None:
    """The line that most likely holds the key: the last named part of its path."""
    names = [part for part in location if isinstance(part, str)]
    for name in reversed(names):
        pattern = re.compile(rf'^\s*(\[+[^\]]*\b)?"?{re.escape(name)}"?\s*(=|\]|\.)')
        for number, line in enumerate(text.splitlines(), 1):
            if pattern.match(line):
                return number
    return None
