"""Catching up: a node that was away verifies the blocks that others committed, many at once."""

from __future__ import annotations

from collections.abc import Sequence

from node_adapter.chain._block import Phase, Vote, transactions_root
from node_adapter.chain._validator import Committed, Validator, quorum
from node_adapter.client import Priority
from node_adapter.errors import ChainError

__all__ = ["catch_up"]


def catch_up(validator: Validator, offered: Sequence[Committed]) -> None:
    """Takes over the blocks that follow the validator's own, from a peer that it does not trust.

    All their transactions are one batch, and all their votes another. A block counts only with a quorum of the
    members' votes for the very result that this node finds itself. Raises ChainError at the first block that does
    not; the blocks before it are kept. Raises UndecidedError where the middleware gives no verdict, and keeps none.
    """
    if not offered:
        return
    checker, members = validator.checker, validator.members
    votes = [[vote for vote in block.votes if vote.validator < len(members)] for block in offered]
    all_transactions = [tx for committed in offered for tx in committed.block.transactions]
    asked = checker.transactions(all_transactions, Priority.BULK, kind="sync")
    flat = [vote for block_votes in votes for vote in block_votes]
    good = checker.votes(flat, members, Priority.BULK).result().valid.tolist() if flat else []
    codes = asked.result().codes
    start = voted = 0
    for committed, block_votes in zip(offered, votes, strict=True):
        block = committed.block
        header = block.header
        stop = start + len(block.transactions)
        if (header.chain, header.height, header.previous, header.state, header.transactions) != (
            validator.chain,
            validator.height,
            validator.tip,
            validator.state.root(),
            transactions_root(block.transactions),
        ):
            raise ChainError(f"block {validator.height}: what was offered does not follow the chain")
        valid = [vote for vote, ok in zip(block_votes, good[voted:], strict=False) if ok]
        executed = validator.execute(block, codes[start:stop])
        agreeing = _distinct(valid, header.height, header.hash, executed.result)
        if len(agreeing) < quorum(len(members)):
            raise ChainError(
                f"block {validator.height}: {len(agreeing)} of {len(members)} members vote for its result; "
                f"{quorum(len(members))} are needed"
            )
        validator.adopt(executed, tuple(agreeing.values()))
        start, voted = stop, voted + len(block_votes)


def _distinct(votes: Sequence[Vote], height: int, block: bytes, result: bytes) -> dict[int, Vote]:
    """The votes to commit this block with this result, one a member."""
    wanted = (Phase.COMMIT, height, block, result)
    return {v.validator: v for v in votes if (v.phase, v.height, v.block, v.result) == wanted}
