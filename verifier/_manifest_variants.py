"""How else a plugin may be built: variants, the libraries they may be linked with, tunables, and what is chosen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

__all__ = [
    "BOTH",
    "DEFAULT",
    "NOTHING",
    "Choice",
    "Define",
    "FileName",
    "Kind",
    "Name",
    "Provider",
    "Strict",
    "Symbol",
    "Tunable",
    "Variant",
    "Version",
    "kind_of",
    "listed",
]

Name = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,63}$")]
Symbol = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$")]
Version = Annotated[str, StringConstraints(pattern=r"^\d{1,6}\.\d{1,6}\.\d{1,6}$")]
FileName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$")]
Define = int | str
Kind = Literal["gpu", "cpu"]
BOTH: tuple[Kind, ...] = ("gpu", "cpu")


class Strict(BaseModel):
    """A part of a manifest: an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Provider(Strict):
    """A library that a variant's build for the CPU has in it: an archive that a package of PyPI brings.

    `sha256` has its digest for each version of the package that may be used: what is linked is as much a part of the
    plugin as its source. `cpu_flags`, as /proc/cpuinfo names them, are what its instructions need. With `automatic` a
    CPU gets the variant where nobody chose one.
    """

    package: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$")]
    file: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,120}\.a$")]
    sha256: dict[str, Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]] = Field(min_length=1)
    cpu_flags: tuple[Annotated[str, StringConstraints(pattern=r"^[a-z0-9_]{1,32}$")], ...] = ()
    automatic: bool = True


class Variant(Strict):
    """Another way to build the plugin: macros that replace or add to the defaults, or another source with the same
    stages. Where `targets` leaves a kind of device out the variant is not for it, and the default is built there.

    One with an automatic provider is what a CPU gets where nobody chose and the provider's library is at hand."""

    description: str = ""
    defines: dict[Symbol, Define] = Field(default_factory=dict)
    source: FileName | None = None
    targets: tuple[Kind, ...] = Field(default=BOTH, min_length=1)
    provider: Provider | None = None

    @model_validator(mode="after")
    def _providers_are_for_cpus(self) -> Variant:
        if self.provider is not None and self.targets != ("cpu",):
            raise ValueError('provider: needs targets = ["cpu"]')
        return self

    @model_validator(mode="after")
    def _it_is_another(self) -> Variant:
        if not self.defines and self.source is None:
            raise ValueError("needs defines or a source: without either it is the default")
        return self


# The variant of who chose none.
NOTHING = Variant.model_construct(defines={}, source=None, provider=None)


class Tunable(Strict):
    """A macro of which several values give the same results. `NAME = [1, 2]` is short for `values`.

    `default` is for a kind of device what builds pass; absent: nothing is passed and the source decides. `measured`
    false: it is a question of memory, which tuning leaves alone.
    """

    description: str = ""
    values: tuple[Define, ...] = Field(min_length=1, max_length=32)
    default: dict[Kind, Define] = Field(default_factory=dict)
    targets: tuple[Kind, ...] = Field(default=BOTH, min_length=1)  # where it matters
    variants: tuple[Name, ...] = ()  # with which it matters, "default" being none; empty: with all
    operations: tuple[str, ...] = ()  # ids that it matters to; empty: all
    measured: bool = True

    @model_validator(mode="before")
    @classmethod
    def _a_list_is_its_values(cls, data: Any) -> Any:
        return {"values": data} if isinstance(data, list | tuple) else data

    @model_validator(mode="after")
    def _defaults_are_values(self) -> Tunable:
        for kind, value in self.default.items():
            if value not in self.values:
                raise ValueError(f"default.{kind}: {value} is not one of {listed(self.values)}")
        return self


DEFAULT = "default"  # the name of no variant: what the manifest's own source and defines give


@dataclass(frozen=True)
class Choice:
    """What a plugin is built with: a variant, and values of tunables in the order of their names."""

    variant: str = DEFAULT
    tunables: tuple[tuple[str, Define], ...] = ()

    @property
    def text(self) -> str:
        """variant NAME=VALUE ..., as listings have it."""
        return " ".join((self.variant, *(f"{name}={value}" for name, value in self.tunables)))


def kind_of(target: str) -> Kind:
    """Which kind of device a build's target is: sm_NN and compute_NN are GPUs."""
    return "gpu" if target.startswith(("sm_", "compute_")) else "cpu"


def listed(values: tuple[Define, ...]) -> str:
    """The values, for an error's text."""
    return ", ".join(str(value) for value in values)
