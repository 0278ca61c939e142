"""Calls of the ciphers that both clients make: requests from columns, and results from answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from node_adapter.client._answers import read_bits, read_outputs
from node_adapter.client._cipher_scheme import CipherMode, CipherScheme, Direction, pb
from node_adapter.client._columns import Column, Values, pack
from node_adapter.client._scheme import Priority
from node_adapter.client._transport import CHANNEL_OPTIONS
from node_adapter.errors import AnswerError, AuthenticationError, RequestError, UndecidedError
from verifier.ciphers import GCM_TAG_BYTES

__all__ = [
    "ONE_DAEMON_OPTIONS",
    "Transformed",
    "check_authentic",
    "check_decided",
    "chunks_of",
    "require",
    "transform_request",
    "transformed",
    "unary_bytes",
]

# A handle is one daemon's: unlike verification, calls do not go round the target's addresses.
ONE_DAEMON_OPTIONS = [option for option in CHANNEL_OPTIONS if option[0] != "grpc.service_config"]

_STREAM_CHUNK = 4 << 20
_OVERHEAD = 1 << 16  # of a request's bytes that are not data: nonces, lengths, cells that are not full


@dataclass(frozen=True, slots=True)
class Transformed:
    """Messages of one call. A message that is not valid has no bytes: its tag is wrong, or it is undecided."""

    data: npt.NDArray[np.uint8]
    offsets: npt.NDArray[np.int64]
    tags: npt.NDArray[np.uint8]  # (items, 16) of an encryption in GCM
    valid: npt.NDArray[np.bool_]
    decided: npt.NDArray[np.bool_]
    served_by: str

    def __len__(self) -> int:
        return self.valid.size

    def __getitem__(self, item: int) -> bytes:
        begin, end = self.offsets[item : item + 2]
        return self.data[begin:end].tobytes()


def unary_bytes(ciphers: Any) -> int:
    """Bytes of data that surely fit one Transform, by the daemon's GetCiphers."""
    return int(ciphers.max_batch_bytes) - _OVERHEAD


def check_authentic(authentic: bool) -> None:
    """Raises AuthenticationError."""
    if not authentic:
        raise AuthenticationError("the tag is wrong: the message, its nonce, key or associated data was changed")


def check_decided(result: Transformed, allow_undecided: bool) -> Transformed:
    """Raises UndecidedError, with the result, where a message stayed undecided and that is not allowed."""
    if not allow_undecided and not result.decided.all():
        error = UndecidedError(f"{int((~result.decided).sum())} of {len(result)} messages are undecided")
        error.result = result
        raise error
    return result


def transform_request(
    request_id: int,
    keys: int | Sequence[int],
    scheme: CipherScheme,
    direction: Direction,
    data: Values,
    ivs: Values | None,
    *,
    key_index: npt.NDArray[np.uint32] | None,
    aad: Values | None,
    tags: Values | None,
    first_block: int,
    priority: Priority,
) -> Any:
    """A TransformRequest. Raises RequestError naming the field that does not fit."""
    column = pack("data", data, None)
    items = column.items
    request = pb.TransformRequest(
        request_id=request_id,
        items=items,
        scheme=scheme.message(direction),
        keys=[keys] if isinstance(keys, int) else list(keys),
        key_index=b"" if key_index is None else np.asarray(key_index).astype("<u4").tobytes(),
        data=column.cut(0, items),
        first_block=first_block,
        priority=priority,
    )
    if scheme.iv_bytes:
        request.iv.CopyFrom(_fixed("iv", ivs, scheme.iv_bytes, items).cut(0, items))
    if aad is not None:
        request.aad.CopyFrom(pack("aad", aad, None, items).cut(0, items))
    if tags is not None:
        request.tags = _fixed("tags", tags, GCM_TAG_BYTES, items).data.tobytes()
    return request


def chunks_of(data: bytes) -> Iterator[bytes]:
    """A message's chunks for a stream."""
    view = memoryview(data)
    return (bytes(view[at : at + _STREAM_CHUNK]) for at in range(0, len(view), _STREAM_CHUNK))


def require(scheme: CipherScheme, *, gcm: bool) -> None:
    """Raises RequestError where a mode has other calls."""
    if (scheme.mode is CipherMode.GCM) != gcm:
        calls = "`encrypt` and `decrypt`" if gcm else "`seal` and `open`"
        raise RequestError("scheme.mode", f"{scheme.mode.name} goes through {calls}")


def _fixed(name: str, values: Values | None, width: int, items: int) -> Column:
    column = pack(name, values if values is not None else b"", width, items)
    if column.offsets is not None:
        raise RequestError(name, f"every value has {width} bytes in this scheme")
    return column


def transformed(answer: Any, items: int) -> Transformed:
    """Raises AnswerError where the answer does not fit its question."""
    if answer.items != items:
        raise AnswerError(f"{answer.items} items came back of {items}")
    offsets = np.frombuffer(answer.data.offsets, "<u4").astype(np.int64)
    data = np.frombuffer(answer.data.data, np.uint8)
    fits = offsets.size == items + 1 and offsets[0] == 0 and offsets[-1] == data.size
    if not fits or (np.diff(offsets) < 0).any():
        raise AnswerError("the answer's columns are not those of its items")
    valid, decided = read_bits("valid", answer.valid, items), read_bits("decided", answer.decided, items)
    tags = read_outputs("tags", answer.tags, items if answer.tags else 0, GCM_TAG_BYTES)
    return Transformed(data, offsets, tags, valid & decided, decided, answer.served_by)
