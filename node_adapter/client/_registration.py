"""Registration of keys: its message, and the handle in its answer."""

from __future__ import annotations

from typing import Any

import numpy as np

from node_adapter.client._columns import Values, pack
from node_adapter.client._scheme import Algorithm, KeyEncoding
from node_adapter.client._wire import pb
from node_adapter.errors import RequestError
from verifier.schemes import fixed_width

__all__ = ["register_request", "registered"]


def register_request(algorithm: Algorithm, key_encoding: KeyEncoding, keys: Values) -> Any:
    """The message that registers keys."""
    column = pack("keys", keys, fixed_width("key", {"key_encoding": key_encoding.name}))
    if not column.items:
        raise RequestError("keys", "none; at least one is registered")
    return pb.RegisterKeysRequest(
        algorithm=int(algorithm),
        key_encoding=int(key_encoding),
        keys=column.cut(0, column.items),
        items=column.items,
    )


def registered(answer: Any) -> int:
    """The handle in an answer. Raises RequestError where some keys are not keys of the curve."""
    bad = np.frombuffer(answer.problems.index, "<u4")
    if bad.size:
        raise RequestError("keys", f"{bad.size} are not keys of the curve, the first at {bad[0]}")
    return int(answer.key_set)
