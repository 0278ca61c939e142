"""The protobuf wire format, read field by field, so that an error names its byte.

The messages of Hyperledger Fabric nest a dozen deep as bytes in bytes; what is signed is those bytes themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from node_adapter.errors import FormatError

__all__ = ["Span", "varint"]

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """The number at `at`, of at most 64 bits, and where the next byte is. Raises FormatError."""
    value = 0
    for place in range(10):
        if at + place >= end:
            raise FormatError(at, "cut short inside a varint")
        byte = data[at + place]
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            if value >> 64:
                break
            return value, at + place + 1
    raise FormatError(at, "varint over 64 bits")


@dataclass(frozen=True, slots=True)
class Span:
    """A part of `data` that holds a message, or the bytes of a field."""

    data: bytes
    start: int
    stop: int

    def __bool__(self) -> bool:
        return self.stop > self.start

    @property
    def content(self) -> bytes:
        """The bytes."""
        return self.data[self.start : self.stop]

    def all(self, number: int) -> list[Span]:
        """The values of a repeated field of bytes or messages. Raises FormatError for another wire type."""
        found = []
        for _, field, wire, value in self._fields():
            if field == number:
                if not isinstance(value, Span):
                    raise FormatError(self.start, f"field {number} has wire type {wire}; bytes are expected")
                found.append(value)
        return found

    def one(self, *path: int) -> Span:
        """The bytes of a field, or of a field of that message and so on; an absent one is empty."""
        span = self
        for number in path:
            values = span.all(number)
            span = values[-1] if values else Span(self.data, span.stop, span.stop)
        return span

    def first(self) -> Span:
        """The bytes of field 1 where a message begins with it, else nothing; whatever follows is not looked at."""
        at = self.start
        if at < self.stop and self.data[at] == 1 << 3 | _BYTES:
            length, at = varint(self.data, at + 1, self.stop)
            if length <= self.stop - at:
                return Span(self.data, at, at + length)
        return Span(self.data, self.start, self.start)

    def number(self, field: int) -> int:
        """The value of a varint field; an absent one is 0."""
        value = 0
        for _, found, wire, number in self._fields():
            if found == field:
                if isinstance(number, Span):
                    raise FormatError(self.start, f"field {field} has wire type {wire}; a varint is expected")
                value = number
        return value

    def is_bytes(self, field: int) -> bool:
        """Whether the field occurs, with bytes or a message in it."""
        return any(found == field and isinstance(value, Span) for _, found, _, value in self._fields())

    def only(self, *numbers: int) -> None:
        """Raises FormatError at the first field that has another number."""
        for begin, field, _, _ in self._fields():
            if field not in numbers:
                raise FormatError(begin, f"field {field} does not occur in this message")

    def _fields(self) -> Iterator[tuple[int, int, int, Span | int]]:
        at = self.start
        while at < self.stop:
            begin = at
            tag, at = varint(self.data, at, self.stop)
            field, wire = tag >> 3, tag & 7
            value: Span | int
            if wire == _VARINT:
                value, at = varint(self.data, at, self.stop)
            elif wire in (_BYTES, _FIXED64, _FIXED32):
                length = 8 if wire == _FIXED64 else 4
                if wire == _BYTES:
                    length, at = varint(self.data, at, self.stop)
                if length > self.stop - at:
                    raise FormatError(begin, f"field {field} of {length} bytes runs over the end of its message")
                value = Span(self.data, at, at + length)
                at += length
            else:
                raise FormatError(begin, f"wire type {wire} is not known")
            if not field:
                raise FormatError(begin, "field number 0")
            yield begin, field, wire, value
