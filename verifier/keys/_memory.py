"""How large a key's table is, and which build of a plugin has room for how many."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from verifier.errors import ConfigError
from verifier.manifest import Define, Manifest

__all__ = ["RESERVED_SLOTS", "WINDOWS", "TableSize", "row_count", "slot_bytes"]

RESERVED_SLOTS = 8  # the first ones: known answers enrol keys there
WINDOWS = range(4, 15)
DEFAULT_WINDOW = 8
DEFAULT_WINDOW_CPU = 5
_SCALAR_BITS = 256
_HEADER_BYTES = 4 * 96  # as plugins/common/curve_enrolled.cuh has it
_ENTRY_BYTES = 64
_OFF = 16  # slots of a build that only its known answers use


def row_count(window: int) -> int:
    """Rows of a key's table: one a window of the scalar."""
    return -(-_SCALAR_BITS // window)


def slot_bytes(window: int) -> int:
    """Device memory of one key."""
    entries: int = row_count(window) << (window - 1)
    return _HEADER_BYTES + _ENTRY_BYTES * entries


@dataclass(frozen=True)
class TableSize:
    """What the daemon's settings say of tables' memory.

    `nbytes` is for one curve on one device; None leaves window and slots to the plugin. `window` "auto" takes the
    largest at which `keys` keys fit. `enabled` False asks for the smallest build.
    """

    enabled: bool = True
    nbytes: int | None = None
    window: int | Literal["auto"] = "auto"
    keys: int = 1000

    def tunables(self, manifest: Manifest) -> dict[str, Define]:
        """The tunables to build a plugin with; none where it keeps no keys. Raises ConfigError where nothing fits."""
        declared = manifest.tunables.get("KEY_SLOTS")
        if declared is None:
            return {}
        sizes = sorted(value for value in declared.values if isinstance(value, int))
        if not self.enabled:
            return {"KEY_SLOTS": next(size for size in sizes if size >= _OFF)}
        chosen: dict[str, Define] = {} if self.window == "auto" else {"WINDOW_KEY": self.window}
        if self.nbytes is None:
            return chosen
        window = self._window(self.nbytes)
        fitting = [size for size in sizes if size * slot_bytes(window) <= self.nbytes and size >= _OFF]
        if not fitting:
            raise ConfigError(
                f"keys.table_bytes: {self.nbytes} bytes are too few: {_OFF} keys with window {window} take "
                f"{_OFF * slot_bytes(window)}; give more, or a smaller keys.window"
            )
        return {"KEY_SLOTS": fitting[-1], "WINDOW_KEY": window}

    def _window(self, nbytes: int) -> int:
        if self.window != "auto":
            return self.window
        fitting = [w for w in WINDOWS if (self.keys + RESERVED_SLOTS) * slot_bytes(w) <= nbytes]
        return fitting[-1] if fitting else WINDOWS[0]


@dataclass(frozen=True)
class TableShape:
    """The tables of one build: so many slots, each with so many rows."""

    slots: int
    rows: int
    slot_bytes: int

    @classmethod
    def of(cls, defines: Mapping[str, Define], *, gpu: bool) -> TableShape:
        """What a build with these macros has."""
        name, default = ("WINDOW_KEY", DEFAULT_WINDOW) if gpu else ("WINDOW_KEY_CPU", DEFAULT_WINDOW_CPU)
        window = int(defines.get(name, default))
        return cls(int(defines.get("KEY_SLOTS", 0)), row_count(window), slot_bytes(window))
