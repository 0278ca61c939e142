"""What the header of a Bitcoin block, and through it the coinbase, says about the block's transactions."""

from __future__ import annotations

from collections.abc import Iterator

from node_adapter.formats._bitcoin import Transaction, double_sha256, merkle_root

__all__ = ["committed", "faults"]

_WITNESS_COMMITMENT = b"\x6a\x24\xaa\x21\xa9\xed"  # BIP 141: the output's script begins so, and a hash follows


def committed(coinbase: Transaction) -> bytes | None:
    """What a block's first transaction commits to as its witnesses."""
    told = [o.script[6:38] for o in coinbase.outputs if len(o.script) >= 38 and o.script[:6] == _WITNESS_COMMITMENT]
    return told[-1] if told else None


def faults(told: bytes, first: Transaction, names: list[bytes], witness_names: list[bytes]) -> Iterator[str]:
    """What in a block is not as its header's root `told` and its first transaction say."""
    root = merkle_root(names)
    if root != told:
        yield (
            f"Merkle root mismatch: the transactions here have {root[::-1].hex()}, the header was mined for "
            f"{told[::-1].hex()}: at least one transaction is not the one in the chain"
        )
    if len(set(names)) < len(names):
        # The tree doubles the last name of an odd level, so that doubled transactions can have the same root.
        yield "a transaction stands twice: the block is not the one in the chain, whatever its Merkle root"
    if not first.coinbase:
        yield "the first transaction is no coinbase"
    elif witness_names != names:
        yield from _witness_faults(first, witness_names)


def _witness_faults(coinbase: Transaction, witness_names: list[bytes]) -> Iterator[str]:
    told = committed(coinbase)
    reserved = coinbase.witnesses[0]
    if told is None:
        yield "transactions have witnesses, but the coinbase does not commit to them"
    elif len(reserved) != 1 or len(reserved[0]) != 32:
        yield "the coinbase commits to witnesses, but its own is not one value of 32 bytes"
    else:
        found = double_sha256(merkle_root([bytes(32), *witness_names[1:]]) + reserved[0])
        if found != told:
            yield (
                f"witness commitment mismatch: the witnesses here have {found.hex()}, the coinbase "
                f"{told.hex()}: at least one witness is not the one in the chain"
            )
