"""Streams and events of a GPU."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from verifier.drivers._abi import BatchStruct
from verifier.drivers._checks import address_of, check_contiguous, check_size
from verifier.drivers._cuda_module import CudaFunction
from verifier.drivers._driver import Event, Function
from verifier.errors import BackendError
from verifier.model import Bytes

if TYPE_CHECKING:
    from verifier.drivers.cuda import CudaDriver

__all__ = ["CudaEvent", "CudaStream"]


class CudaEvent:
    """A point in a stream. Its handle is another one's before and after: making and destroying one costs a small
    batch as much as recording it does."""

    def __init__(self, driver: CudaDriver, handle: Any) -> None:
        self._driver = driver
        self.handle = handle
        self._is_well = False  # reached without an error, as `reached` has found

    def synchronize(self) -> None:
        """Waits until the stream has reached it. Raises BackendError."""
        if self._is_well:
            return
        self._driver.use()
        self._driver.check("wait for an event", self._driver.api.cuEventSynchronize(self.handle))

    def reached(self) -> bool:
        """Whether `synchronize` would return or raise at once."""
        self._driver.use()
        (status,) = self._driver.api.cuEventQuery(self.handle)
        self._is_well = int(status) == 0
        return self._is_well or bool(status != self._driver.api.CUresult.CUDA_ERROR_NOT_READY)

    def elapsed_ns(self, earlier: Event) -> int:
        """Nanoseconds on the device between `earlier` and this one, both reached."""
        if not isinstance(earlier, CudaEvent):
            raise TypeError("earlier: an event of another driver")
        self._driver.use()
        call = self._driver.api.cuEventElapsedTime(earlier.handle, self.handle)
        milliseconds = float(self._driver.check("time between events", call))
        return round(milliseconds * 1e6)

    def close(self) -> None:
        """Gives the event back. It need not be reached: streams that wait for it keep to when it was recorded."""
        if self.handle is None:
            return
        handle, self.handle = self.handle, None
        self._driver.events.append(handle)


class CudaStream:
    """Work in order, with no order towards other streams."""

    noun = "stream"

    def __init__(self, driver: CudaDriver, *, urgent: bool = False) -> None:
        self._driver = driver
        self._api = driver.api
        flags = self._api.CUstream_flags.CU_STREAM_NON_BLOCKING
        least, greatest = driver.check("stream priorities", self._api.cuCtxGetStreamPriorityRange())
        call = self._api.cuStreamCreateWithPriority(flags, greatest if urgent else least)
        self._handle: Any = driver.check("stream", call)
        # A kernel's only argument: where the structure is that is copied as it is launched.
        self._parameters = (ctypes.c_void_p * 1)()
        self._parameters_at = ctypes.addressof(self._parameters)
        driver.opened(self)

    def copy_in(self, destination: int, source: Bytes) -> None:
        """Copies a contiguous array to the address."""
        check_contiguous("source", source)
        handle = self._use()
        if source.nbytes:
            call = self._api.cuMemcpyHtoDAsync(destination, address_of(source), source.nbytes, handle)
            self._driver.check("copy in", call)

    def copy_out(self, destination: Bytes, source: int) -> None:
        """Copies from the address to a contiguous array."""
        check_contiguous("destination", destination)
        handle = self._use()
        if destination.nbytes:
            call = self._api.cuMemcpyDtoHAsync(address_of(destination), source, destination.nbytes, handle)
            self._driver.check("copy out", call)

    def fill(self, destination: int, value: int, nbytes: int) -> None:
        """Sets `nbytes` bytes to `value`."""
        check_size("nbytes", nbytes)
        handle = self._use()
        if nbytes:
            self._driver.check("fill", self._api.cuMemsetD8Async(destination, value, nbytes, handle))

    def launch(self, function: Function, batch: BatchStruct) -> None:
        """Launches a kernel over `batch.items` items. The structure is copied before this returns."""
        if not isinstance(function, CudaFunction):
            raise TypeError("function: one of another driver")
        handle = self._use()
        function.module.check_open()
        function = function.for_items(batch.items)
        self._parameters[0] = ctypes.addressof(batch)
        grid, threads = function.grid(batch.items), function.threads
        call = self._api.cuLaunchKernel(
            function.handle, grid, 1, 1, threads, 1, 1, function.shared, handle, self._parameters_at, 0
        )
        self._driver.check(f"launch {function.name}", call)

    def record(self) -> CudaEvent:
        """An event at the end of what was put in so far."""
        handle = self._use()
        event = CudaEvent(self._driver, self._driver.event())
        try:
            self._driver.check("record an event", self._api.cuEventRecord(event.handle, handle))
        except BackendError:
            event.close()
            raise
        return event

    def wait(self, event: Event) -> None:
        """Work put in later waits for the event."""
        if not isinstance(event, CudaEvent):
            raise TypeError("event: one of another driver")
        self._driver.check("wait for an event", self._api.cuStreamWaitEvent(self._use(), event.handle, 0))

    def synchronize(self) -> None:
        """Waits for all work. Raises BackendError."""
        self._driver.check("wait for a stream", self._api.cuStreamSynchronize(self._use()))

    def close(self) -> None:
        """Gives the stream back; the device does so once its work is done."""
        if self._handle is None:
            return
        handle, self._handle = self._handle, None
        self._driver.closed(self)
        self._driver.release("close a stream", lambda: self._api.cuStreamDestroy(handle))

    def _use(self) -> Any:
        if self._handle is None:
            raise BackendError("stream: it is closed")
        self._driver.use()
        return self._handle
