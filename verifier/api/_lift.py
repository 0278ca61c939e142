"""Columns lifted out of a request's bytes without parsing them.

Protobuf copies every column twice: into its own memory and out of it again. Here the fields at the top of the message
are walked, what a column holds becomes a view of the bytes that gRPC gave, and only the rest is parsed. Whatever is
unusual but allowed (a field that comes twice) is left to protobuf, and so are small messages, which are copied sooner
than walked.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from google.protobuf.message import Message

from verifier.columns_digest import columns_digest
from verifier.regions import Region
from verifier.v1 import verifier_pb2 as pb

__all__ = ["KINDS", "ColumnarRequest", "Given", "Kind", "RequestDigest", "lift", "request_digest"]

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_DATA, _OFFSETS = 1, 2  # fields of Column

_WALK_FROM = 64 << 10  # bytes; smaller messages protobuf copies sooner than they are walked


class _UnusualError(Exception):
    """Bytes that protobuf may still take, or refuse."""


class Given(NamedTuple):
    """What a request has for one column. `region`: `data` lies in it."""

    data: memoryview
    offsets: memoryview
    region: Region | None = None


class ColumnarRequest:
    """A request of which the columns stand apart. Its attributes are the message's, columns being `Given`."""

    __slots__ = ("columns", "message")

    def __init__(self, message: Any, columns: dict[str, Given]) -> None:
        self.message = message
        self.columns = columns

    def __getattr__(self, name: str) -> Any:
        given = self.columns.get(name)
        return getattr(self.message, name) if given is None else given


@dataclass(frozen=True, slots=True)
class Kind:
    """A message that has columns: their names by field number."""

    message: type[Message]
    columns: dict[int, str] = field(default_factory=dict)

    @classmethod
    def of(cls, message: type[Message]) -> Kind:
        """The columns are read from the message's descriptor."""
        fields = message.DESCRIPTOR.fields
        columns = {f.number: f.name for f in fields if f.message_type is pb.Column.DESCRIPTOR}
        return cls(message, columns)


# The calls whose work is columns, by the name of the RPC.
KINDS = {
    "Verify": Kind.of(pb.VerifyRequest),
    "Recover": Kind.of(pb.RecoverRequest),
    "Digest": Kind.of(pb.DigestRequest),
}


def request_digest(kind: Kind, request: Any) -> bytes:
    """columns_digest of a request: of its columns in the order of their fields, and its key table."""
    columns = [getattr(request, name) for name in kind.columns.values()]
    parts = [part for column in columns for part in (column.data, column.offsets)]
    if "key_table" in kind.message.DESCRIPTOR.fields_by_name:
        parts.append(request.key_table)
    return columns_digest(*parts)


class RequestDigest:
    """request_digest of a request, taken once: best while a device works on it, and before it is answered.

    Thread-safe. It holds the request until then.
    """

    def __init__(self, kind: Kind, request: Any) -> None:
        self._kind = kind
        self._request = request
        self._lock = threading.Lock()
        self._taken = b""

    def take(self) -> bytes:
        """The digest."""
        with self._lock:
            if self._request is not None:
                self._taken = request_digest(self._kind, self._request)
                self._request = None
            return self._taken


def lift(kind: Kind, data: bytes, walk_from: int = _WALK_FROM) -> ColumnarRequest:
    """Messages of `walk_from` bytes or more are walked. Raises DecodeError where the bytes are not the message."""
    if len(data) >= walk_from:
        try:
            return _walked(kind, data)
        except _UnusualError:
            pass
    return _parsed(kind, data)


def _walked(kind: Kind, data: bytes) -> ColumnarRequest:
    view = memoryview(data)
    kept: list[bytes | memoryview] = []
    columns: dict[str, Given] = {}
    begin = 0  # of what is kept next
    for number, wire, tag_at, at, end in _fields(view):
        name = kind.columns.get(number)
        if name is not None and wire == _BYTES:
            if name in columns:
                raise _UnusualError
            columns[name], rest = _column(view[at:end])
            kept += [view[begin:tag_at], _varint_bytes(number << 3 | _BYTES), _varint_bytes(len(rest)), rest]
            begin = end
    message: Any = kind.message()
    message.MergeFromString(b"".join((*kept, view[begin:])))
    return ColumnarRequest(message, columns)


def _parsed(kind: Kind, data: bytes) -> ColumnarRequest:
    message: Any = kind.message.FromString(data)
    columns = {}
    for name in kind.columns.values():
        if message.HasField(name):
            column = getattr(message, name)
            columns[name] = Given(memoryview(column.data), memoryview(column.offsets))
            column.ClearField("data")
            column.ClearField("offsets")
    return ColumnarRequest(message, columns)


def _column(view: memoryview) -> tuple[Given, bytes]:
    """Its data and offsets, and the bytes of what else it has."""
    found: dict[int, memoryview] = {}
    rest = b""
    for number, wire, tag_at, at, end in _fields(view):
        if number in (_DATA, _OFFSETS) and wire == _BYTES:
            if number in found:
                raise _UnusualError
            found[number] = view[at:end]
        else:
            rest += view[tag_at:end]
    empty = view[:0]
    return Given(found.get(_DATA, empty), found.get(_OFFSETS, empty)), rest


def _fields(view: memoryview) -> Iterator[tuple[int, int, int, int, int]]:
    """(number, wire type, where the tag begins, where the value begins, where it ends) of each field at the top."""
    at, size = 0, len(view)
    while at < size:
        tag_at = at
        tag, at = _varint(view, at)
        wire = tag & 7
        begin = at
        if wire == _BYTES:
            length, begin = _varint(view, at)
            at = begin + length
        elif wire == _VARINT:
            _, at = _varint(view, at)
        elif wire in (_FIXED64, _FIXED32):
            at += 8 if wire == _FIXED64 else 4
        else:
            raise _UnusualError
        if at > size:
            raise _UnusualError
        yield tag >> 3, wire, tag_at, begin, at


def _varint(view: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(view) and shift < 70:
        byte = view[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise _UnusualError


def _varint_bytes(value: int) -> bytes:
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
