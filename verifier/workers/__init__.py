"""Workers: one process a device, its slots, streams and supervision.

`Worker` is the parent's handle of one device and outlives the processes behind it; `Fleet` holds them all.
"""

from verifier.workers._fleet import Fleet
from verifier.workers._options import BitmapMemory, WorkerOptions
from verifier.workers._worker import FaultListener, StateListener, Worker, WorkerState

__all__ = ["BitmapMemory", "FaultListener", "Fleet", "StateListener", "Worker", "WorkerOptions", "WorkerState"]
