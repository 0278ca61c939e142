"""The manifest's parameter values as the contract's numbers."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from verifier.errors import ManifestError
from verifier.manifest import Manifest, Operation
from verifier.v1 import verifier_pb2

__all__ = ["allowed_numbers", "parameter_number"]

_ENUM_OF = {"address_hash": "Hash"}  # parameters that are not named like their enum


@lru_cache(1024)  # every request asks for a few of the manifests' values
def parameter_number(parameter: str, value: str | int) -> int:
    """The number of `value` in the contract's enum for `parameter` (input_kind: InputKind); integers stand for
    themselves. Raises ManifestError where the contract has no such enum or name."""
    if isinstance(value, int):
        return value
    enum_name = _ENUM_OF.get(parameter) or "".join(part.capitalize() for part in parameter.split("_"))
    enum: Any = verifier_pb2.DESCRIPTOR.enum_types_by_name.get(enum_name)
    if enum is None:
        raise ManifestError(
            f"parameters.{parameter}: the contract has no enum {enum_name}, so values must be integers"
        )
    prefix = "".join("_" + c if c.isupper() and i else c for i, c in enumerate(enum_name)).upper() + "_"
    number = enum.values_by_name.get(prefix + value)
    if number is None:
        names = ", ".join(name.removeprefix(prefix) for name in enum.values_by_name)
        raise ManifestError(f"parameters.{parameter}: {value} is not one of {names}")
    return int(number.number)


def allowed_numbers(manifest: Manifest) -> tuple[dict[str, frozenset[int]], ...]:
    """For each operation, each parameter's permitted numbers in the manifest's order. Raises ManifestError."""
    return tuple(_of_operation(operation) for operation in manifest.operations)


def _of_operation(operation: Operation) -> dict[str, frozenset[int]]:
    return {
        name: frozenset(parameter_number(name, value) for value in values)
        for name, values in operation.parameters.items()
    }
