"""Names in certificates (X.501): in words, and in a form in which equal ones compare equal."""

from __future__ import annotations

from dataclasses import dataclass, field

from node_adapter.errors import FormatError
from node_adapter.formats._der import OBJECT_IDENTIFIER, SEQUENCE, SET, Element

__all__ = ["Name", "dotted", "read_name"]

_WORDS = {
    bytes.fromhex("550403"): "CN",
    bytes.fromhex("550406"): "C",
    bytes.fromhex("550407"): "L",
    bytes.fromhex("550408"): "ST",
    bytes.fromhex("550409"): "STREET",
    bytes.fromhex("55040a"): "O",
    bytes.fromhex("55040b"): "OU",
    bytes.fromhex("2a864886f70d010901"): "E",
    bytes.fromhex("0992268993f22c640101"): "UID",
    bytes.fromhex("0992268993f22c640119"): "DC",
}
# How the kinds of strings that names are made of are encoded. What T61 means differs: most write Latin 1.
_TEXTS = {
    0x0C: "utf-8",
    0x12: "ascii",
    0x13: "latin-1",
    0x14: "latin-1",
    0x16: "latin-1",
    0x1A: "latin-1",
    0x1C: "utf-32-be",
    0x1E: "utf-16-be",
}
_ESCAPED = ',+"\\<>;'


@dataclass(frozen=True, slots=True)
class Name:
    """A distinguished name.

    Equal are those that RFC 5280 (7.1) takes for equal: letters' case, runs of spaces and the kind of string do not
    count.
    """

    text: str = field(compare=False)
    key: tuple[frozenset[tuple[bytes, str]], ...]


def read_name(name: Element) -> Name:
    """A name, in words as RFC 4514 has them. Raises FormatError at the element that is wrong."""
    if name.tag != SEQUENCE:
        raise FormatError(name.at, f"DER tag 0x{name.tag:02x}; a name is expected")
    texts, key = [], []
    for part in name.children():
        if part.tag != SET:
            raise FormatError(part.at, f"DER tag 0x{part.tag:02x}; a part of a name is expected")
        found = [_attribute(attribute) for attribute in part.children()]
        texts.append("+".join(f"{_WORDS.get(kind) or dotted(kind)}={shown}" for kind, _, shown in found))
        key.append(frozenset((kind, " ".join(value.split()).casefold()) for kind, value, _ in found))
    return Name(",".join(reversed(texts)) or "(no name)", tuple(key))


def _attribute(attribute: Element) -> tuple[bytes, str, str]:
    """The kind of an attribute, its value, and that as it is shown: in hexadecimal where it is no text."""
    parts = attribute.children() if attribute.tag == SEQUENCE else []
    if len(parts) != 2 or parts[0].tag != OBJECT_IDENTIFIER:
        raise FormatError(attribute.at, "a name's attribute is expected, with its kind and its value")
    kind, value = parts
    try:
        text = value.content.decode(_TEXTS[value.tag])
        return kind.content, text, _escaped(text)
    except (KeyError, UnicodeDecodeError):
        shown = f"#{value.data[value.at : value.stop].hex()}"
        return kind.content, shown, shown


def dotted(identifier: bytes) -> str:
    """An object identifier in numbers."""
    numbers, value = [], 0
    for byte in identifier:
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            numbers.append(value)
            value = 0
    if not numbers:
        return "?"
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _escaped(value: str) -> str:
    """A value as RFC 4514 writes it, so that nothing is mistaken for what stands around it."""
    shown = "".join(_escaped_letter(letter) for letter in value)
    if shown[:1] in ("#", " "):
        shown = f"\\{shown}"
    return f"{shown[:-1]}\\ " if value[1:].endswith(" ") else shown


def _escaped_letter(letter: str) -> str:
    if letter in _ESCAPED:
        return f"\\{letter}"
    return letter if letter.isprintable() else "".join(f"\\{byte:02x}" for byte in letter.encode())
