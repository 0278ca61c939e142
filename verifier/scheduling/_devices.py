"""What the scheduler keeps of each device: the launches in flight there, and whether it takes another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from verifier.model import BatchKey
from verifier.scheduling._ports import Device, Instance, Lease
from verifier.scheduling._work import Piece
from verifier.workers import WorkerState

__all__ = ["DeviceState", "Devices", "Launch"]


_TOLERANCE = 1.25  # launches of the allowed length are in flight two at a time, though the model is never exact


@dataclass(slots=True, eq=False)
class Launch:
    """Pieces of equal key on their way through one device, as one batch."""

    device: Device
    lease: Lease
    key: BatchKey
    pieces: list[Piece]
    units: int
    expected_s: float
    begun: float
    alone: bool  # nothing else was in flight there when it began
    isolated: bool = False  # and nothing else may join it
    failures: int = 0
    failed_on: frozenset[str] = frozenset()

    @property
    def urgent(self) -> bool:
        """Whether it overtakes others. What is urgent shares a launch with nothing else."""
        return self.pieces[0].work.urgent

    @property
    def items(self) -> int:
        """Items of all pieces."""
        return sum(piece.items for piece in self.pieces)

    @property
    def deadline(self) -> float | None:
        """The latest of its pieces' deadlines; None where one has none."""
        deadlines = [piece.work.deadline for piece in self.pieces]
        known = [deadline for deadline in deadlines if deadline is not None]
        return max(known) if len(known) == len(deadlines) else None


@dataclass(slots=True)
class DeviceState:
    """One device's launches."""

    device: Device
    in_flight: list[Launch] = field(default_factory=list)
    starting: int = 0  # decided, but not yet counted by the device's own room()
    reserved: bool = False  # it is to become idle for a batch that must run alone

    def busy_s(self, now: float) -> float:
        """Seconds of work ahead of a new launch, by the model; the oldest launch has had some of its time."""
        if not self.in_flight:
            return 0.0
        oldest = self.in_flight[0]
        done = min(now - oldest.begun, oldest.expected_s)
        return sum(launch.expected_s for launch in self.in_flight) - done


class Devices:
    """All devices, by id. Guarded by the scheduler's lock."""

    def __init__(self, devices: Sequence[Device], launches: int, ahead_s: float) -> None:
        """On one device at most `launches` are in flight, and none is added to more than `ahead_s` of work."""
        self._launches = launches
        self._ahead_s = ahead_s
        self._states = {device.device.id: DeviceState(device) for device in devices}

    def __getitem__(self, device_id: str) -> DeviceState:
        return self._states[device_id]

    def __iter__(self) -> Iterator[DeviceState]:
        return iter(self._states.values())

    def up(self, instance: Instance) -> list[DeviceState]:
        """Those that an instance may run on now."""
        return [
            self._states[device.device.id]
            for device in instance.workers
            if device.state is WorkerState.UP and device.device.id in self._states
        ]

    def has_room(self, state: DeviceState, now: float, *, urgent: bool = False) -> bool:
        """Whether a launch would begin there soon: what is handed over cannot be overtaken any more, but by one
        `urgent` launch where the device can do several at a time."""
        overtakes = urgent and not state.device.device.unified
        if len(state.in_flight) >= self._launches + overtakes or state.reserved:
            return False
        if state.busy_s(now) > self._ahead_s * _TOLERANCE and not overtakes:
            return False
        if state.in_flight and state.in_flight[0].isolated:
            return False
        return state.device.state is WorkerState.UP and state.device.room() > state.starting
