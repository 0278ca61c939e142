from __future__ import annotations

import pytest
from _by_hand import HandDevice, Leases
from _clock import Clock

from verifier.scheduling import Scheduler, SchedulingOptions


class Bench:
    """A scheduler without threads on devices that the test moves."""

    def __init__(self, *devices: HandDevice, **options: object) -> None:
        self.clock = Clock()
        self.devices = devices
        self.leases = Leases(*devices)
        self.scheduler = Scheduler(
            devices,
            self.leases,
            SchedulingOptions(**options),
            clock=self.clock,  # type: ignore[arg-type]
        )
        self.submit = self.scheduler.submit
        self.poll = self.scheduler.poll

    def settle(self) -> None:
        """Finishes everything, in order."""
        self.poll()
        while any(device.running for device in self.devices):
            for device in self.devices:
                while device.running:
                    device.finish()
            self.poll()


@pytest.fixture
def bench():
    return Bench
