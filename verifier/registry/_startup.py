"""The plugins that a daemon starts with."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

from verifier.errors import VerifierError
from verifier.registry._folders import plugin_paths, shipped_folder
from verifier.registry._instance import InstanceStatus

__all__ = ["load_all"]

PARALLEL = 4  # compilers and self-tests overlap; more would only queue for the CPU


class _Loads(Protocol):
    def load(self, what: str | Path, *, activate: bool = True) -> InstanceStatus: ...


def load_all(registry: _Loads, names: Sequence[str] | None = None) -> dict[str, InstanceStatus | VerifierError]:
    """Loads plugins by name, name@version or path; None: every shipped one.

    Returns what came of each, by the name asked for: one that fails does not keep the others from serving. Of
    several versions of one plugin the last named is active.
    """
    wanted = list(names) if names is not None else [path.name for path in plugin_paths(shipped_folder())]

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
