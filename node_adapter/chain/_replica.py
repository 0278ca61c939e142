"""One member's part in the protocol: three phases for each block, and view changes (Castro and Liskov, 4.2 to 4.4).

What differs from the paper: one block at a time is agreed on, so the low water mark is the last block's height and a
few heights above it are kept for whoever lags; each block's commit certificate is its stable checkpoint; what was
lost is sent again when a peer's STATUS shows that it lacks it.
"""

from __future__ import annotations

from node_adapter.chain._block import Block
from node_adapter.chain._host import Application, Handle, Host
from node_adapter.chain._ledger import Ledger
from node_adapter.chain._log import Log, Slot
from node_adapter.chain._membership import Identity
from node_adapter.chain._messages import (
    Commit,
    Committed,
    Message,
    NewView,
    Prepare,
    Prepared,
    PrePrepare,
    Status,
    ViewChange,
)
from node_adapter.chain._state import State
from node_adapter.chain._view_change import chosen, new_view_holds, pre_prepare_holds, view_change_holds

__all__ = ["Replica"]

_LONGEST = 6  # doublings of the timer


class Replica:
    """The protocol's state machine."""

    def __init__(
        self, identity: Identity, host: Host, ledger: Ledger, application: Application, timeout_s: float
    ) -> None:
        self.number = identity.number
        self.membership = identity.membership
        self.height = ledger.height
        self.view, self.new_view = ledger.view()
        self.active = self.view == 0 or self.new_view is not None
        self._identity, self._host, self._ledger, self._application = identity, host, ledger, application
        self._vote = ledger.vote()
        self._prepared = ledger.prepared()
        self._log = Log(self.height)
        self._view_changes: dict[int, ViewChange] = {}
        self._timeout_s = timeout_s
        self._failed_views = 0
        self._timer: Handle | None = None
        if not self.active:  # it crashed between two views
            self._view_changes[self.number] = self._my_view_change()

    # -- the normal case -----------------------------------------------------------------------------------------

    @property
    def may_propose(self) -> bool:
        """This member is the primary of a view that is under way, and free to choose the next block."""
        floor, required = self._base
        return (
            self.active
            and self.membership.primary(self.view) == self.number
            and self._log.next.proposal(self.view) is None
            and not (required and self.height == floor)
            and self.height >= floor
            and not self._promised_other(self.height + 1, None)
        )

    def propose(self, block: Block, state: State) -> None:
        """Sends the pre-prepare of a block that this primary has verified and executed."""
        message = self._identity.sign(PrePrepare(self.view, block.height, block.hash, self.number, block))
        self._promise(block.height, block.hash)
        self._log.next.propose(message, state)
        self.broadcast(message)
        self._advance()

    def receive_pre_prepare(self, message: PrePrepare) -> None:
        """A proposal, perhaps passed on by another member."""
        floor, required = self._base
        if (
            not self.active
            or message.view != self.view
            or not self._log.holds(message.height)
            or message.height <= floor
            or (required and message.height == floor + 1 and message.digest != required)
            or not pre_prepare_holds(self.membership, message)
        ):
            return
        slot = self._log.at(message.height)
        if known := slot.proposal(self.view):
            if known.digest != message.digest:
                self.start_view_change(self.view + 1)  # two proposals for one height: the primary is faulty
            return
        slot.propose(message)
        self.watch()
        self._advance()

    def receive_vote(self, message: Prepare | Commit) -> None:
        """A prepare or a commit."""
        if (
            self._log.holds(message.height)
            and self.membership.signed(message)
            and self._log.at(message.height).add(message)
        ):
            self._advance()

    def _advance(self) -> None:
        """Does whatever the messages about the next height allow."""
        slot = self._log.next
        proposal = slot.pre_prepare
        if proposal is None:
            return
        if self.active and proposal.view == self.view:
            if not slot.asked:
                slot.asked = True
                self._application.check(proposal.block, lambda state: self._checked(proposal, state))
                return
            if slot.state is None:
                return
            self._send_votes(slot, proposal)
        commits = slot.commits_for(proposal)
        if slot.state is not None and len(commits) >= self.membership.quorum:
            self._application.commit(Committed(proposal.block, commits), slot.state)

    def _checked(self, proposal: PrePrepare, state: State | None) -> None:
        slot = self._log.next
        if slot.pre_prepare is not proposal:
            return  # the chain, or the view, has gone on meanwhile
        slot.state = state
        if state is not None:
            self._advance()
        elif self.active and proposal.view == self.view:
            self.start_view_change(self.view + 1)  # it proposed what no correct primary proposes

    def _send_votes(self, slot: Slot, proposal: PrePrepare) -> None:
        view, height, digest = proposal.view, proposal.height, proposal.digest
        if self._promised_other(height, digest):
            return
        if self.number != proposal.replica:
            prepare = Prepare(view, height, digest, self.number)
            if slot.needs(prepare):
                self._promise(height, digest)
                self._vote_for(slot, prepare)
        prepares = slot.prepares_for(proposal)
        commit = Commit(view, height, digest, self.number)
        if len(prepares) + 1 >= self.membership.quorum and slot.needs(commit):
            self._prepared = Prepared(proposal, prepares)
            self._ledger.promise_prepared(self._prepared)
            self._vote_for(slot, commit)

    def _vote_for(self, slot: Slot, vote: Prepare | Commit) -> None:
        signed = self._identity.sign(vote)
        slot.add(signed)
        self.broadcast(signed)

    def _promise(self, height: int, digest: bytes) -> None:
        self._vote = (self.view, height, digest)
        self._ledger.promise_vote(*self._vote)

    def _promised_other(self, height: int, digest: bytes | None) -> bool:
        """Whether this member has voted for another digest at this height in this view, perhaps before a crash."""
        return self._vote is not None and self._vote[:2] == (self.view, height) and self._vote[2] != digest

    def appended(self, height: int) -> None:
        """A block is on the chain, through the three phases or by catching up."""
        self.height = height
        self._log.settle(height)
        self._prepared = None
        self._failed_views = 0
        if self.active:
            self._stop()
            self.watch()
        self._advance()

    # -- view changes --------------------------------------------------------------------------------------------

    @property
    def _base(self) -> tuple[int, bytes | None]:
        """The height from which this view goes on, and the digest that must come first."""
        if self.new_view is None:
            return 0, None
        height, _ = chosen(self.new_view.view_changes)
        proposal = self.new_view.pre_prepare
        return height, proposal.digest if proposal else None

    def watch(self) -> None:
        """Starts the timer if something waits for the primary and it does not run."""
        if self.active and self._timer is None and (self._log.next.pre_prepare or self._application.has_work()):
            self._start()

    def _start(self) -> None:
        if self._timer is not None:
            return
        delay = self._timeout_s * 2 ** min(self._failed_views, _LONGEST)
        self._timer = self._host.call_later(delay, self._expired)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expired(self) -> None:
        self._timer = None
        self.start_view_change(self.view + 1)

    def start_view_change(self, view: int) -> None:
        """Gives up the views below `view`."""
        self._stop()
        self.view, self.new_view, self.active = view, None, False
        self._failed_views += 1
        self._ledger.promise_view(view, None)
        mine = self._my_view_change()
        self._view_changes[self.number] = mine
        self.broadcast(mine)
        self._count_view_changes()

    def _my_view_change(self) -> ViewChange:
        last = self._ledger.blocks(self.height, 1) if self.height else ()
        certificate = last[0].certificate if last else ()
        digest = self._ledger.hash(self.height)
        return self._identity.sign(
            ViewChange(self.view, self.height, digest, certificate, self._prepared, self.number)
        )

    def receive_view_change(self, message: ViewChange) -> None:
        """Another member gives up a view. Where f + 1 members do, one of them is correct, and this one follows."""
        known = self._view_changes.get(message.replica)
        if (known and known.view >= message.view) or message.view < self.view:
            return
        if not view_change_holds(self.membership, message):
            return
        self._view_changes[message.replica] = message
        later = [change.view for change in self._view_changes.values() if change.view > self.view]
        if len(later) > self.membership.faulty:
            self.start_view_change(min(later))
        else:
            self._count_view_changes()

    def _count_view_changes(self) -> None:
        if self.active:
            return
        changes = tuple(change for change in self._view_changes.values() if change.view == self.view)
        ready = len(changes) >= self.membership.quorum
        if ready and self.membership.primary(self.view) == self.number:
            self._begin_view(changes)
        # Whoever has gone on to a later view has given up this one too.
        elif sum(change.view >= self.view for change in self._view_changes.values()) >= self.membership.quorum:
            self._start()

    def _begin_view(self, changes: tuple[ViewChange, ...]) -> None:
        height, prepared = chosen(changes)
        proposal = None
        if prepared:
            block = prepared.pre_prepare.block
            proposal = self._identity.sign(PrePrepare(self.view, height + 1, block.hash, self.number, block))
        message = self._identity.sign(NewView(self.view, changes, proposal, self.number))
        # On the disk first: after a crash this primary must not begin the same view from other view changes.
        self._ledger.promise_view(self.view, message)
        self.broadcast(message)
        self._enter(message)

    def receive_new_view(self, message: NewView) -> None:
        """A view begins."""
        if message.view < self.view or (message.view == self.view and self.active):
            return
        if new_view_holds(self.membership, message):
            self._enter(message)

    def _enter(self, message: NewView) -> None:
        self._stop()
        self.view, self.new_view, self.active = message.view, message, True
        self._ledger.promise_view(message.view, message)
        if message.pre_prepare:
            self.receive_pre_prepare(message.pre_prepare)
        self.watch()
        self._application.view_entered()

    # -- what was lost is sent again -----------------------------------------------------------------------------

    def status(self) -> Status:
        """What peers compare with their own."""
        return Status(self.view, self.height, self.active)

    def receive_status(self, peer: Status, sender: int) -> None:
        """Sends a peer what it lacks; blocks it asks for itself."""
        if self.active and self.new_view and (peer.view < self.view or not peer.active) and peer.view <= self.view:
            self._host.send(sender, self.new_view)
        elif not self.active and peer.view <= self.view:
            self._host.send(sender, self._view_changes[self.number])
        elif self.active and peer.active and (peer.view, peer.height) == (self.view, self.height):
            for message in self._log.next.said(self.number, self.view):
                self._host.send(sender, message)

    def broadcast(self, message: Message) -> None:
        """To every other member."""
        for number in range(len(self.membership)):
            if number != self.number:
                self._host.send(number, message)
