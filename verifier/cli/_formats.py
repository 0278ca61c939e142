"""The block formats by name, and how each reads a file."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from node_adapter.formats import Record, bitcoin, ethereum, fabric, fisco

__all__ = ["BlockFormat", "Reader", "block_reader"]

Reader = Callable[[bytes], Iterator[Record]]


class BlockFormat(enum.StrEnum):
    """What files of blocks hold."""

    ethereum = "ethereum"
    fabric = "fabric"
    bitcoin = "bitcoin"
    fisco = "fisco"


def block_reader(format_: BlockFormat, *, chain_id: int | None, spent: Path | None, crypto: fisco.Crypto) -> Reader:
    """The reader of a format with those of the options that are its own. Raises OSError, FormatError for `spent`."""
    match format_:
        case BlockFormat.ethereum:
            return partial(ethereum.records, chain_id=chain_id)
        case BlockFormat.fabric:
            return fabric.records
        case BlockFormat.bitcoin:
            return partial(bitcoin.records, spent=bitcoin.read_spent(spent.read_text()) if spent else None)
        case BlockFormat.fisco:
            return partial(fisco.records, crypto=crypto)
