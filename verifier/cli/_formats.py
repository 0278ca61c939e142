"""The block formats by name, and how each reads a file."""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from node_adapter.errors import FormatError
from node_adapter.formats import Record, bitcoin, chainmaker, ethereum, fabric, fisco

__all__ = [
    "BlockFormat",
    "ChainId",
    "Crypto",
    "Reader",
    "SpentFile",
    "block_plugins",
    "block_reader",
    "hint",
    "read_file",
]

Reader = Callable[[bytes], Iterator[Record]]

_NODES_FILE = re.compile(r"blk\d+\.dat")

ChainId = Annotated[
    str | None,
    typer.Option(help="ethereum (a number), fisco, chainmaker, fabric (the channel): name signatures for others."),
]
SpentFile = Annotated[
    Path | None,
    typer.Option(
        help='bitcoin: outputs that are spent, lines of "txid:index amount script", '
        "or what `bitcoin-cli getblock HASH 3` prints."
    ),
]
Crypto = Annotated[fisco.Crypto, typer.Option(help="fisco: the chain's algorithms, which no transaction names.")]


class BlockFormat(enum.StrEnum):
    """What files of blocks hold."""

    ethereum = "ethereum"
    fabric = "fabric"
    bitcoin = "bitcoin"
    fisco = "fisco"
    chainmaker = "chainmaker"


def block_reader(format_: BlockFormat, *, chain_id: str | None, spent: Path | None, crypto: fisco.Crypto) -> Reader:
    """The reader of a format with those of the options that are its own.

    One reader reads the files of a chain in order: Bitcoin's later blocks spend what earlier ones made. Raises
    OSError and FormatError for `spent`, typer.BadParameter for `chain_id`.
    """
    match format_:
        case BlockFormat.ethereum:
            return partial(ethereum.records, chain_id=_number(chain_id))
        case BlockFormat.fabric:
            return partial(fabric.records, chain_id=chain_id)
        case BlockFormat.bitcoin:
            return partial(bitcoin.records, spent=_spent(spent))
        case BlockFormat.fisco:
            return partial(fisco.records, crypto=crypto, chain_id=chain_id)
        case BlockFormat.chainmaker:
            return partial(chainmaker.records, chain_id=chain_id)


def read_file(path: Path) -> bytes:
    """A file's bytes; those of a node's blk*.dat without what Bitcoin Core hides them under since version 28.

    That is a key in a file beside them, which is xored over their bytes again and again. Raises OSError.
    """
    data = path.read_bytes()
    beside = path.with_name("xor.dat")
    if not _NODES_FILE.fullmatch(path.name) or not beside.is_file():
        return data
    key = beside.read_bytes()
    if not any(key):
        return data
    hidden = np.frombuffer(data, np.uint8)
    return (hidden ^ np.resize(np.frombuffer(key, np.uint8), len(hidden))).tobytes()


def hint(data: bytes) -> str:
    """What a file is that is not as its format says, where its beginning tells, in words to put behind an error."""
    if data[:2] == b"\x1f\x8b":
        return "; the file is compressed with gzip"
    if re.fullmatch(rb"\s*(0x)?[0-9a-fA-F\s]{16,}", data[:256]):
        return "; the file is hexadecimal text, which `xxd -r -p` turns into bytes"
    return ""


def block_plugins(format_: BlockFormat, crypto: fisco.Crypto) -> tuple[str, ...]:
    """The plugins that verify a format's signatures."""
    if format_ is BlockFormat.chainmaker:
        return "sm2", "ecdsa"
    return ("sm2",) if format_ is BlockFormat.fisco and crypto is fisco.Crypto.sm2 else ("ecdsa",)


def _number(chain_id: str | None) -> int | None:
    if chain_id is None:
        return None
    if not chain_id.isdecimal():
        raise typer.BadParameter(f"{chain_id!r}: Ethereum's chains are numbers", param_hint="--chain-id")
    return int(chain_id)


def _spent(path: Path | None) -> bitcoin.Spent:
    """What is spent, which grows as blocks are read. Raises FormatError naming the file."""
    try:
        return bitcoin.read_spent(path.read_text()) if path else {}
    except FormatError as error:
        raise FormatError(error.offset, f"{error.problem} ({path})") from None
