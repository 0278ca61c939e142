"""Reads `plugin_info` out of a built image without running it.

Cubins and Linux shared libraries are both ELF64, little-endian. Layout: System V ABI, chapters 4 and 5.
"""

from __future__ import annotations

import ctypes
import struct
from typing import NamedTuple

from verifier.drivers import ABI_VERSION, BatchStruct, PluginInfo
from verifier.errors import PluginError

__all__ = ["image_info"]

_SYMBOL_TABLES = (2, 11)  # SHT_SYMTAB, SHT_DYNSYM
_NO_BITS = 8  # SHT_NOBITS
_RELOCATABLE = 1  # ET_REL: symbol values are offsets into their section; else addresses


class _Section(NamedTuple):
    name: int
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    entry_size: int


def image_info(data: bytes, where: str) -> PluginInfo:
    """What a cubin or shared library says of itself. Raises PluginError: neither of them, or for another ABI."""
    try:
        raw = _symbol(data, b"plugin_info", ctypes.sizeof(PluginInfo))
    except (struct.error, IndexError, ValueError) as error:
        raise PluginError(f"{where}: not a cubin or shared library: {error}") from None
    if raw is None:
        raise PluginError(f"{where}: it has no symbol plugin_info (PLUGIN_INFO is missing in the source)")
    info = PluginInfo.from_buffer_copy(raw)
    if info.abi != ABI_VERSION or info.batch_bytes != ctypes.sizeof(BatchStruct):
        raise PluginError(
            f"{where}: built for ABI {info.abi} with a batch of {info.batch_bytes} bytes; "
            f"this daemon has ABI {ABI_VERSION} with {ctypes.sizeof(BatchStruct)}"
        )
    return info


def _symbol(data: bytes, name: bytes, size: int) -> bytes | None:
    """The first `size` bytes of the defined symbol `name`."""
    if data[:6] != b"\x7fELF\x02\x01":
        raise ValueError("no ELF64 little-endian header")
    kind, table = struct.unpack_from("<H", data, 16)[0], struct.unpack_from("<Q", data, 40)[0]
    entry_size, count = struct.unpack_from("<HH", data, 58)
    sections = [_Section(*struct.unpack_from("<IIQQQQIIQQ", data, table + i * entry_size)) for i in range(count)]
    for section in sections:
        if section.type not in _SYMBOL_TABLES:
            continue
        strings = sections[section.link]
        for position in range(section.offset, section.offset + section.size, 24):
            label, _, _, home, value, _ = struct.unpack_from("<IBBHQQ", data, position)
            begin = strings.offset + label
            if not 0 < home < count or data[begin : begin + len(name) + 1] != name + b"\0":
                continue
            place = sections[home]
            offset = place.offset + value - (0 if kind == _RELOCATABLE or not place.address else place.address)
            if place.type == _NO_BITS or offset < 0 or offset + size > len(data):
                raise ValueError("plugin_info has no bytes in the file")
            return data[offset : offset + size]
    return None
