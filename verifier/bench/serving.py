"""`verifier serve` in a process of its own, for the length of a measurement."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from verifier.errors import VerifierError

__all__ = ["serving"]

_READY = "verifier ready on "
_ENDS_S = 120.0


@contextmanager
def serving(device: str, plugins: Sequence[str], settings: Sequence[str] = ()) -> Iterator[tuple[str, int]]:
    """The address and the process id of a daemon on a free port, without its other listeners.

    `settings` are SECTION.NAME=VALUE. Raises VerifierError where it does not start.
    """
    command = [sys.executable, "-m", "verifier", "serve", "--device", device]
    for plugin in plugins:
        command += ["--plugin", plugin]
    command += ["--listen", "127.0.0.1:0", "--log-level", "error"]
    for setting in ("health.listen=[]", "metrics.listen=", "status.listen=", "admin.listen=[]", *settings):
        command += ["--set", setting]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            line = process.stdout.readline() if process.stdout else ""
            if not line.startswith(_READY):
                raise VerifierError(
                    f"the daemon with {', '.join(plugins)} on {device} did not start; its log says why"
                )
            yield line.removeprefix(_READY).split()[0], process.pid
        finally:
            process.terminate()
            try:
                process.wait(_ENDS_S)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
