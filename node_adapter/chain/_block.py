"""Blocks and their canonical bytes."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

from msgspec import Meta

from node_adapter.chain._transaction import U32, U63, Transaction

__all__ = ["GENESIS", "Block", "Header", "transactions_root"]

Hash = Annotated[bytes, Meta(min_length=32, max_length=32)]

GENESIS = bytes(32)  # the hash that block 1 follows

_HEADER = struct.Struct(">4sIQ32sI32s32s")


def transactions_root(transactions: Sequence[Transaction]) -> bytes:
    """SHA-256 over the hashes of all transactions."""
    return hashlib.sha256(b"".join(tx.hash for tx in transactions)).digest()


@dataclass(frozen=True)
class Header:
    """What a block commits to. `state` is the root after the block; heights count from 1.

    The view is not part of it: a new view's primary proposes the very same block again.
    """

    chain: U32
    height: U63
    previous: Hash
    proposer: U32
    transactions: Hash
    state: Hash

    def body(self) -> bytes:
        """The bytes that are hashed."""
        fields = (self.chain, self.height, self.previous, self.proposer, self.transactions, self.state)
        return _HEADER.pack(b"VBH1", *fields)

    @cached_property
    def hash(self) -> bytes:
        """SHA-256 over the body: the block's name, which votes are for."""
        return hashlib.sha256(self.body()).digest()


@dataclass(frozen=True, slots=True)
class Block:
    """A header and its transactions in order, every one of which is valid and was applied."""

    header: Header
    transactions: tuple[Transaction, ...]

    @property
    def hash(self) -> bytes:
        """The header's hash."""
        return self.header.hash

    @property
    def height(self) -> int:
        """The header's height."""
        return self.header.height
