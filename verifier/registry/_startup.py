"""The plugins that a daemon starts with."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

from verifier.errors import VerifierError
from verifier.manifest import load_manifest
from verifier.registry._folders import plugin_paths, shipped_folder
from verifier.registry._instance import InstanceStatus

__all__ = ["load_all", "reachable"]

# What every daemon serves. Block ciphers take time to build: they load when an operator names them.
CALLED = {"verify", "recover", "digest"}

PARALLEL = 4  # compilers and self-tests overlap; more would only queue for the CPU


class _Loads(Protocol):
    def load(self, what: str | Path, *, activate: bool = True) -> InstanceStatus: ...


def reachable() -> list[str]:
    """The shipped plugins with an operation that every daemon serves."""
    found = []
    for path in plugin_paths(shipped_folder()):
        if path.is_dir() and CALLED.isdisjoint(operation.name for operation in load_manifest(path).operations):
            continue
        found.append(path.name)
    return found


def load_all(registry: _Loads, names: Sequence[str] | None = None) -> dict[str, InstanceStatus | VerifierError]:
    """Loads plugins by name, name@version or path; None, and the name "auto": what `reachable` finds.

    Returns what came of each, by the name asked for: one that fails does not keep the others from serving. Of
    several versions of one plugin the last named is active.
    """
    wanted = [name for given in names or ("auto",) for name in (reachable() if given == "auto" else [given])]

    def load(name: str) -> InstanceStatus | VerifierError:
        try:
            return registry.load(name)
        except VerifierError as error:
            return error

    by_plugin: dict[str, list[str]] = {}
    for name in wanted:
        by_plugin.setdefault(name.partition("@")[0], []).append(name)

    def load_in_order(group: list[str]) -> list[InstanceStatus | VerifierError]:
        return [load(name) for name in group]

    with ThreadPoolExecutor(PARALLEL, "registry-start") as pool:
        outcomes = list(pool.map(load_in_order, by_plugin.values()))
    return {
        name: outcome
        for group, results in zip(by_plugin.values(), outcomes, strict=True)
        for name, outcome in zip(group, results, strict=True)
    }
