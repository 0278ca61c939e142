"""The garbage collector of processes that serve."""

from __future__ import annotations

import gc

__all__ = ["keep_what_is_there"]


def keep_what_is_there() -> None:
    """Takes everything that was made so far, modules and their like, out of the collector's sight.

    A full collection otherwise walks all of it, during which no thread of the process answers. For processes of their
    own, before they make what may end before they do: what is kept is never collected as garbage in cycles.
    """
    gc.collect()
    gc.freeze()
