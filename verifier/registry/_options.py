"""How a registry is set up."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from verifier.drivers import DeviceInfo
from verifier.manifest import Manifest

__all__ = ["RegistryOptions"]

# Signatures that a CPU thread verifies in a twentieth of a second. A CPU does one batch at a time, so those who are
# served wait as long: 2048 lifted their 99th percentile to 3.6 times that without loads.
ITEMS_A_THREAD = 256


@dataclass(frozen=True)
class RegistryOptions:
    """Settings of a registry; the defaults are safe."""

    folders: tuple[Path, ...] = ()  # searched for plugins and bundles, before the shipped ones
    trust: Literal["locked", "any"] = "locked"  # "any": for development, whatever is found may load
    lock_files: tuple[Path, ...] = ()  # besides the shipped plugins/plugins.lock
    public_keys: tuple[Path, ...] = ()  # PEM files of Ed25519 keys whose bundles may load
    cache: Path | None = None  # the folder of built images; None: under the user's cache folder
    audit: Path | None = None  # the append-only audit file; None: kept in memory only
    drain_timeout_s: float = 30.0  # how long an unload waits for leases before it counts as stuck
    keep_previous_s: float = 600.0  # how long a superseded instance is kept for a roll-back
    memory_share: float = 0.8  # of a device's memory that all plugins' state may take
    build_timeout_s: float = 900.0
    selftest_timeout_s: float = 300.0
    quarantine_faults: int = 3  # so many faults of one instance ...
    quarantine_window_s: float = 60.0  # ... within so long take it out
    # By plugin: its variant ("" or "default": none) and its tunables, where a load does not ask for others.
    choices: Mapping[str, tuple[str, Mapping[str, int | str]]] = field(default_factory=dict)
    tuned: bool = True  # where neither decides: what `verifier plugin tune` found on the device, if it is built
    providers: bool = True  # where nobody chose a variant: libraries that a plugin names and that are installed
    # Tunables that decide how much memory a plugin takes, where nothing else names them.
    sized: Callable[[Manifest], Mapping[str, int | str]] = lambda _: {}
    gpu_chunk_items: int = 1 << 17  # items of the self-test's full chunk
    cpu_chunk_items: int = 1 << 15

    def chunk_items(self, device: DeviceInfo) -> int:
        """Items of the self-test's full chunk on a device. A small CPU gets fewer, for others wait."""
        if device.kind == "cuda":
            return self.gpu_chunk_items
        return min(self.cpu_chunk_items, ITEMS_A_THREAD * device.units)
