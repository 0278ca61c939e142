"""What the operations of a field are to give, by the number that probes know them by (lazy_operation.cuh)."""

from __future__ import annotations

from collections.abc import Callable

OPERATIONS: list[Callable[[int, int, int, int], int]] = [
    lambda a, b, c, m: a * b,
    lambda a, b, c, m: a * a,
    lambda a, b, c, m: a + b,
    lambda a, b, c, m: 2 * a,
    lambda a, b, c, m: 3 * a,
    lambda a, b, c, m: 3 * a + b,
    lambda a, b, c, m: a - b,
    lambda a, b, c, m: a - 2 * b,
    lambda a, b, c, m: a - b - c,
    lambda a, b, c, m: a - b - 2 * c,
    lambda a, b, c, m: a,  # half of it: callers double what comes out, or halve this
    lambda a, b, c, m: -a if m else a,
]
HALF = 10
