"""Blocks and votes, their canonical bytes, and their signatures."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

from node_adapter.chain._keys import SigningKey
from node_adapter.chain._transaction import Transaction
from node_adapter.client import Algorithm, InputKind, KeyEncoding, Scheme, SignatureEncoding

__all__ = ["CONSENSUS_SCHEME", "Block", "Header", "Phase", "Proposal", "Vote", "transactions_root"]

CONSENSUS_SCHEME = Scheme(Algorithm.SM2, InputKind.MESSAGE, SignatureEncoding.RAW_RS, KeyEncoding.RAW_XY)

_HEADER = struct.Struct(">4sIQ32sI32s32s")
_VOTE = struct.Struct(">4sBQI32s32sI")


def transactions_root(transactions: Sequence[Transaction]) -> bytes:
    """SHA-256 over the hashes of all transactions, spoilt ones included."""
    return hashlib.sha256(b"".join(tx.hash for tx in transactions)).digest()


@dataclass(frozen=True, slots=True)
class Header:
    """What a block commits to. `state` is the root before the block."""

    chain: int
    height: int
    previous: bytes
    proposer: int
    transactions: bytes
    state: bytes

    def body(self) -> bytes:
        """The bytes that the proposer signs."""
        fields = (self.chain, self.height, self.previous, self.proposer, self.transactions, self.state)
        return _HEADER.pack(b"VBH1", *fields)

    @property
    def hash(self) -> bytes:
        """SHA-256 over the body: the block's name."""
        return hashlib.sha256(self.body()).digest()


@dataclass(frozen=True, slots=True)
class Block:
    """A header and its transactions in order. A rejected transaction stays in its block, with no effect."""

    header: Header
    transactions: tuple[Transaction, ...]


@dataclass(frozen=True, slots=True)
class Proposal:
    """A block that its proposer signed (r || s over the header's body)."""

    block: Block
    view: int
    signature: bytes


class Phase(IntEnum):
    """A vote's step."""

    PREPARE = 1
    COMMIT = 2


@dataclass(frozen=True, slots=True)
class Vote:
    """A validator's word that a block leads to a result. `result` covers the state after it and every rejection."""

    phase: Phase
    height: int
    view: int
    block: bytes
    result: bytes
    validator: int
    signature: bytes = b""

    def body(self) -> bytes:
        """The bytes that are signed."""
        fields = (self.phase, self.height, self.view, self.block, self.result, self.validator)
        return _VOTE.pack(b"VVT1", *fields)

    def signed(self, key: SigningKey) -> Vote:
        """The same vote with its signature, r || s."""
        return replace(self, signature=key.sign(self.body()))
