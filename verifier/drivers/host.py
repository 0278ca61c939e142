"""The CPU as a device: the same kernel source, compiled to a shared library, run by threads of this process.

Streams are threads of their own, so that copies, launches and the caller overlap as they do on a GPU. A launch is
cut into ranges of whole 32-item words that the stream's thread and a shared pool take until none is left. A crash
in a plugin ends the process, which is why workers are processes.
"""

from __future__ import annotations

import ctypes
import itertools
import math
import os
import platform
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from verifier.drivers._abi import BatchStruct
from verifier.drivers._checks import Child, check_contiguous, check_digest, check_no_children, check_size
from verifier.drivers._driver import Buffer, DeviceInfo, Image
from verifier.drivers._host_module import HostFunction, HostModule
from verifier.drivers._host_stream import HostStream
from verifier.drivers._target import available_memory_bytes, cpu_name, host_target, runs_on_host, usable_threads
from verifier.errors import BackendError, ConfigError, PluginError
from verifier.model import Bytes

__all__ = ["HostBuffer", "HostDriver", "host_device"]

_ALIGNMENT = 64  # a cache line, and the widest vector
_WORD_ITEMS = 32  # items of one bitmap word: no two threads may write the same
_RANGES_PER_THREAD = 8  # small enough that no thread waits long for the last one
_CALL_S = 50e-6  # and so long that what calling a stage costs is little of it
_FEWEST_RANGES = 4  # unless a stage would have fewer of those
_WAKING_S = 50e-6  # until a thread that was woken works
MAX_THREADS = 1024


def host_device(threads: int | None = None) -> DeviceInfo:
    """What this machine's CPU is. Raises DeviceUnavailableError where plugins cannot run on it."""
    return DeviceInfo(
        id="cpu",
        kind="cpu",
        name=cpu_name(),
        target=host_target(),
        units=threads or usable_threads(),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        driver_version=f"{platform.system()} {platform.release()}",
        unified=True,
        concurrent_managed=True,
    )


class HostBuffer:
    """Memory of this process."""

    noun = "buffer"

    def __init__(self, driver: HostDriver, memory: Bytes) -> None:
        self._driver = driver
        self._memory: Bytes | None = memory
        self.address = memory.ctypes.data
        self.nbytes = memory.size
        driver.opened(self)

    @property
    def array(self) -> Bytes | None:
        """The memory itself; None once closed."""
        return self._memory

    def close(self) -> None:
        """Gives the memory back. No stream may still use it."""
        self._memory = None
        self._driver.closed(self)


class HostDriver:
    """This machine's CPU as one device."""

    def __init__(self, info: DeviceInfo | None = None, *, threads: int | None = None) -> None:
        """Uses `threads` threads, by default all CPUs that this process may run on."""
        if threads is not None and not 1 <= threads <= MAX_THREADS:
            raise ConfigError(f"threads: {threads} is not between 1 and {MAX_THREADS}")
        self.info = info or host_device(threads)
        # The stream's own thread is one of them.
        helpers = self.info.units - 1
        self._pool = ThreadPoolExecutor(helpers, thread_name_prefix="lane") if helpers else None
        self._children: dict[int, Child] = {}
        self._is_open = True

    def attach(self) -> None:
        """Nothing to do: memory and libraries are the process's."""

    def load(self, image: Image) -> HostModule:
        """Loads a shared library. Raises PluginError where its target, digest or ABI is not right."""
        self._check_open()
        if not runs_on_host(image.target):
            raise PluginError(f"the image is for {image.target}, this device runs {self.info.target}")
        check_digest(image)
        return HostModule(self, image)

    def allocate(self, nbytes: int) -> Buffer:
        """Memory aligned to 64 bytes, not initialised. Raises BackendError where there is none."""
        return HostBuffer(self, self.memory(nbytes))

    def allocate_managed(self, nbytes: int) -> Buffer:
        """As `allocate`."""
        return self.allocate(nbytes)

    def allocate_pinned(self, nbytes: int) -> Buffer:
        """As `allocate`: nothing copies by itself here, so nothing needs page-locking."""
        return self.allocate(nbytes)

    def register(self, array: Bytes) -> Buffer:
        """The array as a buffer; it is used in place."""
        self._check_open()
        check_contiguous("array", array)
        return HostBuffer(self, array)

    def stream(self, *, inline: bool = False, urgent: bool = False) -> HostStream:  # noqa: ARG002 - all are alike
        """A new stream."""
        self._check_open()
        return HostStream(self, inline=inline)

    def memory_free_bytes(self) -> int:
        """Memory that the system can give without swapping."""
        return available_memory_bytes()

    def synchronize(self) -> None:
        """Waits for every stream. Raises BackendError with the first failure since the last call."""
        first: BackendError | None = None
        for child in list(self._children.values()):
            if isinstance(child, HostStream):
                try:
                    child.synchronize()
                except BackendError as error:
                    first = first or error
        if first is not None:
            raise first

    def close(self) -> None:
        """Ends its threads. Raises BackendError while a module, stream or buffer of it is open."""
        if not self._is_open:
            return
        check_no_children(self._children.values())
        self._is_open = False
        if self._pool is not None:
            self._pool.shutdown()

    def _check_open(self) -> None:
        if not self._is_open:
            raise BackendError("device: it is closed")

    def memory(self, nbytes: int) -> Bytes:
        """Aligned memory. Raises BackendError where there is none."""
        self._check_open()
        check_size("nbytes", nbytes)
        try:
            memory = np.empty(nbytes + _ALIGNMENT, np.uint8)
        except MemoryError:
            raise BackendError(f"out of memory: {nbytes} bytes") from None
        first = -memory.ctypes.data % _ALIGNMENT
        return memory[first : first + nbytes]

    def opened(self, child: Child) -> None:
        """Counts something that depends on the device."""
        self._children[id(child)] = child

    def closed(self, child: Child) -> None:
        """Forgets it."""
        self._children.pop(id(child), None)

    def step(self, what: str, work: Callable[[], None]) -> None:  # noqa: ARG002
        """Does one piece of a stream's work, on the stream's thread. FakeDriver looks at `what`."""
        work()

    def run_stage(self, function: HostFunction, batch: BatchStruct) -> None:
        """Runs a stage over all items; returns when it is done.

        What a thread does in less time than another one wakes it does by itself. It goes by what the stage took last,
        and where that was wrong, as items may differ, it calls for help before its second range.
        """
        items, threads = batch.items, self.info.units
        pointer = ctypes.byref(batch)
        if items <= _WORD_ITEMS:
            if items:
                function.stage(pointer, 0, items, 0)
            return
        step, short = self._cut(function, items)
        begins = itertools.count(0, step)  # next() is atomic

        def take(lane: int, limit_s: float = math.inf) -> int:
            began, done = time.perf_counter(), 0
            while (begin := next(begins)) < items:
                end = min(begin + step, items)
                function.stage(pointer, begin, end, lane)
                done += end - begin
                if time.perf_counter() - began > limit_s:
                    break
            if done and not lane:
                function.observe((time.perf_counter() - began) / done)
            return done

        left = items - (take(0, _WAKING_S) if short else 0)
        helpers: list[Future[int]] = []
        if self._pool is not None:
            helpers = [self._pool.submit(take, lane) for lane in range(1, min(threads, -(-left // step)))]
        take(0)
        for helper in helpers:
            # One that has not begun would find nothing left.
            if not helper.cancel():
                helper.result()

    def _cut(self, function: HostFunction, items: int) -> tuple[int, bool]:
        """Items of a range, and whether one thread does them all before another one is awake."""
        words = -(-items // _WORD_ITEMS)
        least = words // (self.info.units * _RANGES_PER_THREAD)
        if function.item_s is None:
            return _WORD_ITEMS * max(least, 1), False
        worth_calling = math.ceil(_CALL_S / max(function.item_s * _WORD_ITEMS, 1e-9))
        range_words = max(least, min(worth_calling, words // _FEWEST_RANGES), 1)
        return _WORD_ITEMS * range_words, items * function.item_s < 2 * _WAKING_S
