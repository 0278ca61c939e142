"""A daemon for the length of one command."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from node_adapter.local import private_overrides
from verifier.config import load_settings
from verifier.daemon import Daemon

__all__ = ["daemon_address"]


@contextlib.contextmanager
def daemon_address(address: str | None, plugins: Sequence[str]) -> Iterator[str]:
    """The address of a daemon: the given one, or that of one started here with these plugins until the block ends.

    The environment's settings hold for it, its ports and plugins excepted.
    """
    if address:
        yield address
        return
    settings = load_settings(overrides=private_overrides({"load": list(plugins)}))
    with Daemon(settings) as daemon:
        yield daemon.addresses[0]
