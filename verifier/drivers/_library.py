"""A shared library that is loaded from bytes and unloaded again."""

from __future__ import annotations

import _ctypes
import ctypes
import os
from collections.abc import Callable

from verifier.drivers._abi import BatchStruct, PluginInfo
from verifier.errors import PluginError

__all__ = ["Library", "Stage"]

# void name(const Batch*, u32 begin, u32 end, u32 lane). ctypes releases the interpreter lock around the call.
Stage = Callable[[object, int, int, int], None]
_PROTOTYPE = ctypes.CFUNCTYPE(None, ctypes.POINTER(BatchStruct), ctypes.c_uint32, ctypes.c_uint32, ctypes.c_uint32)


class Library:
    """One loaded library, in memory of its own: two builds of one plugin live side by side."""

    def __init__(self, data: bytes) -> None:
        # The file stays open as long as the library is loaded: the loader knows libraries by name, and the name
        # of a closed descriptor would be given again.
        self._descriptor = os.memfd_create("plugin")
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(self._descriptor, view) :]
            self._library = ctypes.CDLL(f"/proc/self/fd/{self._descriptor}", mode=os.RTLD_NOW | os.RTLD_LOCAL)
        except OSError as error:
            os.close(self._descriptor)
            raise PluginError(f"the image cannot be loaded as a shared library: {error}") from None

    def info(self) -> PluginInfo:
        """A copy of the symbol plugin_info. Raises PluginError where the image has none."""
        try:
            return PluginInfo.from_buffer_copy(PluginInfo.in_dll(self._library, "plugin_info"))
        except ValueError:
            raise PluginError("the image has no symbol plugin_info: its source lacks PLUGIN_INFO") from None

    def stage(self, name: str) -> Stage:
        """The exported function of that name. Raises PluginError where the image has none."""
        try:
            return _PROTOTYPE((name, self._library))
        except (AttributeError, ValueError):
            raise PluginError(f"the image has no stage {name!r}") from None

    def constant(self, name: str) -> int:
        """The u32 symbol of that name. Raises PluginError where the image has none."""
        try:
            return ctypes.c_uint32.in_dll(self._library, name).value
        except ValueError:
            raise PluginError(f"the image has no constant {name!r}") from None

    def close(self) -> None:
        """Unloads it: no stage of it may run any more. Called once."""
        _ctypes.dlclose(self._library._handle)
        os.close(self._descriptor)
