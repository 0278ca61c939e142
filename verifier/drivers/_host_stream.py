"""Work in order on a thread, and points in it."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import TYPE_CHECKING

from verifier.drivers._abi import BatchStruct
from verifier.drivers._checks import check_contiguous, check_size, copy_of
from verifier.drivers._driver import Event, Function
from verifier.drivers._host_module import HostFunction
from verifier.errors import BackendError
from verifier.model import Bytes

if TYPE_CHECKING:
    from verifier.drivers.host import HostDriver

__all__ = ["HostEvent", "HostStream"]


class HostEvent:
    """A point in a stream: the time when it was reached, and whether the work before it had failed."""

    def __init__(self) -> None:
        self._pending = threading.Lock()  # held until it is reached: made in a tenth of an Event's time
        self._pending.acquire()
        self._is_reached = False
        self._time_ns = 0
        self._error: BackendError | None = None

    def synchronize(self) -> None:
        """Waits until the stream has reached it. Raises BackendError where work before it failed."""
        self.wait()
        if self._error is not None:
            raise copy_of(self._error)

    def elapsed_ns(self, earlier: Event) -> int:
        """Nanoseconds between `earlier` and this one, both reached."""
        if not isinstance(earlier, HostEvent):
            raise TypeError("earlier: an event of another driver")
        if not (self._is_reached and earlier._is_reached):
            raise BackendError("event: it is not reached yet")
        return self._time_ns - earlier._time_ns

    def wait(self) -> None:
        """Waits until the stream has reached it, whatever became of the work before it."""
        if not self._is_reached:
            with self._pending:
                pass

    def reached(self) -> bool:
        """Whether `synchronize` would return or raise at once."""
        return self._is_reached

    def close(self) -> None:
        """Nothing to give back."""

    def _reach(self, error: BackendError | None) -> None:
        self._time_ns = time.perf_counter_ns()
        self._error = error
        self._is_reached = True
        self._pending.release()


class HostStream:
    """Work in order, on a thread of its own, or `inline`: done by the caller before the call returns.

    After a failure the work behind it is skipped until `synchronize` has raised the error: events recorded
    meanwhile raise it too, so that nothing that was skipped can pass for done.
    """

    noun = "stream"

    def __init__(self, driver: HostDriver, *, inline: bool = False) -> None:
        self._driver = driver
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._error: BackendError | None = None
        self._thread = None if inline else threading.Thread(target=self._run, name="stream", daemon=True)
        self._is_open = True
        driver.opened(self)
        if self._thread is not None:
            self._thread.start()

    def copy_in(self, destination: int, source: Bytes) -> None:
        """Copies a contiguous array to the address."""
        check_contiguous("source", source)
        self._put("copy_in", lambda: _copy(destination, source.ctypes.data, source.nbytes))

    def copy_out(self, destination: Bytes, source: int) -> None:
        """Copies from the address to a contiguous array."""
        check_contiguous("destination", destination)
        self._put("copy_out", lambda: _copy(destination.ctypes.data, source, destination.nbytes))

    def fill(self, destination: int, value: int, nbytes: int) -> None:
        """Sets `nbytes` bytes to `value`."""
        check_size("nbytes", nbytes)
        self._put("fill", lambda: _fill(destination, value, nbytes))

    def launch(self, function: Function, batch: BatchStruct) -> None:
        """Runs a stage over `batch.items` items. The structure may be changed when this has returned."""
        if not isinstance(function, HostFunction):
            raise TypeError("function: one of another driver")
        copy = batch if self._thread is None else BatchStruct.from_buffer_copy(batch)
        function.module.begin()
        try:
            self._put(f"launch {function.name}", lambda: self._driver.run_stage(function, copy), function.module.end)
        except BackendError:
            function.module.end()
            raise

    def record(self) -> HostEvent:
        """An event at the end of what was put in so far."""
        self._check_open()
        event = HostEvent()
        self._do(lambda: event._reach(self._error))
        return event

    def wait(self, event: Event) -> None:
        """Work put in later waits for the event; it is skipped where the event's stream had failed."""
        self._put("wait", event.synchronize)

    def synchronize(self) -> None:
        """Waits for all work. Raises BackendError with the first failure, once."""
        self.record().wait()
        error, self._error = self._error, None
        if error is not None:
            raise copy_of(error)

    def close(self) -> None:
        """Finishes its work and ends its thread."""
        if not self._is_open:
            return
        self._is_open = False
        if self._thread is not None:
            self._work.put(None)
            self._thread.join()
        self._driver.closed(self)

    def _check_open(self) -> None:
        if not self._is_open:
            raise BackendError("stream: it is closed")

    def _put(self, what: str, work: Callable[[], None], always: Callable[[], None] | None = None) -> None:
        """Queues work; `always` runs behind it even where it is skipped."""
        self._check_open()

        def step() -> None:
            try:
                if self._error is None:
                    self._driver.step(what, work)
            except BackendError as error:
                self._error = error
            except Exception as error:
                self._error = BackendError(f"{what}: {error!r}")
            finally:
                if always is not None:
                    always()

        self._do(step)

    def _do(self, step: Callable[[], None]) -> None:
        if self._thread is None:
            step()
        else:
            self._work.put(step)

    def _run(self) -> None:
        while (step := self._work.get()) is not None:
            step()


def _copy(destination: int, source: int, nbytes: int) -> None:
    # A copy within unified memory may be onto itself.
    if nbytes and destination != source:
        ctypes.memmove(destination, source, nbytes)


def _fill(destination: int, value: int, nbytes: int) -> None:
    if nbytes:
        ctypes.memset(destination, value, nbytes)
