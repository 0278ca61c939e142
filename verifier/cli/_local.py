"""A daemon for the length of one command."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

__all__ = ["daemon_address"]


@contextlib.contextmanager
def daemon_address(address: str | None, plugins: Sequence[str]) -> Iterator[str]:
    """The address of a daemon: the given one, or that of one started here with these plugins until the block ends."""
    if address:
        yield address
        return
    raise NotImplementedError(plugins)
