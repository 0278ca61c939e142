"""Plugins from folder to service: what they are, whether they may load, that they are right, which one serves."""

from __future__ import annotations

from verifier.registry._instance import Instance, InstanceStatus, Lease, Resolved, State
from verifier.registry._options import RegistryOptions
from verifier.registry._registry import Registry
from verifier.registry._source import PluginSource

__all__ = [
    "Instance",
    "InstanceStatus",
    "Lease",
    "PluginSource",
    "Registry",
    "RegistryOptions",
    "Resolved",
    "State",
]
