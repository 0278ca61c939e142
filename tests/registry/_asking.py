"""What a registry answers and how its instances stand."""

from __future__ import annotations

import re
import threading
from pathlib import Path

import numpy as np
import pytest

from verifier.model import Batch, BatchResult, Code, Column
from verifier.registry import Registry, State

WAIT_S = 60


def ask(registry: Registry, plugin: str = "parity") -> tuple[str, BatchResult]:
    """Verifies two items, one even and one odd: who served, and what came."""
    resolved = registry.resolve("verify", "PARITY", plugin)
    key = resolved.key({"input_kind": 1})
    batch = Batch(key, 2, (Column(np.array([2, 3], np.uint8), 1),))
    with registry.lease(key) as lease:
        (result,) = lease.workers[0].run(lease.instance.id, lease.operation_index, key, [batch]).result(WAIT_S)
        return lease.instance.label, result


def served_by(registry: Registry, plugin: str = "parity") -> str:
    label, result = ask(registry, plugin)
    assert result.codes.tolist() == [Code.VALID, Code.INVALID]
    return label


def states(registry: Registry, label: str) -> list[State]:
    return [step.state for step in registry.history() if step.label == label]


def state(registry: Registry, label: str) -> State:
    (status,) = [status for status in registry.index() if status.label == label]
    return status.state


class Gate:
    """Holds a load at its self-test until it is opened."""

    def __init__(self, registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached, self.open = threading.Semaphore(0), threading.Event()
        test = registry._loader.test

        def held(*args: object, **kwargs: object) -> None:
            self.reached.release()
            assert self.open.wait(WAIT_S)
            test(*args, **kwargs)  # type: ignore[arg-type]

        monkeypatch.setattr(registry._loader, "test", held)

    def wait(self) -> None:
        assert self.reached.acquire(timeout=WAIT_S)


def memory(fleet) -> list[int]:
    return [int(re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{w.pid}/status").read_text())[1]) for w in fleet.workers]
