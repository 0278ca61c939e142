"""Catching up: blocks that others committed are verified many at once, and taken only with their certificates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Protocol

from node_adapter.chain._host import Handle, Host
from node_adapter.chain._ledger import Ledger
from node_adapter.chain._membership import Membership
from node_adapter.chain._messages import BlockRequest, Blocks, Committed
from node_adapter.chain._questions import Codes, Point, Question, ask
from node_adapter.chain._state import State
from node_adapter.chain._view_change import certificate_matches, committed_follows
from node_adapter.client import Scheme
from verifier.model import Code

__all__ = ["CatchUp"]


class _Node(Protocol):
    """What catching up needs of its node."""

    state: State

    def commit(self, committed: Committed, state: State) -> None:
        """Puts a block on the chain."""

    def stop(self, problem: str) -> None:
        """Nothing can be right any more."""


class CatchUp:
    """Asks one peer at a time for the blocks above the node's own, `most` at once.

    The peer is not trusted: a block counts with a quorum's signed commits for it, and even then only if this node
    itself finds every transaction valid and the state that the header names. If it does not, more than f members
    are faulty, or this node's verifier is: the node stops.
    """

    def __init__(
        self,
        node: _Node,
        membership: Membership,
        host: Host,
        ledger: Ledger,
        scheme: Scheme,
        *,
        most: int,
        timeout_s: float,
        retry_s: float,
    ) -> None:
        self._node, self._membership, self._host = node, membership, host
        self._ledger, self._scheme, self._most = ledger, scheme, most
        self._timeout_s, self._retry_s = timeout_s, retry_s
        self._asked: tuple[int, Handle] | None = None
        self._passed_over: set[int] = set()  # peers that were asked and gave nothing

    def behind(self, peer: int) -> None:
        """A peer says that it has blocks which this node lacks. One that says so and gives none is passed over for
        the others: it could keep this node from asking anybody else."""
        if self._asked is None and peer < len(self._membership) and peer not in self._passed_over:
            first = self._ledger.height + 1
            self._asked = peer, self._host.call_later(self._timeout_s, lambda: self._gave_nothing(peer))
            self._host.send(peer, BlockRequest(first, self._most))

    def _gave_nothing(self, peer: int) -> None:
        self._asked = None
        self._passed_over.add(peer)
        if len(self._passed_over) > self._membership.faulty:  # one of them is correct, and its answer was lost
            self._passed_over.clear()

    def answer(self, request: BlockRequest, peer: int) -> None:
        """Sends a peer what it asks for, as much as there is and one message holds."""
        if not 0 < request.first <= self._ledger.height:  # a number that the disk cannot even look for, perhaps
            return
        blocks = self._ledger.blocks(request.first, min(request.most, self._most))
        if blocks:
            self._host.send(peer, Blocks(blocks))

    def receive(self, message: Blocks, peer: int) -> None:
        """What the asked peer answers. Blocks without a certificate, and all that follow them, are dropped."""
        if self._asked is None or self._asked[0] != peer or len(message.blocks) > self._most:
            return
        self._asked[1].cancel()
        height, tip = self._ledger.height, self._ledger.hash(self._ledger.height)
        offered: list[Committed] = []
        for committed in message.blocks:
            if committed.block.height <= height and not offered:
                continue  # it came through consensus meanwhile
            block = committed.block
            if not committed_follows(committed, height, tip) or not certificate_matches(
                self._membership, block.height, block.hash, committed.certificate
            ):
                break
            offered.append(committed)
            height, tip = block.height, block.hash
        if not offered:
            self._gave_nothing(peer)
            return
        commits = [commit for committed in offered for commit in committed.certificate]
        question = Question.commits(commits, self._membership)
        ask(self._host, question, self._retry_s, lambda codes: self._certified(peer, offered, codes))

    def _certified(self, peer: int, offered: Sequence[Committed], codes: Codes) -> None:
        valid = iter((codes == Code.VALID).tolist())
        certified = []
        for committed in offered:
            good = list(islice(valid, len(committed.certificate)))
            signed = [commit for commit, ok in zip(committed.certificate, good, strict=True) if ok]
            if not certificate_matches(self._membership, committed.block.height, committed.block.hash, signed):
                break
            certified.append(Committed(committed.block, tuple(signed)))
        transactions = [tx for committed in certified for tx in committed.block.transactions]
        use: Callable[[Codes], None] = lambda codes: self._verified(peer, certified, codes)  # noqa: E731
        if transactions:
            ask(self._host, Question.transactions(Point.SYNC, self._scheme, transactions), self._retry_s, use)
        else:
            self._gave_nothing(peer)

    def _verified(self, peer: int, certified: Sequence[Committed], codes: Codes) -> None:
        valid = iter((codes == Code.VALID).tolist())
        before = self._ledger.height
        for committed in certified:
            block = committed.block
            good = list(islice(valid, len(block.transactions)))
            if block.height <= self._ledger.height:
                continue
            state = self._node.state.copy()
            problem = None if all(good) else f"{good.count(False)} signatures are not valid"
            problem = problem or state.apply_all(block.transactions)
            if problem or state.root() != block.header.state:
                self._node.stop(
                    f"block {block.height}: a quorum committed to it, and here {problem or 'another state results'}"
                )
                return
            self._node.commit(committed, state)
        self._asked = None
        if self._ledger.height > before and len(certified) == self._most:
            self.behind(peer)
