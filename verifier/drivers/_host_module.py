"""Stages of a shared library."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from verifier.drivers._abi import PluginInfo
from verifier.drivers._checks import check_abi
from verifier.drivers._driver import Image
from verifier.drivers._library import Library, Stage
from verifier.errors import BackendError, PluginError

if TYPE_CHECKING:
    from verifier.drivers.host import HostDriver

__all__ = ["HostFunction", "HostModule"]


_WEIGHT = 0.2  # of what a stage took last


class HostFunction:
    """A stage of a loaded library. `item_s` is what a thread takes for an item, lately; None before it has run."""

    threads = 1
    warp_items = 32

    def __init__(self, module: HostModule, name: str, stage: Stage, lanes: int) -> None:
        self.module = module
        self.name = name
        self.lanes = lanes
        self.stage = stage
        self.item_s: float | None = None

    def observe(self, item_s: float) -> None:
        """A thread took so many seconds an item. Streams may say so at once: whichever is lost comes again."""
        self.item_s = item_s if self.item_s is None else self.item_s + _WEIGHT * (item_s - self.item_s)


class HostModule:
    """A loaded library. It is unloaded only when no stream has work of it."""

    noun = "module"

    def __init__(self, driver: HostDriver, image: Image) -> None:
        self._driver = driver
        self._library: Library | None = Library(image.data)
        self._functions: dict[str, HostFunction] = {}
        self._launches = 0  # put into streams and not yet done
        self._lock = threading.Lock()
        try:
            self.info: PluginInfo = self._library.info()
            check_abi(self.info)
        except PluginError:
            self._library.close()
            raise
        driver.opened(self)

    def function(self, name: str) -> HostFunction:
        """The stage `name`. Raises PluginError where the image has none."""
        if name not in self._functions:
            stage = self._open().stage(name)
            self._functions[name] = HostFunction(self, name, stage, self._driver.info.units)
        return self._functions[name]

    def constant(self, name: str) -> int:
        """The u32 symbol `name`. Raises PluginError where the image has none."""
        return self._open().constant(name)

    def close(self) -> None:
        """Unloads the library. Raises BackendError while a stream has work of it."""
        with self._lock:
            if self._library is None:
                return
            if self._launches:
                raise BackendError(f"module: {self._launches} launches of it are not done, synchronize first")
            self._functions.clear()
            self._library.close()
            self._library = None
        self._driver.closed(self)

    def _open(self) -> Library:
        if self._library is None:
            raise BackendError("module: it is closed")
        return self._library

    def begin(self) -> None:
        """Counts a launch that was put into a stream. Raises BackendError where the library is unloaded."""
        with self._lock:
            self._open()
            self._launches += 1

    def end(self) -> None:
        """Counts a launch that is done."""
        with self._lock:
            self._launches -= 1
