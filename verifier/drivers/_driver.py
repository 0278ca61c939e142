"""The seam to hardware: what a device can do, whichever it is.

Everything above this package works through `Driver`; nothing above it imports cuda. A driver belongs to the
process that opened it. Other threads may use it once they have called `attach`; a stream is used by one thread at
a time, different streams by different threads at once.

Ownership runs Device ⊃ Module ⊃ Function and Device ⊃ Stream, Buffer: each holds what it depends on, `close` is
explicit and idempotent, and closing in the wrong order is refused with an error. Errors are BackendError, with
`sticky` set where the device's context is lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from verifier.drivers._abi import BatchStruct, PluginInfo
from verifier.model import Bytes

__all__ = ["Buffer", "DeviceInfo", "Driver", "Event", "Function", "Image", "Module", "Stream"]


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """What a device is."""

    id: str  # cuda:0, cpu, fake:0
    kind: str  # cuda, cpu, fake
    name: str  # NVIDIA H200
    target: str  # what plugins are built for: sm_90, x86-64-v4, aarch64
    units: int  # multiprocessors, or CPU threads
    memory_bytes: int
    driver_version: str  # CUDA driver, or the operating system
    unified: bool  # the device works on host memory in place: no copies
    concurrent_managed: bool  # the host may touch managed memory while a kernel runs


@dataclass(frozen=True, slots=True)
class Image:
    """A built plugin: a cubin or a shared library, and what it was built for."""

    target: str
    data: bytes
    digest: str  # SHA-256 of data, hexadecimal
    log: str = ""  # the compiler's: registers and spills of every kernel


class Buffer(Protocol):
    """Memory. `address` is the device's; `array` is the host's view, None where the host cannot see it."""

    address: int
    nbytes: int

    @property
    def array(self) -> Bytes | None: ...
    def close(self) -> None: ...


class Event(Protocol):
    """A point in a stream."""

    def synchronize(self) -> None:
        """Waits until the stream has reached it, without holding the interpreter lock. Raises BackendError."""

    def reached(self) -> bool:
        """Whether `synchronize` would return or raise at once."""

    def elapsed_ns(self, earlier: Event) -> int:
        """Nanoseconds on the device between `earlier` and this one, both reached."""

    def close(self) -> None: ...


class Function(Protocol):
    """A stage of a loaded plugin."""

    name: str
    threads: int  # a block's, from the source's launch bounds; 1 on the CPU
    lanes: int  # lanes of its largest launch: units x blocks an SM x threads, or CPU threads
    warp_items: int  # items that keep 32 lanes busy: 32, unless the source says otherwise


class Module(Protocol):
    """A loaded image."""

    info: PluginInfo

    def function(self, name: str) -> Function:
        """The stage `name`. Raises PluginError where the image has none."""

    def constant(self, name: str) -> int:
        """The u32 symbol `name` (a state stage's count). Raises PluginError where the image has none."""

    def close(self) -> None: ...


class Stream(Protocol):
    """Work in order; streams overlap each other."""

    def copy_in(self, destination: int, source: Bytes) -> None:
        """Host to device at the address. `source` must live until the stream has passed it."""

    def copy_out(self, destination: Bytes, source: int) -> None:
        """Device to host."""

    def fill(self, destination: int, value: int, nbytes: int) -> None:
        """Sets bytes."""

    def launch(self, function: Function, batch: BatchStruct) -> None:
        """Runs a stage over `batch.items` items. The structure is copied before this returns.

        With no items it launches all the same and does nothing, which warms the function up.
        """

    def record(self) -> Event: ...
    def wait(self, event: Event) -> None:
        """Work put in later waits for the event, which may be another stream's."""

    def synchronize(self) -> None: ...
    def close(self) -> None: ...


class Driver(Protocol):
    """One opened device."""

    info: DeviceInfo

    def attach(self) -> None:
        """Makes the device usable from the calling thread too (CUDA: sets its context). Idempotent."""

    def load(self, image: Image) -> Module:
        """Loads a built plugin. Raises PluginError where its ABI or target is not this device's."""

    def allocate(self, nbytes: int) -> Buffer:
        """Device memory, not initialised."""

    def allocate_managed(self, nbytes: int) -> Buffer:
        """Memory that device and host both see: managed, or page-locked where the host may not touch managed
        memory while a kernel runs."""

    def allocate_pinned(self, nbytes: int) -> Buffer:
        """Page-locked host memory that the device sees too."""

    def register(self, array: Bytes) -> Buffer:
        """Page-locks memory that exists, such as a shared-memory slot. `close` unlocks it."""

    def stream(self, *, inline: bool = False, urgent: bool = False) -> Stream:
        """A new stream. `inline`: where the device is the CPU its work is done before a call returns, which spares
        small batches a change of threads; elsewhere it changes nothing. `urgent`: a GPU gives its kernels the
        multiprocessors that become free, before those of other streams."""

    def memory_free_bytes(self) -> int: ...
    def synchronize(self) -> None:
        """Waits for everything. Raises BackendError with the first failure since the last call."""

    def close(self) -> None: ...
