"""How the chunks of work both ways pass the link (`WorkerOptions.both_ways`).

    streams      a chunk's copies and kernels are on one stream, chunks beside each other on several
    directions   all copies in are on one stream and all copies out on another, kernels in between on several
    written      as directions, but kernels write what they give into the slot over the link: nothing is copied out
    direct       kernels read the slot too: there are no chunks

Where stages do not bear the last ones, which the image says of them (docs/plugin-abi.md), the next one above holds;
so it does where columns are in regions and would be read in several pieces.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from verifier.drivers._driver import Driver, Stream

if TYPE_CHECKING:
    from verifier.workers._instance import LoadedOperation

__all__ = ["BothWays", "Directions", "both_ways", "follow"]

BothWays = Literal["streams", "directions", "written", "direct"]


class Directions:
    """A stream for each way."""

    def __init__(self, driver: Driver) -> None:
        self.arrive = driver.stream()
        self.leave = driver.stream()

    def close(self) -> None:
        """Frees them."""
        self.arrive.close()
        self.leave.close()


def both_ways(wanted: BothWays, operation: LoadedOperation, *, borrowed: bool) -> BothWays:
    """What an operation bears of what is wanted."""
    if wanted == "direct" and (borrowed or not operation.reads_host):
        wanted = "written"
    if wanted == "written" and not operation.writes_host:
        wanted = "directions"
    return wanted


def follow(later: Stream, earlier: Stream) -> None:
    """What the one stream is given from now on waits for what the other was given so far."""
    if later is earlier:
        return
    event = earlier.record()
    try:
        later.wait(event)
    finally:
        event.close()
