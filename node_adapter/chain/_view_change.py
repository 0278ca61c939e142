"""What must hold of certificates, view changes and new views (Castro and Liskov, 4.4), whoever sends them."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from node_adapter.chain._block import GENESIS, transactions_root
from node_adapter.chain._membership import Membership
from node_adapter.chain._messages import Commit, Committed, NewView, Prepare, Prepared, PrePrepare, ViewChange

__all__ = [
    "certificate_holds",
    "certificate_matches",
    "chosen",
    "new_view_holds",
    "pre_prepare_holds",
    "prepared_holds",
    "view_change_holds",
]


def pre_prepare_holds(membership: Membership, message: PrePrepare) -> bool:
    """It is its view's primary's, and the digest is the block's, which is complete."""
    block = message.block
    return (
        message.replica == membership.primary(message.view)
        and message.digest == block.hash
        and message.height == block.height
        and block.header.chain == membership.chain
        and block.header.transactions == transactions_root(block.transactions)
        and membership.signed(message)
    )


def prepared_holds(membership: Membership, prepared: Prepared) -> bool:
    """A quorum, the primary among it, accepted one proposal in one view."""
    proposal = prepared.pre_prepare
    accepted = (proposal.view, proposal.height, proposal.digest)
    voters = _voters(prepared.prepares, accepted) | {proposal.replica}
    return (
        len(voters) >= membership.quorum
        and pre_prepare_holds(membership, proposal)
        and all(membership.signed(prepare) for prepare in prepared.prepares)
    )


def certificate_matches(membership: Membership, height: int, digest: bytes, commits: Collection[Commit]) -> bool:
    """A quorum commits to this block in one view, provided that the commits are signed."""
    view = next((commit.view for commit in commits), 0)
    voters = _voters(commits, (view, height, digest))
    return len(voters) >= membership.quorum and all(0 <= voter < len(membership) for voter in voters)


def certificate_holds(membership: Membership, height: int, digest: bytes, commits: Collection[Commit]) -> bool:
    """A quorum committed to this block in one view. Height 0 needs no proof."""
    if height == 0:
        return digest == GENESIS and not commits
    return certificate_matches(membership, height, digest, commits) and all(
        membership.signed(commit) for commit in commits
    )


def view_change_holds(membership: Membership, message: ViewChange) -> bool:
    """Its height is proven, and what it says to be prepared follows that height in an earlier view."""
    prepared = message.prepared
    return (
        membership.signed(message)
        and certificate_holds(membership, message.height, message.digest, message.certificate)
        and (
            prepared is None
            or (
                prepared.pre_prepare.height == message.height + 1
                and prepared.pre_prepare.view < message.view
                and prepared_holds(membership, prepared)
            )
        )
    )


def chosen(view_changes: Iterable[ViewChange]) -> tuple[int, Prepared | None]:
    """From which height a new view goes on, and what must be proposed first there.

    A block that any member may have committed at the next height was prepared by a quorum, so that one of these
    view changes shows it, and no later view can have prepared another.
    """
    changes = list(view_changes)
    height = max(change.height for change in changes)
    candidates = [change.prepared for change in changes if change.height == height and change.prepared]
    return height, max(candidates, key=lambda prepared: prepared.pre_prepare.view, default=None)


def new_view_holds(membership: Membership, message: NewView) -> bool:
    """The view's primary shows a quorum's view changes and proposes exactly what follows from them."""
    changes = message.view_changes
    if (
        message.view == 0
        or message.replica != membership.primary(message.view)
        or len({change.replica for change in changes}) < membership.quorum
        or any(change.view != message.view for change in changes)
        or not membership.signed(message)
        or not all(view_change_holds(membership, change) for change in changes)
    ):
        return False
    height, prepared = chosen(changes)
    proposal = message.pre_prepare
    if prepared is None or proposal is None:
        return prepared is None and proposal is None
    return (
        proposal.view == message.view
        and proposal.height == height + 1
        and proposal.digest == prepared.pre_prepare.digest
        and pre_prepare_holds(membership, proposal)
    )


def committed_follows(committed: Committed, height: int, previous: bytes) -> bool:
    """The block is complete and the next one after a height and its block's hash."""
    header = committed.block.header
    return (
        header.height == height + 1
        and header.previous == previous
        and header.transactions == transactions_root(committed.block.transactions)
    )


def _voters(votes: Iterable[Prepare | Commit], accepted: tuple[int, int, bytes]) -> set[int]:
    """Who votes for this view, height and digest; nobody, if any vote is for something else."""
    found = list(votes)
    if any((vote.view, vote.height, vote.digest) != accepted for vote in found):
        return set()
    return {vote.replica for vote in found}
