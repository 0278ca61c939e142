"""Verification in the node's own process, for when no daemon answers."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from node_adapter.client import VerifierClient

if TYPE_CHECKING:
    from verifier.daemon import Daemon

__all__ = ["LocalVerifier", "private_overrides"]


class LocalVerifier:
    """The same plugins on this machine's CPU, started when they are first needed.

        with LocalVerifier(["sm2"]) as local, VerifierClient(target, fallback=local) as client:
            ...

    The first call compiles plugins that no earlier run on this machine has compiled: call `client()` once at the
    node's start, so that it does not happen while a block waits. `trust_any` loads plugins that no lock file names.
    """

    def __init__(
        self,
        plugins: Sequence[str],
        *,
        timeout_s: float = 60.0,
        lock_files: Sequence[Path] = (),
        trust_any: bool = False,
    ) -> None:
        self._overrides = private_overrides(
            {
                "load": list(plugins),
                "lock_files": list(lock_files),
                "trust": "any" if trust_any else "locked",
            },
            devices={"use": ["cpu"]},
        )
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._running: tuple[Daemon, VerifierClient] | None = None

    def __call__(self) -> VerifierClient:
        """As `client`: this object is a `fallback`."""
        return self.client()

    def __enter__(self) -> LocalVerifier:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def client(self) -> VerifierClient:
        """The client of the verifier here, which is started now if it does not run. Raises VerifierError."""
        # The daemon brings compilers, workers and plugins along: a node that never falls back does not import it.
        from verifier.config import load_settings
        from verifier.daemon import Daemon

        with self._lock:
            if self._running is None:
                daemon = Daemon(load_settings(overrides=self._overrides))
                daemon.start()
                self._running = daemon, VerifierClient(daemon.addresses[0], timeout_s=self._timeout_s)
            return self._running[1]

    def close(self) -> None:
        """Stops it."""
        with self._lock:
            if self._running is None:
                return
            daemon, client = self._running
            self._running = None
            client.close()
            daemon.stop()


def private_overrides(plugins: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """Settings of a daemon that serves this process alone: free ports, no metrics, no administration."""
    return {
        "server": {"listen": ["127.0.0.1:0"], "processes": 1},
        "health": {"listen": ["127.0.0.1:0"]},
        "metrics": {"listen": ""},
        "status": {"listen": ""},
        # The host's admin socket is for the daemon: whoever administers it does not mean a process's own verifier.
        "admin": {"listen": []},
        "plugins": dict(plugins),
        "log": {"level": "warning"},
        **more,
    }
