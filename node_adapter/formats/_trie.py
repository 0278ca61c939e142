"""The root that an Ethereum header has over its transactions: a Merkle Patricia trie (Yellow Paper, appendix D)."""

from __future__ import annotations

from collections.abc import Sequence

from Cryptodome.Hash import keccak

from node_adapter.formats._rlp import encode_integer, encode_list, encode_string

__all__ = ["transactions_root"]

_Entries = list[tuple[bytes, bytes]]  # nibbles that are left, value


def transactions_root(transactions: Sequence[bytes]) -> bytes:
    """The root over transactions as the trie holds them: RLP of legacy ones, type and RLP of all others."""
    if not transactions:
        return _keccak(b"\x80")
    entries = sorted((_nibbles(encode_integer(place)), value) for place, value in enumerate(transactions))
    return _keccak(_node(entries, 0))


def _node(entries: _Entries, depth: int) -> bytes:
    """The encoding of the node that holds these entries, which share `depth` nibbles."""
    if len(entries) == 1:
        path, value = entries[0]
        return encode_list(encode_string(_compact(path[depth:], leaf=True)) + encode_string(value))
    first, last = entries[0][0], entries[-1][0]
    shared = depth
    while shared < min(len(first), len(last)) and first[shared] == last[shared]:
        shared += 1
    if shared > depth:
        return encode_list(encode_string(_compact(first[depth:shared], leaf=False)) + _child(entries, shared))
    branches = []
    for nibble in range(16):
        below = [entry for entry in entries if entry[0][depth] == nibble]
        branches.append(_child(below, depth + 1) if below else b"\x80")
    return encode_list(b"".join(branches) + b"\x80")  # no index is a prefix of another: nothing stands at a branch


def _child(entries: _Entries, depth: int) -> bytes:
    node = _node(entries, depth)
    return node if len(node) < 32 else encode_string(_keccak(node))


def _nibbles(key: bytes) -> bytes:
    return bytes(nibble for byte in key for nibble in (byte >> 4, byte & 15))


def _compact(nibbles: bytes, *, leaf: bool) -> bytes:
    odd = len(nibbles) % 2
    flags = bytes([2 * leaf + odd]) + (b"" if odd else b"\0")
    padded = flags + nibbles
    return bytes(high << 4 | low for high, low in zip(padded[::2], padded[1::2], strict=True))


def _keccak(data: bytes) -> bytes:
    return keccak.new(digest_bits=256, data=data).digest()
