"""The little DER that certificates and keys need: one element at a time, strictly (X.690, 8.1 and 10.1)."""

from __future__ import annotations

from dataclasses import dataclass

from node_adapter.errors import FormatError

__all__ = ["BIT_STRING", "INTEGER", "OBJECT_IDENTIFIER", "OCTET_STRING", "SEQUENCE", "SET", "Element", "read"]

INTEGER = 0x02
BIT_STRING = 0x03
OCTET_STRING = 0x04
OBJECT_IDENTIFIER = 0x06
SEQUENCE = 0x30
SET = 0x31


@dataclass(frozen=True, slots=True)
class Element:
    """One element of `data`: its tag, and where it, its content and its end are."""

    data: bytes
    tag: int
    at: int
    start: int
    stop: int

    @property
    def content(self) -> bytes:
        """The bytes behind tag and length."""
        return self.data[self.start : self.stop]

    def children(self) -> list[Element]:
        """The elements inside. Raises FormatError where they do not fill it exactly."""
        elements = []
        at = self.start
        while at < self.stop:
            elements.append(read(self.data, at, self.stop))
            at = elements[-1].stop
        return elements


def read(data: bytes, at: int = 0, end: int | None = None, tag: int | None = None) -> Element:
    """The element at `at`, which must end at or before `end`.

    Raises FormatError at the byte that is wrong: cut short, high tag number, indefinite or not minimal length, or
    another tag than asked.
    """
    end = len(data) if end is None else end
    if at + 2 > end:
        raise FormatError(at, "DER ends where an element is expected")
    found = data[at]
    if found & 0x1F == 0x1F:
        raise FormatError(at, f"DER tag 0x{found:02x}: high tag numbers do not occur here")
    if tag is not None and found != tag:
        raise FormatError(at, f"DER tag 0x{found:02x}; 0x{tag:02x} is expected")
    length = data[at + 1]
    start = at + 2
    if length >= 0x80:
        more = length & 0x7F
        start += more
        if not 1 <= more <= 4:
            raise FormatError(at + 1, f"DER length of {more} bytes; 1 to 4 are allowed")
        if start > end:
            raise FormatError(at + 1, "DER ends inside a length")
        length = int.from_bytes(data[at + 2 : start], "big")
        if length < 0x80 or length >> (8 * (more - 1)) == 0:
            raise FormatError(at + 1, "DER length is not minimal")
    if start + length > end:
        raise FormatError(at + 1, f"DER length {length} runs {start + length - end} bytes over the end")
    return Element(data, found, at, start, start + length)
