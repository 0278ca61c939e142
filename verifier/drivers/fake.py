"""A device for tests: the CPU's, with memory of its own, that records calls and fails when told to.

Fakes exist only where VERIFIER_FAKE_DEVICES says how many. Faults come as an option of open_driver, or as JSON in
VERIFIER_FAKE_FAULTS so that they reach a worker's process:

    VERIFIER_FAKE_FAULTS='[{"call": "launch", "after": 3, "error": "illegal address", "sticky": true}]'
"""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from verifier.drivers._checks import check_contiguous
from verifier.drivers._driver import Buffer, DeviceInfo, Image
from verifier.drivers._host_module import HostModule
from verifier.drivers._host_stream import HostStream
from verifier.drivers.host import HostBuffer, HostDriver, host_device
from verifier.errors import BackendError, ConfigError, DeviceUnavailableError
from verifier.model import Bytes

__all__ = ["FAKE_DEVICES", "FAKE_FAULTS", "FakeDriver", "Fault", "fake_devices", "faults_json", "open_fake"]

FAKE_DEVICES = "VERIFIER_FAKE_DEVICES"
FAKE_FAULTS = "VERIFIER_FAKE_FAULTS"
MAX_FAKES = 64
_LOOK_S = 0.005
_GARBAGE = 0xCD  # what fresh device memory holds, so that reading it before writing shows


@dataclass(frozen=True, slots=True)
class Fault:
    """What goes wrong with calls of one name.

    Calls are named load, allocate, allocate_managed, allocate_pinned, register and stream, and on a stream copy_in,
    copy_out, fill, wait and `launch STAGE`. The first fail at once, a stream's where they run: as on a GPU, the
    error shows when the stream or an event is synchronized.
    """

    call: str  # a name, or the first word of one: "launch" is every stage's
    device: str = ""  # only on this device: "fake:1"
    after: int = 0  # such calls that go well first
    times: int = 1  # calls that fail then; 0: all from there on
    error: str = ""  # raises BackendError with this text
    sticky: bool = False  # and the device is lost
    delay_s: float = 0.0  # waits first
    held: str = ""  # a file: and waits as long as it is there
    hang: bool = False  # never comes back
    crash: bool = False  # ends the process as a wild pointer would
    once: str = ""  # a file that is made when the fault fires; it fires no more where the file exists, so that a
    # restarted worker is well


class FakeDriver(HostDriver):
    """A fake device. Not unified: `allocate` gives memory that the host must not see, filled with garbage."""

    def __init__(self, info: DeviceInfo, *, faults: Sequence[Fault] = (), memory_bytes: int | None = None) -> None:
        """`memory_bytes` bounds what can be allocated together."""
        super().__init__(replace(info, memory_bytes=memory_bytes or info.memory_bytes))
        self.calls: list[str] = []
        self._faults = [fault for fault in faults if fault.device in ("", info.id)]
        self._seen = [0] * len(self._faults)
        self._lock = threading.Lock()
        self._lost: BackendError | None = None
        self._allocated = 0

    def load(self, image: Image) -> HostModule:
        """As the CPU's."""
        self._call("load")
        return super().load(image)

    def allocate(self, nbytes: int) -> Buffer:
        """Memory that the host cannot see. Raises BackendError past the device's memory."""
        self._call("allocate")
        return _DeviceBuffer(self, self._memory(nbytes))

    def allocate_managed(self, nbytes: int) -> Buffer:
        """Memory that both see; counts as the device's."""
        self._call("allocate_managed")
        return _SharedBuffer(self, self._memory(nbytes))

    def allocate_pinned(self, nbytes: int) -> Buffer:
        """Memory of the host."""
        self._call("allocate_pinned")
        return super().allocate(nbytes)

    def register(self, array: Bytes) -> Buffer:
        """As the CPU's."""
        check_contiguous("array", array)
        self._call("register")
        return super().register(array)

    def stream(self, *, inline: bool = False, urgent: bool = False) -> HostStream:
        """As the CPU's."""
        self._call("stream")
        return super().stream(inline=inline, urgent=urgent)

    def memory_free_bytes(self) -> int:
        """Memory that is not allocated."""
        return self.info.memory_bytes - self._allocated

    def step(self, what: str, work: Callable[[], None]) -> None:
        """One piece of a stream's work, after the faults that wait for it."""
        self._call(what)
        work()

    def give_back(self, nbytes: int) -> None:
        """Counts memory as free again."""
        with self._lock:
            self._allocated -= nbytes

    def _memory(self, nbytes: int) -> Bytes:
        with self._lock:
            if nbytes > self.info.memory_bytes - self._allocated:
                raise BackendError(f"out of memory: {nbytes} bytes, {self.memory_free_bytes()} are free")
            self._allocated += nbytes
        memory = self.memory(nbytes)
        memory.fill(_GARBAGE)
        return memory

    def _call(self, what: str) -> None:
        """Records a call and does to it what a fault says."""
        due: list[Fault] = []
        with self._lock:
            self.calls.append(what)
            if self._lost is not None:
                raise BackendError(str(self._lost), sticky=True)
            for index, fault in enumerate(self._faults):
                if fault.call not in (what, what.partition(" ")[0]):
                    continue
                turn = self._seen[index] - fault.after
                self._seen[index] += 1
                if turn >= 0 and (fault.times == 0 or turn < fault.times) and _first_time(fault):
                    due.append(fault)
        for fault in due:
            self._suffer(fault)

    def _suffer(self, fault: Fault) -> None:
        if fault.delay_s:
            threading.Event().wait(fault.delay_s)
        while fault.held and Path(fault.held).exists():
            threading.Event().wait(_LOOK_S)
        if fault.hang:
            threading.Event().wait()
        if fault.crash:
            signal.raise_signal(signal.SIGSEGV)  # in this thread: it must not get past here
        if fault.error:
            error = BackendError(fault.error, sticky=fault.sticky)
            if fault.sticky:
                self._lost = error
            raise error


class _SharedBuffer(HostBuffer):
    """Memory that counts as the device's."""

    def __init__(self, driver: FakeDriver, memory: Bytes) -> None:
        super().__init__(driver, memory)
        self._fake = driver
        self._counted = True

    def close(self) -> None:
        """Gives the memory back, once."""
        super().close()
        if self._counted:
            self._counted = False
            self._fake.give_back(self.nbytes)


class _DeviceBuffer(_SharedBuffer):
    """Memory that only the device sees."""

    @property
    def array(self) -> Bytes | None:
        """None: the host cannot see it."""
        return None


def fake_devices() -> list[DeviceInfo]:
    """As many fakes as VERIFIER_FAKE_DEVICES says; none where it is not set. Raises ConfigError."""
    text = os.environ.get(FAKE_DEVICES, "0")
    if not text.isdecimal() or int(text) > MAX_FAKES:
        raise ConfigError(f"{FAKE_DEVICES}: {text!r} is not a number from 0 to {MAX_FAKES}")
    cpu = host_device()
    return [
        replace(
            cpu, id=f"fake:{index}", kind="fake", name=f"fake device {index}", units=min(cpu.units, 2), unified=False
        )
        for index in range(int(text))
    ]


def open_fake(device_id: str, *, faults: Sequence[Fault] = (), memory_bytes: int | None = None) -> FakeDriver:
    """Opens fake:N. Raises DeviceUnavailableError where VERIFIER_FAKE_DEVICES does not enable it."""
    for info in fake_devices():
        if info.id == device_id:
            return FakeDriver(info, faults=[*faults, *_environment_faults()], memory_bytes=memory_bytes)
    raise DeviceUnavailableError(f"{device_id}: fakes are for tests; {FAKE_DEVICES} says how many there are")


def faults_json(faults: Sequence[Fault]) -> str:
    """Faults as a value of VERIFIER_FAKE_FAULTS."""
    return json.dumps([asdict(fault) for fault in faults])


def _environment_faults() -> list[Fault]:
    text = os.environ.get(FAKE_FAULTS, "[]")
    known = {field.name for field in fields(Fault)}
    try:
        entries: list[dict[str, Any]] = json.loads(text)
        for entry in entries:
            if unknown := set(entry) - known:
                raise ConfigError(f"{FAKE_FAULTS}: unknown key {sorted(unknown)[0]!r}")
        return [Fault(**entry) for entry in entries]
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{FAKE_FAULTS}: {error}") from None


def _first_time(fault: Fault) -> bool:
    """Makes the fault's file; False where it exists."""
    if not fault.once:
        return True
    try:
        Path(fault.once).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True
