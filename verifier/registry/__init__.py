"""Plugins from folder to service: what they are, whether they may load, that they are right, which one serves."""

from __future__ import annotations

from verifier.registry._audit import AuditLog, AuditRecord
from verifier.registry._book import Transition
from verifier.registry._bundle import bundle_bytes, read_bundle
from verifier.registry._folders import common_folder, find_source, plugin_paths, read_source, shipped_folder
from verifier.registry._instance import Instance, InstanceStatus, Lease, Resolved, State
from verifier.registry._options import RegistryOptions
from verifier.registry._parameters import parameter_number
from verifier.registry._providers import Offer, build_files, offers, usable_variants
from verifier.registry._registry import Registry
from verifier.registry._source import PluginSource
from verifier.registry._startup import load_all
from verifier.registry._trust import Trust, read_lock, sign, write_lock
from verifier.registry._tuning import Tuned, TuningFile
from verifier.registry._tuning_run import tune
from verifier.registry._watch import Watcher

__all__ = [
    "AuditLog",
    "AuditRecord",
    "Instance",
    "InstanceStatus",
    "Lease",
    "Offer",
    "PluginSource",
    "Registry",
    "RegistryOptions",
    "Resolved",
    "State",
    "Transition",
    "Trust",
    "Tuned",
    "TuningFile",
    "Watcher",
    "build_files",
    "bundle_bytes",
    "common_folder",
    "find_source",
    "load_all",
    "offers",
    "parameter_number",
    "plugin_paths",
    "read_bundle",
    "read_lock",
    "read_source",
    "shipped_folder",
    "sign",
    "tune",
    "usable_variants",
    "write_lock",
]
