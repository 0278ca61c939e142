"""What parent and child say to each other.

What is said of batches goes through a Channel, for a batch's latency holds two such messages; the rest, which is rare
and holds images and options, is pickled on a connection of its own.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from verifier.drivers._driver import DeviceInfo, Image
from verifier.errors import BackendError, DeviceUnavailableError, PluginError, VerifierError
from verifier.manifest import Operation
from verifier.model import StageTimes
from verifier.workers._borrowed import Borrowed
from verifier.workers._layout import Layout
from verifier.workers._options import WorkerOptions

__all__ = [
    "Done",
    "Failed",
    "Hello",
    "Job",
    "Late",
    "Load",
    "MapRegion",
    "OperationPlan",
    "Order",
    "Plan",
    "Problem",
    "Ready",
    "Unload",
    "UnmapRegion",
]


class OperationPlan(NamedTuple):
    """What the child must know of an operation."""

    stages: tuple[str, ...]
    outputs: tuple[int, ...]  # bytes of an item's
    round_stage: str = ""  # chunks are whole rounds of this stage; "": of the one with the most lanes
    chunk_rounds: int = 0  # so many; 0: as WorkerOptions.chunk_rounds has it

    @classmethod
    def of(cls, operation: Operation) -> OperationPlan:
        """The plan of a manifest's operation."""
        outputs = tuple(output.bytes for output in operation.outputs)
        return cls(operation.stages, outputs, operation.round_stage or "", operation.chunk_rounds or 0)


class Plan(NamedTuple):
    """What the child must know of a manifest."""

    state: tuple[str, ...]
    operations: tuple[OperationPlan, ...]


class Problem(NamedTuple):
    """An error on its way through a pipe."""

    kind: str
    text: str

    @classmethod
    def of(cls, error: Exception) -> Problem:
        """An error nobody foresaw is sticky: what the process holds is not known any more."""
        if isinstance(error, BackendError):
            return cls("sticky" if error.sticky else "backend", str(error))
        if isinstance(error, DeviceUnavailableError):
            return cls("unavailable", str(error))
        if isinstance(error, PluginError):
            return cls("plugin", str(error))
        return cls("sticky", f"{type(error).__name__}: {error}")

    def error(self) -> VerifierError:
        """The error again."""
        if self.kind == "unavailable":
            return DeviceUnavailableError(self.text)
        if self.kind == "plugin":
            return PluginError(self.text)
        return BackendError(self.text, sticky=self.kind == "sticky")


class Hello(NamedTuple):
    """To the child, first: what to open. Answered by DeviceInfo or Problem."""

    device_id: str
    options: WorkerOptions


class Load(NamedTuple):
    """To the child: answered by Ready or Problem."""

    instance_id: int
    plan: Plan
    image: Image


class Unload(NamedTuple):
    """To the child, when no batch of the instance is in flight: answered by Ready or Problem."""

    instance_id: int


class Ready(NamedTuple):
    """From the child: done."""


class Job(msgspec.Struct, tag=1, array_like=True, frozen=True):
    """To the child: a batch that lies in a slot."""

    ticket: int
    slot: int
    instance_id: int
    operation: int
    parameters: tuple[int, ...]
    deadline: float | None  # time.monotonic(), which is the machine's and so both processes'
    layout: Layout
    secret: bool = False  # copies of the inputs are overwritten after use
    borrowed: tuple[Borrowed, ...] = ()  # what is to be read in regions, in rising order
    urgent: bool = False  # overtakes others on a device with streams


class MapRegion(msgspec.Struct, tag=2, array_like=True, frozen=True):
    """To the child, in front of the first batch that needs it, with a descriptor behind it."""

    region: int
    nbytes: int
    changeable: bool


class UnmapRegion(msgspec.Struct, tag=3, array_like=True, frozen=True):
    """To the child, behind the last batch that needed it."""

    region: int


class Done(msgspec.Struct, tag=4, array_like=True, frozen=True):
    """From the child: the slot holds the results."""

    ticket: int
    device_ns: int
    stages: StageTimes | None = None


class Failed(msgspec.Struct, tag=5, array_like=True, frozen=True):
    """From the child: the slot holds nothing to be read."""

    ticket: int
    problem: Problem


class Late(msgspec.Struct, tag=6, array_like=True, frozen=True):
    """From the child: the deadline had passed before the batch was begun."""

    ticket: int


Request = Hello | Load | Unload
Reply = DeviceInfo | Ready | Problem
Answer = Done | Failed | Late
Order = Job | MapRegion | UnmapRegion | None  # None: there are no more
