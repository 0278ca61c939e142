"""Ethereum's Recursive Length Prefix, canonical only (Yellow Paper, appendix B)."""

from __future__ import annotations

from dataclasses import dataclass

from node_adapter.errors import FormatError

__all__ = ["Item", "encode_integer", "encode_list", "encode_string", "read"]


@dataclass(frozen=True, slots=True)
class Item:
    """A string or a list in `data`: where it, its content and its end are."""

    data: bytes
    at: int
    start: int
    stop: int
    is_list: bool

    @property
    def raw(self) -> bytes:
        """The item with its prefix."""
        return self.data[self.at : self.stop]

    def string(self, width: int | None = None) -> bytes:
        """The content of a string, of `width` bytes where given. Raises FormatError."""
        if self.is_list:
            raise FormatError(self.at, "RLP list; a string is expected")
        if width is not None and self.stop - self.start != width:
            raise FormatError(self.at, f"RLP string of {self.stop - self.start} bytes; {width} are expected")
        return self.data[self.start : self.stop]

    def integer(self, most: int = 32) -> int:
        """The content of a string as a number of at most `most` bytes, without leading zeros. Raises FormatError."""
        content = self.string()
        if len(content) > most:
            raise FormatError(self.at, f"RLP number of {len(content)} bytes; at most {most} are allowed")
        if content[:1] == b"\0":
            raise FormatError(self.at, "RLP number with a leading zero")
        return int.from_bytes(content, "big")

    def children(self, least: int = 0) -> list[Item]:
        """The items of a list that has at least `least`. Raises FormatError."""
        if not self.is_list:
            raise FormatError(self.at, "RLP string; a list is expected")
        items = []
        at = self.start
        while at < self.stop:
            items.append(read(self.data, at, self.stop))
            at = items[-1].stop
        if len(items) < least:
            raise FormatError(self.at, f"RLP list of {len(items)} items; at least {least} are expected")
        return items


def read(data: bytes, at: int = 0, end: int | None = None) -> Item:
    """The item at `at`, which must end at or before `end`. Raises FormatError at its first byte."""
    end = len(data) if end is None else end
    if at >= end:
        raise FormatError(at, "RLP ends where an item is expected")
    prefix = data[at]
    if prefix < 0x80:
        return Item(data, at, at, at + 1, False)
    is_list = prefix >= 0xC0
    short = prefix - (0xC0 if is_list else 0x80)
    if short < 56:
        start, length = at + 1, short
    else:
        start = at + 1 + short - 55
        if start > end:
            raise FormatError(at, "RLP ends inside a length")
        length = int.from_bytes(data[at + 1 : start], "big")
        if length < 56 or data[at + 1] == 0:
            raise FormatError(at, "RLP length is not minimal")
    if start + length > end:
        raise FormatError(at, f"RLP length {length} runs {start + length - end} bytes over the end")
    if not is_list and length == 1 and data[start] < 0x80:
        raise FormatError(at, "RLP string of one byte that needs no prefix")
    return Item(data, at, start, start + length, is_list)


def encode_integer(value: int) -> bytes:
    """A number, without leading zeros."""
    return encode_string(value.to_bytes((value.bit_length() + 7) // 8, "big"))


def encode_list(payload: bytes) -> bytes:
    """The list whose items' encodings are `payload`."""
    return _prefixed(payload, 0xC0)


def encode_string(content: bytes) -> bytes:
    """A string."""
    return content if len(content) == 1 and content[0] < 0x80 else _prefixed(content, 0x80)


def _prefixed(content: bytes, base: int) -> bytes:
    if len(content) < 56:
        return bytes([base + len(content)]) + content
    length = len(content).to_bytes((len(content).bit_length() + 7) // 8, "big")
    return bytes([base + 55 + len(length)]) + length + content
