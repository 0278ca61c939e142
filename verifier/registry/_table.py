"""Who serves what, as one immutable value: replacing it is the swap."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from verifier.errors import NotServedError
from verifier.registry._instance import Instance, Resolved

__all__ = ["Table"]


@dataclass(frozen=True)
class Table:
    """The instances that take new batches.

    `active` by plugin name, `pinned` by (name, version), `routes` by (operation, algorithm).
    """

    active: Mapping[str, Instance] = field(default_factory=dict)
    pinned: Mapping[tuple[str, str], Instance] = field(default_factory=dict)
    routes: Mapping[tuple[str, str], Instance] = field(default_factory=dict)

    def with_warm(self, instance: Instance) -> Table:
        """This table where `instance` answers for its version."""
        pinned = {**self.pinned, (instance.plugin, instance.version): instance}
        return Table(self.active, pinned, self.routes)

    def with_active(self, instance: Instance) -> Table:
        """This table where `instance` answers for its version, its plugin's name and its operations. Those that only
        its predecessor had go to another active plugin that has them."""
        replaced = self.active.get(instance.plugin)
        routes = {key: value for key, value in self.routes.items() if value is not replaced}
        routes |= {(o.name, o.algorithm): instance for o in instance.manifest.operations}
        active = {**self.active, instance.plugin: instance}
        return Table(active, self.with_warm(instance).pinned, _filled(routes, active))

    def without(self, instance: Instance) -> Table:
        """This table without `instance`. Operations that it served go to another active plugin that has them."""
        active = {name: other for name, other in self.active.items() if other is not instance}
        routes = {key: other for key, other in self.routes.items() if other is not instance}
        pinned = {key: other for key, other in self.pinned.items() if other is not instance}
        return Table(active, pinned, _filled(routes, active))

    def find(self, plugin: str, version: str | None) -> Instance:
        """The instance for new batches of a plugin. Raises NotServedError naming what is served."""
        instance = self.active.get(plugin) if version is None else self.pinned.get((plugin, version))
        if instance is None:
            wanted = plugin if version is None else f"{plugin}@{version}"
            raise NotServedError("plugin", f"{wanted} is not served; served are {self.plugins()}")
        return instance

    def route(self, operation: str, algorithm: str) -> Resolved:
        """The active instance for an operation. Raises NotServedError naming what is served."""
        instance = self.routes.get((operation, algorithm))
        if instance is None:
            served = ", ".join(sorted(f"{name} for {of}" for name, of in self.routes)) or "nothing"
            raise NotServedError("scheme", f"no plugin serves {operation} for {algorithm}; served are {served}")
        return instance.resolve(operation, algorithm, None)

    def plugins(self) -> str:
        """The served plugins, for an error's text."""
        return ", ".join(sorted(f"{name}@{version}" for name, version in self.pinned)) or "none"


def _filled(
    routes: Mapping[tuple[str, str], Instance], active: Mapping[str, Instance]
) -> dict[tuple[str, str], Instance]:
    """These routes, and of operations that lead nowhere those to the oldest active instance that has them."""
    filled = dict(routes)
    for instance in sorted(active.values(), key=lambda instance: instance.id):
        for operation in instance.manifest.operations:
            filled.setdefault((operation.name, operation.algorithm), instance)
    return filled
