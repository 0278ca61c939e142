"""Queues, batching and routing: from accepted requests to launches on devices."""

from verifier.scheduling._backlog import Held, QueueLimits
from verifier.scheduling._core import SchedulingOptions
from verifier.scheduling._measure import measure
from verifier.scheduling._router import Cost, Load, Router, Share
from verifier.scheduling._scheduler import Scheduler
from verifier.scheduling._work import Priority, cut, units

__all__ = [
    "Cost",
    "Held",
    "Load",
    "Priority",
    "QueueLimits",
    "Router",
    "Scheduler",
    "SchedulingOptions",
    "Share",
    "cut",
    "measure",
    "units",
]
