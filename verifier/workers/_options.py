"""What can be set of a worker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from verifier.errors import ConfigError
from verifier.workers._plan import Ramp

__all__ = ["MAX_SLOT_BYTES", "BitmapMemory", "WorkerOptions"]

BitmapMemory = Literal["managed", "pinned", "device"]

MAX_SLOT_BYTES = (1 << 32) - 64  # offsets in a slot are u32

# Far above what the slowest operations take, so that only a hang reaches them.
_GPU_ITEM_LIMIT_S = 50e-6
_ITEM_LIMIT_S = 5e-3


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """Settings of one worker. Raises ConfigError naming the setting and its limit."""

    slots: int = 4  # batches in flight
    slot_bytes: int = 64 << 20  # columns and results of one batch
    streams: int = 8
    chunk_rounds: int = 2  # a chunk is so many full launches of the operation's widest stage, at least
    chunk_least_bytes: int = 4 << 20  # and has so many input bytes, at least: small copies do not fill the link
    chunk_most_bytes: int = 32 << 20  # and so many at most: one chunk's copies overlap another's kernels
    chunk_both_ways_bytes: int = 32 << 20  # a chunk of long items of which as much comes back; 0: as the others
    chunk_ramp: Ramp = "kernels"  # what begins with a smaller chunk on an idle device: see _plan
    unified_chunk_items: int = 32768  # where the device works in place: bounds the scratch memory
    bitmap_memory: BitmapMemory = "managed"
    driver: Mapping[str, Any] = field(default_factory=dict)  # options of verifier.drivers.open_driver
    start_timeout_s: float = 60.0
    load_timeout_s: float = 120.0
    drain_timeout_s: float = 10.0
    stop_timeout_s: float = 5.0  # from the order to stop until the process is killed
    batch_limit_s: float = 5.0  # the watchdog: a batch may take this long
    item_limit_s: float | None = None  # and this for each of its items; None: what suits the device
    backoff_first_s: float = 0.05
    backoff_max_s: float = 30.0
    backoff_reset_s: float = 60.0  # up for so long, and the back-off starts anew
    load_attempts: int = 2  # so many processes may be lost while one instance is loaded again

    def __post_init__(self) -> None:
        for name, least, most in (
            ("slots", 1, 64),
            ("slot_bytes", 4096, MAX_SLOT_BYTES),
            ("streams", 1, 16),
            ("chunk_rounds", 1, 1024),
            ("chunk_least_bytes", 0, self.chunk_most_bytes),
            ("chunk_most_bytes", 1, MAX_SLOT_BYTES),
            ("chunk_both_ways_bytes", 0, MAX_SLOT_BYTES),
            ("unified_chunk_items", 32, 1 << 30),
            ("load_attempts", 1, 100),
        ):
            value = getattr(self, name)
            if not least <= value <= most:
                raise ConfigError(f"workers.{name}: {value} is not between {least} and {most}")
        if self.slot_bytes % 64:
            raise ConfigError(f"workers.slot_bytes: {self.slot_bytes} is not a multiple of 64")
        for name in (
            "start_timeout_s",
            "load_timeout_s",
            "drain_timeout_s",
            "stop_timeout_s",
            "batch_limit_s",
            "item_limit_s",
            "backoff_first_s",
            "backoff_max_s",
            "backoff_reset_s",
        ):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise ConfigError(f"workers.{name}: {value} is negative")
        if self.chunk_ramp not in ("none", "kernels", "all"):
            raise ConfigError(f"workers.chunk_ramp: {self.chunk_ramp!r} is not none, kernels or all")
        if self.bitmap_memory not in ("managed", "pinned", "device"):
            raise ConfigError(f"workers.bitmap_memory: {self.bitmap_memory!r} is not managed, pinned or device")

    def limit_s(self, device_id: str, items: int) -> float:
        """How long a batch of `items` items may take before its process counts as hanging."""
        item_limit_s = self.item_limit_s
        if item_limit_s is None:
            item_limit_s = _GPU_ITEM_LIMIT_S if device_id.startswith("cuda") else _ITEM_LIMIT_S
        return self.batch_limit_s + item_limit_s * items
