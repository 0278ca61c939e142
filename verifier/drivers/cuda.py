"""GPUs, through the CUDA driver API. Importing this needs neither a GPU nor a driver; opening one does."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from verifier.drivers._checks import Child, check_contiguous, check_digest, check_no_children, check_size
from verifier.drivers._cuda_api import check, cuda_devices, device_info, driver_api, runs_on
from verifier.drivers._cuda_memory import CudaBuffer, view
from verifier.drivers._cuda_module import CudaModule
from verifier.drivers._cuda_stream import CudaStream
from verifier.drivers._driver import Buffer, Image
from verifier.errors import BackendError, DeviceUnavailableError, PluginError
from verifier.model import Bytes

__all__ = ["CudaDriver", "cuda_devices"]


class CudaDriver:
    """One GPU, in its primary context.

    A sticky error is remembered: from then on closing releases what it can and raises nothing, since only the end
    of the process gives the device back.
    """

    def __init__(self, index: int, *, spin: bool = False) -> None:
        """Opens GPU `index`. `spin`: wait for it without giving up the CPU, for lower latency at a busy core's cost.

        Raises DeviceUnavailableError where there is no such GPU.
        """
        self.api: Any = driver_api()
        self._children: dict[int, Child] = {}
        self._lost: BackendError | None = None
        self._threads = threading.local()
        self._ordinal = index
        try:
            self.info = device_info(index)
            self._device = check(self.info.id, self.api.cuDeviceGet(index))
            flags = self.api.CUctx_flags
            wait = flags.CU_CTX_SCHED_SPIN if spin else flags.CU_CTX_SCHED_BLOCKING_SYNC
            # Local memory keeps its largest size: plugins come and go, and each change would stop the device.
            options = int(wait) | int(flags.CU_CTX_LMEM_RESIZE_TO_MAX)
            check("context", self.api.cuDevicePrimaryCtxSetFlags(self._device, options))
            self._context: Any = check("context", self.api.cuDevicePrimaryCtxRetain(self._device))
        except BackendError as error:
            raise DeviceUnavailableError(f"cuda:{index} cannot be opened: {error}") from None
        events = self.api.CUevent_flags
        self._event_flags = int(events.CU_EVENT_DEFAULT if spin else events.CU_EVENT_BLOCKING_SYNC)
        self.events: deque[Any] = deque()  # that nobody uses, as many as were in use at one time
        self.attach()

    def attach(self) -> None:
        """Makes the context current in the calling thread. Every call does so by itself where it must."""
        if self._context is None:
            raise BackendError("device: it is closed")
        self.check("context", self.api.cuCtxSetCurrent(self._context))
        self._threads.attached = True

    def load(self, image: Image) -> CudaModule:
        """Loads a cubin. Raises PluginError where its target, digest or ABI is not right."""
        self.use()
        if not runs_on(image.target, self.info.target):
            raise PluginError(f"the image is for {image.target}, this device runs {self.info.target}")
        check_digest(image)
        return CudaModule(self, image)

    def allocate(self, nbytes: int) -> Buffer:
        """Memory of the device, not initialised, aligned to 256 bytes. Raises BackendError where there is none."""
        self.use()
        check_size("nbytes", nbytes)
        address = self.check(f"allocate {nbytes} bytes", self.api.cuMemAlloc(max(nbytes, 1)))
        return CudaBuffer(self, int(address), nbytes, None, lambda: self.api.cuMemFree(address))

    def allocate_managed(self, nbytes: int) -> Buffer:
        """Memory that moves between host and device; page-locked where they cannot use it at the same time."""
        if not self.info.concurrent_managed:
            return self.allocate_pinned(nbytes)
        self.use()
        check_size("nbytes", nbytes)
        flags = int(self.api.CUmemAttach_flags.CU_MEM_ATTACH_GLOBAL)
        address = self.check(f"allocate {nbytes} managed bytes", self.api.cuMemAllocManaged(max(nbytes, 1), flags))
        array = view(int(address), nbytes)
        buffer = CudaBuffer(self, int(address), nbytes, array, lambda: self.api.cuMemFree(address))
        try:
            self._keep_on_host(address, max(nbytes, 1))
        except BackendError:
            buffer.close()
            raise
        return buffer

    def _keep_on_host(self, address: Any, nbytes: int) -> None:
        """Lets the device write managed memory over the link, not by faults that move its pages to and fro.

        For verdict bitmaps, written once by the device and read once by the host, that is 0.2 ms a batch less.
        """
        api = self.api
        kinds, advice = api.CUmemLocationType, api.CUmem_advise
        host, device = api.CUmemLocation(), api.CUmemLocation()
        host.type, host.id = kinds.CU_MEM_LOCATION_TYPE_HOST, 0
        device.type, device.id = kinds.CU_MEM_LOCATION_TYPE_DEVICE, self._ordinal
        for kind, place in (
            (advice.CU_MEM_ADVISE_SET_PREFERRED_LOCATION, host),
            (advice.CU_MEM_ADVISE_SET_ACCESSED_BY, device),
        ):
            self.check("advise on managed memory", api.cuMemAdvise(address, nbytes, kind, place))

    def allocate_pinned(self, nbytes: int) -> Buffer:
        """Page-locked memory of the host; `address` is the device's name for it."""
        self.use()
        check_size("nbytes", nbytes)
        flags = int(self.api.CU_MEMHOSTALLOC_PORTABLE) | int(self.api.CU_MEMHOSTALLOC_DEVICEMAP)
        host = int(self.check(f"allocate {nbytes} page-locked bytes", self.api.cuMemHostAlloc(max(nbytes, 1), flags)))

        def free() -> tuple[Any, ...]:
            result: tuple[Any, ...] = self.api.cuMemFreeHost(host)
            return result

        return CudaBuffer(self, self._mapped(host, free), nbytes, view(host, nbytes), free)

    def register(self, array: Bytes) -> Buffer:
        """Page-locks memory that exists. Raises BackendError where the system does not allow it."""
        check_contiguous("array", array)
        self.use()
        host = array.ctypes.data
        flags = int(self.api.CU_MEMHOSTREGISTER_PORTABLE) | int(self.api.CU_MEMHOSTREGISTER_DEVICEMAP)
        self.check(f"page-lock {array.nbytes} bytes", self.api.cuMemHostRegister(host, array.nbytes, flags))

        def free() -> tuple[Any, ...]:
            result: tuple[Any, ...] = self.api.cuMemHostUnregister(host)
            return result

        return CudaBuffer(self, self._mapped(host, free), array.nbytes, array, free)

    def stream(
        self,
        *,
        inline: bool = False,  # noqa: ARG002 - for devices that are the CPU
        urgent: bool = False,
    ) -> CudaStream:
        """A new stream."""
        self.use()
        return CudaStream(self, urgent=urgent)

    def memory_free_bytes(self) -> int:
        """Memory of the device that is free, whoever uses the rest."""
        self.use()
        free, _ = self.check("free memory", self.api.cuMemGetInfo())
        return int(free)

    def synchronize(self) -> None:
        """Waits for everything. Raises BackendError."""
        self.use()
        self.check("wait for the device", self.api.cuCtxSynchronize())

    def close(self) -> None:
        """Gives the context back. Raises BackendError while a module, stream or buffer of it is open."""
        if self._context is None:
            return
        if self._lost is None:
            check_no_children(self._children.values())
        while self.events:
            self.release("close an event", partial(self.api.cuEventDestroy, self.events.pop()))
        self._context = None
        self.release("close the context", lambda: self.api.cuDevicePrimaryCtxRelease(self._device))

    def event(self) -> Any:
        """An event that nobody uses, which is to be recorded. Raises BackendError."""
        try:
            return self.events.pop()
        except IndexError:
            return self.check("event", self.api.cuEventCreate(self._event_flags))

    def use(self) -> None:
        """Before every call: the device is open, and its context current in this thread."""
        if not getattr(self._threads, "attached", False) or self._context is None:
            self.attach()

    def check(self, what: str, result: tuple[Any, ...]) -> Any:
        """What a call gave. Raises BackendError, and remembers a sticky one."""
        try:
            return check(what, result)
        except BackendError as error:
            self.fail(error)

    def fail(self, error: BackendError) -> None:
        """Raises an error, and remembers a sticky one."""
        if error.sticky:
            self._lost = error
        raise error

    def release(self, what: str, call: Callable[[], tuple[Any, ...]]) -> None:
        """Gives something back. Of a lost device nothing can be given back, and nothing is raised."""
        if self._lost is not None:
            return
        if self._context is not None:
            self.use()
        self.check(what, call())

    def opened(self, child: Child) -> None:
        """Counts something that depends on the device."""
        self._children[id(child)] = child

    def closed(self, child: Child) -> None:
        """Forgets it."""
        self._children.pop(id(child), None)

    def _mapped(self, host: int, free: Callable[[], tuple[Any, ...]]) -> int:
        """The device's address of page-locked memory; frees it where there is none."""
        try:
            return int(self.check("device address", self.api.cuMemHostGetDevicePointer(host, 0)))
        except BackendError:
            free()
            raise
