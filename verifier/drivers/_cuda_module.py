"""Kernels of a cubin."""

from __future__ import annotations

import ctypes
import threading
from typing import TYPE_CHECKING, Any

from verifier.drivers._abi import PluginInfo
from verifier.drivers._checks import check_abi
from verifier.drivers._cuda_api import error_of
from verifier.drivers._driver import Image
from verifier.errors import BackendError, PluginError

if TYPE_CHECKING:
    from verifier.drivers.cuda import CudaDriver

__all__ = ["CudaFunction", "CudaModule"]


class CudaFunction:
    """A kernel, with the largest grid of which all blocks run at once."""

    def __init__(
        self, module: CudaModule, name: str, handle: Any, threads: int, blocks: int, shared: int, warp_items: int
    ) -> None:
        self.module = module
        self.name = name
        self.handle = handle
        self.threads = threads
        self.blocks = blocks
        self.lanes = blocks * threads
        self.shared = shared  # bytes of dynamic shared memory a block
        self.warp_items = warp_items
        self.few: CudaFunction | None = None  # runs in this one's place for 1 to few_items items
        self.few_items = 0

    def for_items(self, items: int) -> CudaFunction:
        """The kernel that a launch over so many items runs."""
        return self.few if self.few is not None and 0 < items <= self.few_items else self

    def hold_to(self, lanes: int) -> None:
        """Launches no more lanes than these. Raises PluginError where they are fewer than a block's."""
        if lanes < self.threads:
            raise PluginError(f"stage {self.name!r} has blocks of {self.threads} threads, more than {lanes} lanes")
        self.blocks = min(self.blocks, lanes // self.threads)
        self.lanes = self.blocks * self.threads

    def grid(self, items: int) -> int:
        """Blocks for so many items: as many as run at once and have a warp's items each.

        Few warps are spread thin: a warp alone on its multiprocessor is done in a fraction of the time that it
        takes beside fifteen others.
        """
        return max(1, min(self.blocks, -(-items // self.warp_items)))


class CudaModule:
    """A loaded cubin."""

    noun = "module"

    def __init__(self, driver: CudaDriver, image: Image) -> None:
        self._driver = driver
        self._functions: dict[str, CudaFunction] = {}
        self._lock = threading.Lock()
        api = driver.api
        error, handle = api.cuModuleLoadData(image.data)
        if int(error) != 0:
            problem = error_of("load", error)
            if problem.sticky or error.name == "CUDA_ERROR_OUT_OF_MEMORY":
                driver.fail(problem)
            raise PluginError(f"the image cannot be loaded: {problem}")
        self._handle: Any = handle
        try:
            self.info = PluginInfo.from_buffer_copy(self._read("plugin_info", ctypes.sizeof(PluginInfo)))
            check_abi(self.info)
        except BaseException:
            driver.release("unload", lambda: api.cuModuleUnload(handle))
            raise
        driver.opened(self)

    def function(self, name: str) -> CudaFunction:
        """The kernel `name`, ready to launch. Raises PluginError where the image has none."""
        self.check_open()
        with self._lock:
            if name not in self._functions:
                function = self._resolve(name)
                function.few_items = self._optional(f"{name}_few_items", 0) * self._driver.info.units
                if function.few_items:
                    function.few = self._resolve(f"{name}_few")
                    function.few.hold_to(function.lanes)
                self._functions[name] = function
            return self._functions[name]

    def constant(self, name: str) -> int:
        """The u32 symbol `name`. Raises PluginError where the image has none."""
        self.check_open()
        return int.from_bytes(self._read(name, 4), "little")

    def close(self) -> None:
        """Unloads the cubin. No stream may still have work of it."""
        if self._handle is None:
            return
        handle, self._handle = self._handle, None
        self._functions.clear()
        self._driver.closed(self)
        self._driver.release("unload", lambda: self._driver.api.cuModuleUnload(handle))

    def check_open(self) -> None:
        """Raises BackendError where the cubin is unloaded."""
        if self._handle is None:
            raise BackendError("module: it is closed")
        self._driver.use()

    def _resolve(self, name: str) -> CudaFunction:
        driver, api = self._driver, self._driver.api
        error, handle = api.cuModuleGetFunction(self._handle, name.encode())
        if error.name == "CUDA_ERROR_NOT_FOUND":
            raise PluginError(f"the image has no stage {name!r}")
        driver.check(f"stage {name}", (error,))
        driver.check(f"stage {name}", api.cuFuncLoad(handle))  # now, not at the first launch
        most = api.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK
        threads = int(driver.check(f"stage {name}", api.cuFuncGetAttribute(most, handle)))
        if threads % 32:
            raise PluginError(f"stage {name!r} has launch bounds of {threads} threads, not a multiple of 32")
        shared = self._optional(f"{name}_shared", 0)
        if shared:
            dynamic = api.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            (error,) = api.cuFuncSetAttribute(handle, dynamic, shared)
            if error.name == "CUDA_ERROR_INVALID_VALUE":
                raise PluginError(
                    f"stage {name!r} wants {shared} bytes of shared memory a block, the device has less"
                )
            driver.check(f"stage {name}", (error,))
        blocks = int(
            driver.check(f"stage {name}", api.cuOccupancyMaxActiveBlocksPerMultiprocessor(handle, threads, shared))
        )
        if blocks == 0:
            raise PluginError(f"stage {name!r} needs more than a multiprocessor has for a block of {threads} threads")
        warp_items = self._optional(f"{name}_warp_items", 32)
        return CudaFunction(self, name, handle, threads, blocks * driver.info.units, shared, warp_items)

    def _optional(self, name: str, default: int) -> int:
        """The u32 symbol `name`, or the default where the image has none."""
        error, _, _ = self._driver.api.cuModuleGetGlobal(self._handle, name.encode())
        if error.name == "CUDA_ERROR_NOT_FOUND":
            return default
        return int.from_bytes(self._read(name, 4), "little")

    def _read(self, name: str, nbytes: int) -> bytes:
        """A symbol's bytes."""
        driver, api = self._driver, self._driver.api
        error, address, size = api.cuModuleGetGlobal(self._handle, name.encode())
        if error.name == "CUDA_ERROR_NOT_FOUND":
            raise PluginError(f"the image has no constant {name!r}")
        driver.check(f"constant {name}", (error,))
        if size != nbytes:
            raise PluginError(f"the image's constant {name!r} has {size} bytes, not {nbytes}")
        data = (ctypes.c_uint8 * nbytes)()
        driver.check(f"constant {name}", api.cuMemcpyDtoH(ctypes.addressof(data), address, nbytes))
        return bytes(data)
