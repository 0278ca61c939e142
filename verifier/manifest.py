"""A plugin's manifest: what plugin.toml may say.

A plugin is a folder of data: plugin.toml, kernel source, known answers. Unknown keys are errors, so that a
misspelt setting is never silently ignored.
"""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, model_validator

from verifier._manifest_variants import (
    DEFAULT,
    NOTHING,
    Choice,
    Define,
    FileName,
    Name,
    Provider,
    Strict,
    Symbol,
    Tunable,
    Variant,
    Version,
    kind_of,
    listed,
)
from verifier.errors import ManifestError

__all__ = [
    "DEFAULT",
    "FILE_NAME",
    "Choice",
    "Define",
    "Manifest",
    "Name",
    "Operation",
    "Output",
    "Provider",
    "Symbol",
    "Tunable",
    "Variant",
    "kind_of",
    "load_manifest",
    "parse_manifest",
]

FILE_NAME = "plugin.toml"
MAX_MANIFEST_BYTES = 256 * 1024


class Output(Strict):
    """Bytes that an operation gives for every item."""

    name: Name
    bytes: int = Field(ge=1, le=1 << 20)


Role = Literal["call", "enroll", "enrolled"]


class Operation(Strict):
    """What a plugin does to an item.

    `role` says whose it is. Callers ask for "call". The daemon alone asks for the others: "enroll" changes the
    plugin's memory, so that its known answers run once, whole, in the file's order; "enrolled" does what a "call"
    does with what was enrolled, and its known answers come after those that enrol.
    """

    name: Name
    algorithm: Symbol
    role: Role = "call"
    inputs: tuple[Name, ...] = Field(min_length=1, max_length=6)
    widths: dict[Name, Annotated[int, Field(ge=1, le=1 << 20)]] = Field(default_factory=dict)  # of fixed-width inputs
    outputs: tuple[Output, ...] = Field(default=(), max_length=2)
    stages: tuple[Symbol, ...] = Field(min_length=1, max_length=16)
    round_stage: Symbol | None = None  # nearly all the work: batches are cut into whole rounds of it
    chunk_rounds: int | None = Field(default=None, ge=1, le=1024)  # as many each; absent: the worker's chunk_rounds
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


class Manifest(Strict):
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
    tunables: dict[Symbol, Tunable] = Field(default_factory=dict)
    operations: tuple[Operation, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _names_are_unique(self) -> Manifest:
        pairs = [(operation.name, operation.algorithm) for operation in self.operations]
        for pair in pairs:
            if pairs.count(pair) > 1:
                raise ValueError(f"operations: {pair[0]} for {pair[1]} is declared twice")
        return self

    @model_validator(mode="after")
    def _what_tunables_name_is_there(self) -> Manifest:
        if DEFAULT in self.variants:
            raise ValueError(f"variants.{DEFAULT}: stands for no variant; give it another name")
        ids = [operation.id for operation in self.operations]
        for name, tunable in self.tunables.items():
            for variant in tunable.variants:
                if variant not in (DEFAULT, *self.variants):
                    raise ValueError(f"tunables.{name}.variants: {variant} is not one of {self._variant_names()}")
            for operation in tunable.operations:
                if operation not in ids:
                    raise ValueError(f"tunables.{name}.operations: {operation} is not one of {', '.join(ids)}")
        return self

    def _variant_names(self) -> str:
        return listed((DEFAULT, *self.variants))

    @property
    def sources(self) -> tuple[str, ...]:
        """Every source that a build may start from, the default first."""
        others = [v.source for v in self.variants.values() if v.source is not None]
        return tuple(dict.fromkeys([self.source, *others]))

    def choice(self, variant: str = "", tunables: Mapping[str, Define] | None = None) -> Choice:
        """A choice by names. Values may be given as text. Raises ManifestError naming what is allowed."""
        variant = variant or DEFAULT
        if variant != DEFAULT and variant not in self.variants:
            raise ManifestError(f"{self.label}: variant {variant}: there is none; it has {self._variant_names()}")
        chosen: list[tuple[str, Define]] = []
        for name, value in sorted((tunables or {}).items()):
            if name not in self.tunables:
                have = listed(tuple(self.tunables)) if self.tunables else "none"
                raise ManifestError(f"{self.label}: tunable {name}: there is none; it has {have}")
            values = self.tunables[name].values
            found = next((known for known in values if str(known) == str(value)), None)
            if found is None:
                raise ManifestError(f"{self.label}: tunable {name}: {value} is not one of {listed(values)}")
            chosen.append((name, found))
        return Choice(variant, tuple(chosen))

    def applied(self, choice: Choice, target: str) -> Choice:
        """That part of a choice that is for such a device as `target`, sm_90 or x86-64-v3; the rest stays at the
        default there. Raises ManifestError as `choice` does."""
        choice = self.choice(choice.variant, dict(choice.tunables))
        kind = kind_of(target)
        variant = choice.variant
        if variant != DEFAULT and kind not in self.variants[variant].targets:
            variant = DEFAULT
        return Choice(variant, tuple(pair for pair in choice.tunables if kind in self.tunables[pair[0]].targets))

    def build(self, choice: Choice, target: str) -> tuple[str, dict[str, Define]]:
        """The source and the macros of a choice for a target. Raises ManifestError as `choice` does."""
        choice = self.applied(choice, target)
        kind = kind_of(target)
        variant = self.variants.get(choice.variant) or NOTHING
        defaults = {name: tunable.default[kind] for name, tunable in self.tunables.items() if kind in tunable.default}
        # What was asked for stands above a variant's defines, and those above defaults.
        defines = {**self.defines, **defaults, **variant.defines, **dict(choice.tunables)}
        return variant.source or self.source, defines

    def provider(self, choice: Choice, target: str) -> Provider | None:
        """What a choice's build for a target is linked with. Raises ManifestError as `choice` does."""
        return self.variants.get(self.applied(choice, target).variant, NOTHING).provider

    def operation(self, name: str, algorithm: str) -> Operation | None:
        """The operation of that name for that algorithm, or None."""
        return next((o for o in self.operations if o.name == name and o.algorithm == algorithm), None)

    def index(self, operation_id: str) -> int | None:
        """Where the operation with that id stands in `operations`, or None."""
        return self._indices.get(operation_id)

    @functools.cached_property
    def _indices(self) -> dict[str, int]:
        """Asked for with every batch."""
        return {operation.id: i for i, operation in enumerate(self.operations)}

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
