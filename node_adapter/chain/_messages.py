"""The protocol's messages, named as in Castro and Liskov's "Practical Byzantine Fault Tolerance" (OSDI 1999).

⟨PRE-PREPARE, v, n, d⟩ carries its block, which the signature covers by its digest d. A sequence number n is a block's
height. A block's commit certificate is its proof for ever, so that each block is a stable checkpoint: VIEW-CHANGE
has the sender's height and that certificate where the paper has the last checkpoint and its proof.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec
from msgspec import Struct

from node_adapter.chain._block import Block
from node_adapter.errors import ChainError

__all__ = [
    "BlockRequest",
    "Blocks",
    "Commit",
    "Committed",
    "Message",
    "NewView",
    "PrePrepare",
    "Prepare",
    "Prepared",
    "Rejected",
    "Reply",
    "Status",
    "Submit",
    "ViewChange",
    "decode",
    "encode",
]

M = TypeVar("M", bound="_Signed")
D = TypeVar("D")

_ENCODER = msgspec.msgpack.Encoder()


class _Signed(Struct, frozen=True, array_like=True):
    """A message that `replica` signs: all its fields but the signature, and but what its digest covers."""

    def body(self) -> bytes:
        """The bytes that are signed, without the chain's name."""
        fields = (getattr(self, name) for name in self.__struct_fields__ if name not in ("signature", "block"))
        return _ENCODER.encode((self.__struct_config__.tag, *fields))

    def with_signature(self: M, signature: bytes) -> M:
        """The same message with a signature."""
        return msgspec.structs.replace(self, signature=signature)


class PrePrepare(_Signed, frozen=True, array_like=True, tag=1):
    """The primary's proposal of a block for a height in a view."""

    view: int
    height: int
    digest: bytes
    replica: int
    block: Block
    signature: bytes = b""


class Prepare(_Signed, frozen=True, array_like=True, tag=2):
    """A backup has accepted a proposal: it verified every transaction and found the state that the header names."""

    view: int
    height: int
    digest: bytes
    replica: int
    signature: bytes = b""


class Commit(_Signed, frozen=True, array_like=True, tag=3):
    """A member holds a prepared certificate."""

    view: int
    height: int
    digest: bytes
    replica: int
    signature: bytes = b""


class Prepared(Struct, frozen=True, array_like=True, tag=4):
    """A prepared certificate: a pre-prepare, and matching prepares that make a quorum with it."""

    pre_prepare: PrePrepare
    prepares: tuple[Prepare, ...]


class ViewChange(_Signed, frozen=True, array_like=True, tag=5):
    """A member gives up the views below `view`.

    `digest` and `certificate` prove its height; `prepared` is what it may have committed to at the next one.
    """

    view: int
    height: int
    digest: bytes
    certificate: tuple[Commit, ...]
    prepared: Prepared | None
    replica: int
    signature: bytes = b""


class NewView(_Signed, frozen=True, array_like=True, tag=6):
    """The new primary's proof that a quorum wants the view, and the block that must be proposed first, if any."""

    view: int
    view_changes: tuple[ViewChange, ...]
    pre_prepare: PrePrepare | None
    replica: int
    signature: bytes = b""


class Status(Struct, frozen=True, array_like=True, tag=7):
    """What a member says from time to time, so that others send again what it lacks. Nothing else rests on it."""

    view: int
    height: int
    active: bool


class BlockRequest(Struct, frozen=True, array_like=True, tag=8):
    """Asks for blocks from `first` on."""

    first: int
    most: int


class Committed(Struct, frozen=True, array_like=True, tag=9):
    """A block and its commit certificate: commits of a quorum for it, all of one view."""

    block: Block
    certificate: tuple[Commit, ...]


class Blocks(Struct, frozen=True, array_like=True, tag=10):
    """Answers BlockRequest."""

    blocks: tuple[Committed, ...]


class Submit(Struct, frozen=True, array_like=True, tag=11):
    """Transactions of a client, as it encoded them."""

    transactions: tuple[bytes, ...]


class Reply(Struct, frozen=True, array_like=True, tag=12):
    """These transactions (their hashes) are in the block of this height. A client believes f + 1 equal replies."""

    height: int
    hashes: tuple[bytes, ...]


class Rejected(Struct, frozen=True, array_like=True, tag=13):
    """A transaction (SHA-256 of what was sent) was not taken, and why."""

    hash: bytes
    reason: str


Message = (
    PrePrepare | Prepare | Commit | ViewChange | NewView | Status | BlockRequest | Blocks | Submit | Reply | Rejected
)


def encode(message: Message | Committed | Prepared) -> bytes:
    """A message as MessagePack: an array of its tag and its fields."""
    return _ENCODER.encode(message)


def decode(data: bytes, kind: type[D]) -> D:
    """Reads a message of a kind, strictly. Raises ChainError where the bytes are not exactly that."""
    try:
        return msgspec.msgpack.decode(data, type=kind)
    except msgspec.MsgspecError as error:
        raise ChainError(f"a message of {len(data)} bytes cannot be read: {error}") from None
